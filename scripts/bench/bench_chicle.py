"""`trepak bench chicle`: uni-tasks against micro-tasks in virtual time, and real ranks in a lab."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from trepak.scripts.entrance import console
from trepak.scripts.report import Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "epochs and virtual time to a goal: Chicle's uni-tasks, micro-tasks; pauses of joins"
SCALES = True  # --lab: elastic jobs in the lab beside their projections, and pauses of joins


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: processes that measure, or an elastic job, have failed.
        LabError: no lab can be made here.
        RuntimeError: uni-tasks have not come to a goal.
    """
    surroundings = Surroundings()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
    import trepak.tf_plugins  # noqa: F401  (imports TensorFlow quietly)
    from trepak.scripts.bench import chicle_elastic, chicle_elastic_lab
    from trepak.scripts.bench.chicle_cases import CASES
    from trepak.scripts.bench.chicle_local_sgd import compute_alike
    from trepak.scripts.bench.chicle_real import added
    from trepak.scripts.bench.chicle_report import summarize
    from trepak.scripts.bench.chicle_trials import find, find_quickly
    from trepak.scripts.bench.ranks import IN_A_LAB

    compute_alike()
    with console(stderr=True).status("") as status:
        if options.lab:
            in_lab = chicle_elastic_lab.measure(status.update)
            return chicle_elastic.with_pauses(in_lab, False, status.update)
        train = find_quickly if options.quick else find
        report = summarize([train(case, status.update) for case in CASES], {})
        report = added(report, options.quick, status.update)
        if options.quick:
            report = chicle_elastic.with_pauses(report, True, status.update)
    environment = surroundings.environment(f"one process; {IN_A_LAB}; trepak elastic")
    return dataclasses.replace(report, environment=environment)


def draw(report: Report, figure: Any) -> None:
    """Draws the paper's figures."""
    from trepak.scripts.bench import chicle_elastic_lab, chicle_figures, chicle_lanes

    if any(row["kind"] == chicle_elastic_lab.RUN for row in report.rows):
        chicle_lanes.draw_each(report.rows, figure)
    else:
        chicle_figures.draw(report, figure)
