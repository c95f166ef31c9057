"""`trepak bench fela`: the token server in virtual time beside other parallelisms."""

from __future__ import annotations

import os
from typing import Any

from trepak.scripts.entrance import console
from trepak.scripts.report import Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "Fela's tokens in virtual time: throughput, stragglers, policies, 1,000 workers"

SCALES = True  # --lab: points of virtual time that run for real


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: ranks in the lab failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
    import trepak.tf_plugins  # noqa: F401  (imports TensorFlow quietly)
    from trepak.scripts.bench import fela_lab, fela_scale
    from trepak.scripts.bench.fela_cases import TOTALS
    from trepak.scripts.bench.fela_models import NETWORKS
    from trepak.scripts.bench.fela_report import summarize
    from trepak.scripts.bench.fela_trials import find, find_quickly

    if options.lab:
        with console(stderr=True).status("") as status:
            return fela_lab.measure(status.update)
    totals, try_case = (TOTALS[:1], find_quickly) if options.quick else (TOTALS, find)
    with console(stderr=True).status("") as status:
        found = [
            try_case(network, total, status.update) for network in NETWORKS for total in totals
        ]
        scale = fela_scale.measure(options.quick, status.update)
    return summarize(found, scale, surroundings.environment("one process"))


def draw(report: Report, figure: Any) -> None:
    """Draws the paper's figures."""
    from trepak.scripts.bench import fela_figures, fela_lab

    if not any(row["kind"] == fela_lab.POINTS for row in report.rows):
        fela_figures.draw(report, figure)
