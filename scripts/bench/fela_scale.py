"""The token server with 1,000 workers: requests that it can serve, and that it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trepak.ops.loader import call
from trepak.scripts.bench.fela_clock import LATENCY
from trepak.scripts.bench.fela_models import BACKWARD, NETWORKS
from trepak.scripts.bench.fela_setting import Setting, stage_seconds
from trepak.scripts.report import Claims

SCALE = "the token server's work in an iteration of many workers"

_WORKERS = (8, 125, 1000)
_EACH = 64  # samples of a worker: an iteration of GoogLeNet's takes a tenth of a second
_SHARE = 0.1  # of workers that sleep
_REPEATS = 3
_ABLATION = "without HF"  # all tokens in one bucket, each of which may be the nearest


def measure(quick: bool, show: Callable[[str], None]) -> list[dict[str, Any]]:
    """Returns a row for each number of workers, network and way to schedule.

    Args:
        quick: measures the smallest number only.
        show: is told what is under way.
    """
    rows = []
    for workers in _WORKERS[:1] if quick else _WORKERS:
        for network in NETWORKS:
            for name, setting, sleepers in _ways(network, workers):
                show(f"{workers} workers, {network}: {name}")
                rows.append(_row(name, setting, sleepers))
    return rows


def _ways(network: str, workers: int) -> list[tuple[str, Setting, int]]:
    total = _EACH * workers
    usual = Setting(network, total, (1, 2, 2), workers, workers)
    without = Setting(network, total, (1, 2, 2), workers, workers, hierarchical=False)
    return [
        ("all alike", usual, 0),
        ("stragglers", usual, max(1, int(_SHARE * workers))),
        ("CTD, stragglers", Setting(network, total, (1, 2, 2), workers // 8 or 1, workers), 1),
        (_ABLATION, without, 0),
    ]


def _row(name: str, setting: Setting, sleepers: int) -> dict[str, Any]:
    trials = [rehearse(setting, sleepers) for _ in range(_REPEATS)]
    found = min(trials, key=lambda one: float(one["busy_seconds"]))
    served = found["requests"] / found["busy_seconds"]
    return {
        "kind": SCALE,
        "workers": setting.workers,
        "network": setting.network,
        "way": name,
        "requests": found["requests"],
        "asked_a_second": found["requests"] / found["seconds"],
        "served_a_second": served,
        "microseconds_a_request": 1e6 / served,
        "worst_milliseconds": 1e3 * found["worst_seconds"],
        "busy_share": found["busy_seconds"] / found["seconds"],
    }


def rehearse(setting: Setting, sleepers: int = 0) -> dict[str, Any]:
    """Has native workers, who only take time, train an iteration; see `fela_rehearse`.

    Args:
        setting: how; chunks take no time.
        sleepers: so many workers, evenly apart, never come.
    """
    parts = setting.model.sub_models
    stages = range(1, 2 * len(parts))
    fixed = [stage_seconds(parts, stage, 0) for stage in stages]
    one = [stage_seconds(parts, stage, 1) for stage in stages]
    asleep = {setting.workers - 1 - i * setting.workers // sleepers for i in range(sleepers)}
    return call(  # type: ignore[no-any-return]
        "fela_rehearse",
        rules=setting.rules,
        fixed=fixed,
        each=[with_one - without for with_one, without in zip(one, fixed, strict=True)],
        recomputing=1 / BACKWARD,
        latency=LATENCY,
        delays=[1e6 if worker in asleep else 0.0 for worker in range(setting.workers)],
    )


def claim(claims: Claims, rows: list[dict[str, Any]]) -> None:
    """Adds the share of an iteration in which the token server works, with the most workers."""
    most = max(row["workers"] for row in rows)
    for way in dict.fromkeys(row["way"] for row in rows):
        for network in NETWORKS:
            share = max(
                row["busy_share"]
                for row in rows
                if (row["workers"], row["network"], row["way"]) == (most, network, way)
            )
            name = way.replace(", ", "_").replace(" ", "_").lower()
            full = f"fela.scheduler_busy_share.{most}_workers.{network}.{name}"
            target = None if way == _ABLATION else 1.0
            claims.add(full, share, target, "lower", "", emulated=False)
