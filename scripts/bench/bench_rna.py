"""`trepak bench rna`: training on an uneven cluster, by rounds that nobody waits for and others."""

from __future__ import annotations

import dataclasses

from trepak.scripts.bench.rna_cases import cases
from trepak.scripts.bench.rna_figures import draw
from trepak.scripts.bench.rna_report import summarize
from trepak.scripts.bench.uneven.cases import Job
from trepak.scripts.bench.uneven.trainings import measure_all
from trepak.scripts.report import Options, Report

__all__ = ["KEEPS", "SUMMARY", "draw", "measure"]

KEEPS = True  # trainings

SUMMARY = "time to a held-out loss on an uneven cluster: RNA, Horovod, eager-SGD, AD-PSGD"

_WORKERS = 8


def jobs(options: Options) -> list[Job]:
    """Returns all jobs of the bench."""
    if options.quick:
        case = cases(2)[0]
        return [Job(dataclasses.replace(case, epochs=2, epoch_steps=12), case.methods[:2], [0])]
    return [Job(case, case.methods, range(case.seeds)) for case in cases(_WORKERS)]


def measure(options: Options) -> Report:
    """Runs the bench. What an earlier run of the same commit has measured is not measured again.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    return summarize(*measure_all("rna", jobs(options), options))
