"""What a simulation of the scheduler says of measured trainings, and of many more workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from trepak.scripts.elastic_bsp_cases import LOOKAHEADS
from trepak.scripts.uneven.cases import Case
from trepak.scripts.uneven.trainings import Run
from trepak.scripts.uneven.ways import elastic_bsp

RUNS = "waiting, simulated with the intervals that were measured"
LONG = "long trainings with these intervals, simulated"
MANY = "workers with these intervals, simulated"

_LONG = 10_000  # steps of each worker, on average
_MANY = 10_000  # workers
_STEPS = 30  # of each of them


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
            waited = run["ranks"][0]["figures"]["planned_waiting"]  # at barriers
            simulated = _waiting(case, run)
            of_another = _waiting(case, others[0]) if others else None
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


def _waiting(case: Case, run: Run) -> float:
    """Returns the seconds that ranks wait in a case's epochs, once their intervals are known.

    A job's scheduler has learnt them in the steps that compile; the simulated one begins with an
    epoch of two supersteps of one step each, which is left out, and comes before the measured ones.
    """
    from trepak.horovod_ext.elastic_bsp import StepOptions
    from trepak.horovod_ext.elastic_bsp_simulation import intervals_of, simulate

    intervals = np.roll(intervals_of(run["ranks"][0]["recorded"]), 2, axis=1)
    options = StepOptions("elastic_bsp", lookahead=int(run["way"].split()[1]))
    learning = 2 * len(intervals)
    epochs = [learning] + [case.epoch_steps * len(intervals)] * case.epochs
    return float(
        simulate(intervals, options, 2 * sum(epochs), epochs).schedule.waiting
        - simulate(intervals, options, learning).schedule.waiting
    )


def of_long_trainings(measured: Sequence[tuple[Case, Sequence[Run]]]) -> list[dict[str, Any]]:
    """Returns what each lookahead makes of a training that no epoch ends, by the cases' ranks."""
    found = []
    for case, _ in measured:
        if (known := _known(case, measured)) is not None:
            steps = _LONG * len(known)
            found += [_simulated(LONG, case, known, steps, ahead) for ahead in (1, *LOOKAHEADS)]
    return found


def of_many_workers(measured: Sequence[tuple[Case, Sequence[Run]]]) -> list[dict[str, Any]]:
    """Returns what 10,000 workers wait, with the intervals of the first case's ranks."""
    case, _ = measured[0]
    known = _known(case, measured)
    if known is None:
        return []
    rng = np.random.default_rng(0)
    intervals = np.stack([rng.permutation(known[i % len(known)])[:64] for i in range(_MANY)])
    return [_simulated(MANY, case, intervals, _MANY * _STEPS, ahead) for ahead in (1, 15)]


def _known(case: Case, measured: Sequence[tuple[Case, Sequence[Run]]]) -> Any:
    """Returns the intervals of a case's ranks; None if it was not trained by ElasticBSP."""
    from trepak.horovod_ext.elastic_bsp_simulation import intervals_of

    runs = next(runs for other, runs in measured if other is case)
    run = next((run for run in runs if run["way"] == elastic_bsp(15)), None)
    return None if run is None else intervals_of(run["ranks"][0]["recorded"])


def _simulated(kind: str, case: Case, intervals: Any, steps: int, lookahead: int) -> dict[str, Any]:
    """Returns one simulation as a row; a lookahead of 1 is bulk synchronous."""
    from trepak.horovod_ext.elastic_bsp import StepOptions
    from trepak.horovod_ext.elastic_bsp_simulation import simulate

    began = time.perf_counter()
    simulated = simulate(intervals, StepOptions("elastic_bsp", lookahead=lookahead), steps)
    barriers = max(1, simulated.schedule.barriers)
    return {
        "kind": kind,
        "case": case.name,
        "workers": len(intervals),
        "lookahead": lookahead,
        "steps": steps,
        "seconds": simulated.seconds,
        "waiting_share": float(simulated.waiting.sum()) / (simulated.seconds * len(intervals)),
        "steps_per_barrier": steps / len(intervals) / barriers,
        "ms_to_plan": 1000 * simulated.schedule.planning / barriers,
        "s_to_simulate": time.perf_counter() - began,
    }
