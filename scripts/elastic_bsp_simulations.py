"""What a simulation of the scheduler says of measured trainings, and of many more workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from trepak.scripts.uneven.cases import Case
from trepak.scripts.uneven.trainings import Run
from trepak.scripts.uneven.ways import elastic_bsp

RUNS = "waiting, simulated with the intervals that were measured"
MANY = "workers with these intervals, simulated"

_MANY = 10_000  # workers
_STEPS = 30  # of each of them
_LOOKAHEADS = (1, 15)  # the first one is bulk synchronous


def of_runs(measured: Sequence[tuple[Case, Sequence[Run]]]) -> list[dict[str, Any]]:
    """Returns a row for each training by ElasticBSP: seconds that ranks waited, and simulated.

    They are simulated with the training's own intervals, and with those of another trial.
    """
    found = []
    for case, runs in measured:
        for run in runs:
            if not run["way"].startswith("elastic-bsp"):
                continue
            others = [other for other in runs if other["way"] == run["way"] and other is not run]
            steps = sum(rank["steps"] for rank in run["ranks"])
            waited = run["ranks"][0]["figures"]["planned_waiting"]  # at barriers
            simulated = _waiting(run, steps)
            of_another = _waiting(others[0], steps) if others else None
            found.append(
                {
                    "kind": RUNS,
                    "case": case.name,
                    "way": run["way"],
                    "seed": run["seed"],
                    "measured_s": waited,
                    "simulated_s": simulated,
                    "error": simulated / waited - 1 if waited else None,
                    "error_with_another": of_another / waited - 1
                    if of_another is not None and waited
                    else None,
                }
            )
    return found


def _waiting(run: Run, steps: int) -> float:
    """Returns the seconds that ranks wait in so many steps, once their intervals are known.

    A job's scheduler has learnt them in the steps that compile; the simulated one begins with two
    supersteps of one step each, which are left out, and come before the first measured ones.
    """
    from trepak.horovod_ext.elastic_bsp import StepOptions
    from trepak.horovod_ext.elastic_bsp_simulation import intervals_of, simulate

    intervals = np.roll(intervals_of(run["ranks"][0]["recorded"]), 2, axis=1)
    options = StepOptions("elastic_bsp", lookahead=int(run["way"].split()[1]))
    learning = 2 * len(intervals)
    return float(
        simulate(intervals, options, steps + learning).schedule.waiting
        - simulate(intervals, options, learning).schedule.waiting
    )


def of_many_workers(measured: Sequence[tuple[Case, Sequence[Run]]]) -> list[dict[str, Any]]:
    """Returns what 10,000 workers wait, with the intervals of the first case's ranks."""
    from trepak.horovod_ext.elastic_bsp import StepOptions
    from trepak.horovod_ext.elastic_bsp_simulation import intervals_of, simulate

    case, runs = measured[0]
    run = next((run for run in runs if run["way"] == elastic_bsp(15)), None)
    if run is None:
        return []
    known = intervals_of(run["ranks"][0]["recorded"])
    rng = np.random.default_rng(0)
    intervals = np.stack([rng.permutation(known[i % len(known)])[:64] for i in range(_MANY)])
    found = []
    for lookahead in _LOOKAHEADS:
        began = time.perf_counter()
        options = StepOptions("elastic_bsp", lookahead=lookahead)
        simulated = simulate(intervals, options, _MANY * _STEPS)
        waited = float(simulated.waiting.sum())
        found.append(
            {
                "kind": MANY,
                "case": case.name,
                "workers": _MANY,
                "lookahead": lookahead,
                "steps": _MANY * _STEPS,
                "seconds": simulated.seconds,
                "waiting_share": waited / (simulated.seconds * _MANY),
                "barriers": simulated.schedule.barriers,
                "ms_to_plan": 1000
                * simulated.schedule.planning
                / max(1, simulated.schedule.barriers),
                "s_to_simulate": time.perf_counter() - began,
            }
        )
    return found
