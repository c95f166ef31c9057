"""`trepak bench chicle`: uni-tasks against micro-tasks, in virtual time (Chicle, section 5)."""

from __future__ import annotations

import os
from typing import Any

from trepak.scripts.entrance import console
from trepak.scripts.report import Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "epochs and virtual time to a goal: Chicle's uni-tasks, micro-tasks"


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        RuntimeError: uni-tasks have not come to a goal.
    """
    surroundings = Surroundings()
    # Before TensorFlow is imported. Tasks have threads of their own; with one in each operation,
    # a sum is the same in every run.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    import trepak.tf_plugins  # noqa: F401  (imports TensorFlow quietly)
    from trepak.scripts.bench.chicle_cases import CASES
    from trepak.scripts.bench.chicle_report import summarize
    from trepak.scripts.bench.chicle_trials import find, find_quickly

    with console(stderr=True).status("") as status:
        train = find_quickly if options.quick else find
        found = [train(case, status.update) for case in CASES]
    return summarize(found, surroundings.environment("one process"))


def draw(report: Report, figure: Any) -> None:
    """Draws the paper's figures."""
    from trepak.scripts.bench import chicle_figures

    chicle_figures.draw(report, figure)
