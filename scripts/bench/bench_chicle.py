"""`trepak bench chicle`: uni-tasks against micro-tasks, in virtual time (Chicle, section 5)."""

from __future__ import annotations

import os
from typing import Any

from trepak.scripts.entrance import console
from trepak.scripts.report import Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "epochs and virtual time to a goal: Chicle's uni-tasks, micro-tasks; pauses of joins"
SCALES = True  # --lab: an elastic job in the lab, beside its projection


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        RuntimeError: uni-tasks have not come to a goal.
        JobError: an elastic job has failed.
    """
    surroundings = Surroundings()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
    from trepak.scripts.bench import chicle_elastic, chicle_elastic_lab
    from trepak.scripts.bench.chicle_cases import CASES
    from trepak.scripts.bench.chicle_report import summarize
    from trepak.scripts.bench.chicle_trials import find, find_quickly

    with console(stderr=True).status("") as status:
        if options.lab:
            return chicle_elastic_lab.measure(status.update)
        train = find_quickly if options.quick else find
        found = [train(case, status.update) for case in CASES]
        report = summarize(found, surroundings.environment("one process; trepak elastic"))
        return chicle_elastic.with_pauses(report, options.quick, status.update)


def draw(report: Report, figure: Any) -> None:
    """Draws the paper's figures."""
    from trepak.scripts.bench import chicle_figures, chicle_lanes
    from trepak.scripts.bench.chicle_elastic_lab import LANES

    is_lab = any(row["kind"] == LANES for row in report.rows)
    (chicle_lanes if is_lab else chicle_figures).draw(report, figure)
