"""`trepak bench elastic_bsp`: training on ranks of different speeds, by ElasticBSP and others."""

from __future__ import annotations

import dataclasses

from trepak.scripts.bench.elastic_bsp_cases import ELASTIC, cases
from trepak.scripts.bench.elastic_bsp_figures import draw
from trepak.scripts.bench.elastic_bsp_report import summarize
from trepak.scripts.bench.uneven.cases import Job
from trepak.scripts.bench.uneven.methods import HOROVOD
from trepak.scripts.bench.uneven.trainings import measure_all
from trepak.scripts.report import Options, Report

__all__ = ["KEEPS", "SUMMARY", "draw", "measure"]

KEEPS = True  # trainings

SUMMARY = "time to an accuracy on ranks of different speeds: ElasticBSP, BSP, SSP, ASP"


def jobs(options: Options) -> list[Job]:
    """Returns all jobs of the bench."""
    if options.quick:
        case = dataclasses.replace(cases()[1], epochs=1, decayed_epochs=0, epoch_steps=40)
        return [Job(case, (HOROVOD, ELASTIC[0]), [0])]
    return [Job(case, case.methods, range(case.seeds)) for case in cases()]


def measure(options: Options) -> Report:
    """Runs the bench. What an earlier run of the same commit has measured is not measured again.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    return summarize(*measure_all("elastic_bsp", jobs(options), options))
