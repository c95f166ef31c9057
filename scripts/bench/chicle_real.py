"""The figures of `trepak bench chicle` that real solvers and real ranks are timed for."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from trepak.scripts.bench import (
    chicle_balance,
    chicle_lanes,
    chicle_liblinear,
    chicle_rigid,
    chicle_speedup,
)
from trepak.scripts.bench.ranks import lab_of
from trepak.scripts.lab.network import LabError
from trepak.scripts.lab.topology import parse_rate
from trepak.scripts.report import Claims, Report

_HOSTS = 4
_SLOW_LINKS, _FAST_LINKS = "1gbit", "10gbit"


def added(report: Report, quick: bool, show: Callable[[str], None]) -> Report:
    """Returns a report with what is timed here beside what it has.

    Args:
        report: what virtual time has shown.
        quick: measures little.
        show: is told what is under way.

    Raises:
        JobError: processes that measure have failed.
    """
    claims = Claims(report.claims)
    show("liblinear's solvers")
    fits = chicle_liblinear.measure(quick)
    rows = [*chicle_liblinear.summarize(fits, claims), *fits]
    idle = None
    try:
        more, idle = _in_labs(quick, show, claims)
    except LabError as error:
        more = [{"kind": "in a lab: not measured here", "why": str(error)}]
    return dataclasses.replace(
        report,
        claims=claims,
        rows=[*report.rows, *rows, *more],
        unprinted=(*report.unprinted, chicle_liblinear.ROUNDS, chicle_lanes.LANES),
        idle_share=idle,
    )


def _in_labs(
    quick: bool, show: Callable[[str], None], claims: Claims
) -> tuple[list[dict[str, Any]], float]:
    """Returns rows of real ranks, and the share of the CPU that was idle while time was emulated.

    Raises:
        LabError: no lab can be made here.
    """
    show("ranks of which one is slowed")
    with lab_of(_HOSTS, parse_rate(_SLOW_LINKS)) as lab:
        balanced, idle = chicle_balance.measure(lab, quick)
    chicle_balance.claim(balanced, claims)
    show("ranks to which nothing happens")
    rigid, idle_then = chicle_rigid.measure(quick)
    chicle_rigid.claim(rigid, claims)
    show("iterations on one rank and on four")
    with lab_of(_HOSTS, parse_rate(_FAST_LINKS)) as lab:
        speedup = chicle_speedup.measure(lab, len(os.sched_getaffinity(0)), quick)
    chicle_speedup.claim(speedup, claims)
    return [*balanced, *rigid, *speedup], min(idle, idle_then)
