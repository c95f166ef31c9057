"""`trepak bench elastic_bsp`: training on ranks of different speeds, by ElasticBSP and others."""

from __future__ import annotations

import dataclasses

from trepak.scripts.bench_report import Options, Report, Surroundings
from trepak.scripts.elastic_bsp_cases import ELASTIC, cases
from trepak.scripts.elastic_bsp_figures import draw
from trepak.scripts.elastic_bsp_report import summarize
from trepak.scripts.uneven.trainings import Plan, folder_of, measure_all
from trepak.scripts.uneven.ways import HOROVOD

__all__ = ["SUMMARY", "draw", "measure"]

SUMMARY = "time to an accuracy on ranks of different speeds: ElasticBSP, BSP, SSP, ASP"


def plan(options: Options) -> list[Plan]:
    """Returns all jobs of the bench."""
    if options.quick:
        case = dataclasses.replace(cases()[1], epoch_steps=40)
        return [Plan(case, (HOROVOD, ELASTIC[0]), [0])]
    return [Plan(case, case.ways, range(case.seeds)) for case in cases()]


def measure(options: Options) -> Report:
    """Runs the bench. What an earlier run of the same commit has measured is not measured again.

    Raises:
        JobError: no lab can be made here, or the workers failed.
    """
    surroundings = Surroundings()
    folder = None if options.quick else folder_of("elastic_bsp")
    measured, before = measure_all(plan(options), folder)
    environment = surroundings.environment("trepak lab run --gloo")
    return summarize(measured, {**environment, "trainings_of_an_earlier_run": before})
