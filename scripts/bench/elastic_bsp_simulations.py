"""What a simulation of the scheduler says of measured trainings, and of many more workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from trepak.scripts.bench.elastic_bsp_cases import LOOKAHEADS
from trepak.scripts.bench.uneven.cases import Case
from trepak.scripts.bench.uneven.methods import elastic_bsp, plans_barriers
from trepak.scripts.bench.uneven.trainings import Run

RUNS = "waiting, simulated with the intervals that were measured"
LONG = "long trainings with these intervals, simulated"
MANY = "workers with these intervals, simulated"

_LONG = 10_000  # steps of each worker, on average
_MANY = 10_000  # workers
_STEPS = 200  # of each of them
_BEGINS = 16  # places of a record, evenly apart, that simulations of a training begin at


def of_runs(measured: Sequence[tuple[Case, Sequence[Run]]]) -> list[dict[str, Any]]:
    """Returns a row for each training by ElasticBSP: seconds that ranks waited, and simulated.

    They are simulated with the training's own intervals, and with those of the other trial that
    does it worst.
    """
    found = []
    for case, runs in measured:
        by_elastic = [run for run in runs if plans_barriers(run["way"])]
        simulations = [_waiting(case, run) for run in by_elastic]
        for run, simulated in zip(by_elastic, simulations, strict=True):
            waited = run["ranks"][0]["figures"]["planned_waiting"]  # at barriers
            of_another = [
                float(np.mean(others)) / waited - 1
                for other, others in zip(by_elastic, simulations, strict=True)
                if waited and other["way"] == run["way"] and other is not run
            ]
            found.append(
                {
                    "kind": RUNS,
                    "case": case.name,
                    "way": run["way"],
                    "seed": run["seed"],
                    "measured_s": waited,
                    "simulated_s": float(np.mean(simulated)),
                    "simulated_from_s": min(simulated),
                    "simulated_to_s": max(simulated),
                    "error": float(np.mean(simulated)) / waited - 1 if waited else None,
                    "error_with_another": max(of_another, key=abs, default=None),
                }
            )
    return found


def _waiting(case: Case, run: Run) -> list[float]:
    """Returns the seconds that ranks wait in a case's epochs, once their intervals are known.

    A job's scheduler has learnt them in the steps that compile; the simulated one begins with an
    epoch of two supersteps of one step each, which is left out. Where the first barrier falls
    changes all later ones, so several simulations begin at different places of the record.
    """
    from trepak.horovod_ext.elastic_bsp import StepOptions
    from trepak.horovod_ext.elastic_bsp_simulation import record_of, simulate

    record = record_of(run["ranks"][0]["recorded"])
    options = StepOptions("elastic_bsp", lookahead=int(run["way"].split()[1]))
    learning = 2 * len(record.intervals)
    epochs = [learning] + [case.epoch_steps * len(record.intervals)] * case.epochs
    waiting = []
    for begin in np.linspace(0, record.length, _BEGINS, endpoint=False).tolist():
        whole = simulate(record, options, 2 * sum(epochs), epochs, begin, record=False)
        learnt = simulate(record, options, learning, (), begin, record=False)
        waiting.append(whole.schedule.waiting - learnt.schedule.waiting)
    return waiting


def of_long_trainings(measured: Sequence[tuple[Case, Sequence[Run]]]) -> list[dict[str, Any]]:
    """Returns what each lookahead makes of a training that no epoch ends, by the cases' ranks."""
    found = []
    for case, _ in measured:
        if (record := _known(case, measured)) is not None:
            steps = _LONG * len(record.intervals)
            for ahead in (1, *LOOKAHEADS):
                found.append(_simulated(LONG, case, record, steps, ahead))
    return found


def of_many_workers(measured: Sequence[tuple[Case, Sequence[Run]]]) -> list[dict[str, Any]]:
    """Returns what 10,000 workers wait, with the intervals of the first case's ranks."""
    from trepak.horovod_ext.elastic_bsp_simulation import Record

    case, _ = measured[0]
    record = _known(case, measured)
    if record is None:
        return []
    rng = np.random.default_rng(0)
    rank = np.arange(_MANY) % len(record.intervals)
    # Workers of many machines are not slow together: each begins elsewhere in a rank's record.
    places = np.arange(record.intervals.shape[1])
    rolled = (places + rng.integers(len(places), size=(_MANY, 1))) % len(places)
    lasting = np.diff(record.until, axis=1, prepend=0)
    many = Record(
        record.intervals[rank[:, None], rolled],
        lasting[rank[:, None], rolled].cumsum(axis=1),
        record.after_barrier[rank],
    )
    return [_simulated(MANY, case, many, _MANY * _STEPS, ahead) for ahead in (1, 15)]


def _known(case: Case, measured: Sequence[tuple[Case, Sequence[Run]]]) -> Any:
    """Returns the record of a case's first training by ElasticBSP; None without one."""
    from trepak.horovod_ext.elastic_bsp_simulation import record_of

    runs = next(runs for other, runs in measured if other is case)
    run = next((run for run in runs if run["way"] == elastic_bsp(15)), None)
    recorded = None if run is None else run["ranks"][0]["recorded"]
    return None if recorded is None else record_of(recorded)


def _simulated(kind: str, case: Case, times: Any, steps: int, lookahead: int) -> dict[str, Any]:
    """Returns one simulation as a row; a lookahead of 1 is bulk synchronous."""
    from trepak.horovod_ext.elastic_bsp import StepOptions
    from trepak.horovod_ext.elastic_bsp_simulation import simulate

    began = time.perf_counter()
    options = StepOptions("elastic_bsp", lookahead=lookahead)
    simulated = simulate(times, options, steps, record=False)
    workers = len(simulated.steps)
    barriers = max(1, simulated.schedule.barriers)
    return {
        "kind": kind,
        "case": case.name,
        "workers": workers,
        "lookahead": lookahead,
        "steps": steps,
        "seconds": simulated.seconds,
        "waiting_share": float(simulated.waiting.sum()) / (simulated.seconds * workers),
        "steps_per_barrier": steps / workers / barriers,
        "ms_to_plan": 1000 * simulated.schedule.planning / barriers,
        "s_to_simulate": time.perf_counter() - began,
    }
