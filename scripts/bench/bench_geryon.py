"""`trepak bench geryon`: five ways for gradients to travel, in a lab with emulated accelerators."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from trepak.scripts.bench import geryon_alternatives, geryon_order
from trepak.scripts.bench.geryon_arms import (
    ALONE,
    ALTERNATIVES,
    END_HOST,
    FIVE_WAYS,
    GERYON,
    NETWORKS,
    PARTITION,
    RING,
    SLICES_K,
    SLICING,
    SUMS,
    THRESHOLD_K,
    Arm,
    Cell,
    Network,
)
from trepak.scripts.bench.geryon_figures import draw
from trepak.scripts.bench.geryon_report import summarize
from trepak.scripts.entrance import console
from trepak.scripts.lab import state
from trepak.scripts.lab.job import Job, run
from trepak.scripts.lab.network import LabError
from trepak.scripts.launcher import JobError
from trepak.scripts.report import Options, Report, Surroundings

__all__ = ["SUMMARY", "draw", "measure"]

SUMMARY = "scaling efficiency of Geryon and four other ways, on slow links"

_NAME = "trepak-bench"
# F (see `Cell`): 2 cores carry about 1 Gbit/s in all.
_SHRINK = {10: 80.0, 40: 320.0}
_MOST = 8  # workers
_ROUNDS = {_MOST: 2, 4: 1, 2: 1}
_STEPS = {_MOST: 6, 4: 4, 2: 4}
_SUMS_SHRINK = 4.5  # AlexNet's largest variable has a slice of 1,024 K elements on each server
_SUMS_STRETCH = 18.0
_PACKET = 8000  # bytes; smaller ones cost more CPU than 2 cores have
_ALTERNATIVES_TO = NETWORKS[1]  # VGG-19
_TIMEOUT = 3600.0


def plan(quick: bool) -> list[Cell]:
    """Returns all jobs of the bench."""
    if quick:
        arms = [Arm(way) for way in (ALONE, SLICING, GERYON)]
        return [Cell(NETWORKS[0], 2, 10, _SHRINK[10], arms, rounds=1, steps=3)]
    cells = [
        _cell(network, workers, gbit)
        for gbit in _SHRINK
        for network in NETWORKS
        for workers in _ROUNDS
    ]
    ring = Cell(
        _ALTERNATIVES_TO,
        _MOST,
        10,
        _SHRINK[10],
        [Arm(way) for way in (ALONE, RING, GERYON)],
        stretch=_ALTERNATIVES_TO.stretch,
        cycle_ms=5,
        purpose=ALTERNATIVES,
    )
    sums = Cell(
        NETWORKS[0],
        _MOST,
        10,
        _SUMS_SHRINK,
        [Arm(ALONE), Arm(GERYON, round(THRESHOLD_K * _SUMS_SHRINK))],
        rounds=1,
        steps=3,
        stretch=_SUMS_STRETCH,
        purpose=SUMS,
    )
    return [ring, sums, *cells]  # what differs most from all else first, should it fail


def _cell(network: Network, workers: int, gbit: int) -> Cell:
    arms = [Arm(way) for way in (ALONE, *FIVE_WAYS)]
    if network.model == "vgg19" and gbit == 10:
        if workers == _MOST:  # Table IV
            arms += [Arm(way, k) for k in SLICES_K[1:] for way in (END_HOST, GERYON)]
        if workers == 2:  # Figure 7
            arms += [Arm(PARTITION), *(Arm(SLICING, k) for k in SLICES_K[1:])]
    stretch = max(1.0, network.stretch * workers / _MOST)
    rounds, steps = _ROUNDS[workers], _STEPS[workers]
    return Cell(network, workers, gbit, _SHRINK[gbit], arms, rounds, steps, stretch)


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: no lab can be made here, or the workers failed.
    """
    surroundings = Surroundings()
    cells = plan(options.quick)
    measured, others = [], []
    with console(stderr=True).status("") as status:
        try:
            status.update(geryon_order.ORDER)
            order = geryon_order.measure(_NAME, options.quick)
            for number, cell in enumerate(cells, start=1):
                status.update(f"job {number} of {len(cells)}: {cell.title}")
                outcomes, rows = run_cell(cell)
                measured.append((cell, outcomes))
                others += rows
        except LabError as error:
            raise JobError(str(error)) from error
    return summarize(measured, others, order, surroundings.environment("trepak lab run --gloo"))


def run_cell(cell: Cell) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Runs one job in a lab of its own.

    Returns:
        By rank, a list of rounds: arm → what `Worker.measure` returned; rows of alternatives.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    state.down(_NAME)  # one that an earlier run left
    lab, _ = state.up(_NAME, cell.workers, cell.bits_per_second, 2, _PACKET)
    try:
        others = geryon_alternatives.measure(lab, cell) if cell.purpose == ALTERNATIVES else []
        with tempfile.TemporaryDirectory() as folder:
            spec, output = Path(folder) / "spec.json", Path(folder) / "outcomes.json"
            spec.write_text(json.dumps(_spec(cell)))
            module = [sys.executable, "-m", "trepak.scripts.bench.bench_geryon_worker"]
            job = Job(
                [*module, "--spec", str(spec), "--output", str(output)],
                cell.workers,
                gloo=True,  # MPI's ranks poll while they wait
                variables=dict.fromkeys(lab.host_names, cell.variables),
            )
            result = run(lab, job, lambda line: False, _TIMEOUT)
            if result.outcome.exit_code:
                raise JobError(
                    f"the workers ended with {result.outcome.exit_code}:\n{result.outcome.text()}"
                )
            outcomes: list[list[dict[str, Any]]] = json.loads(output.read_text())
            return outcomes, others
    finally:
        state.down(_NAME)


def _spec(cell: Cell) -> dict[str, Any]:
    return {
        "model": cell.network.model,
        "options": dict(cell.network.options),
        "batch": cell.network.batch,
        "threshold": cell.network.threshold,
        "shrink": cell.shrink,
        "stretch": cell.stretch,
        "arms": [[arm.way, arm.slice_k] for arm in cell.arms],
        "rounds": cell.rounds,
        "steps": cell.steps,
        "warm": cell.warm,
        "attempts": cell.attempts,
    }
