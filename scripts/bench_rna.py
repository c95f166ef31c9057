"""`trepak bench rna`: training on an uneven cluster, by rounds that nobody waits for and others."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from trepak.scripts.bench_report import Options, Report, Surroundings
from trepak.scripts.lab import state
from trepak.scripts.lab.job import Job, run
from trepak.scripts.lab.network import LabError
from trepak.scripts.launcher import JobError
from trepak.scripts.rna_cases import STRETCH, Case, cases
from trepak.scripts.rna_figures import draw
from trepak.scripts.rna_report import summarize

__all__ = ["SUMMARY", "draw", "measure"]

SUMMARY = "time to a held-out loss on an uneven cluster: RNA, Horovod, eager-SGD, AD-PSGD"

_NAME = "trepak-bench"
_WORKERS = 8
_EPOCH_STEPS = 32  # of all ranks
_PATIENCE = 10
_SEEDS = 5
_TIMEOUT = 3 * 3600.0
_PACKET = 8000  # bytes


@dataclass(frozen=True)
class Plan:
    """One job: a case, by several ways and with several seeds."""

    case: Case
    ways: Sequence[str]
    seeds: Sequence[int]
    epochs: int
    patience: int


def plan(options: Options) -> list[Plan]:
    """Returns all jobs of the bench."""
    if options.quick:
        case = cases(2)[0]
        return [Plan(case, case.ways[:2], [0], epochs=2, patience=0)]
    return [
        Plan(case, case.ways, range(_SEEDS), case.epochs, _PATIENCE) for case in cases(_WORKERS)
    ]


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: no lab can be made here, or the workers failed.
    """
    surroundings = Surroundings()
    runs: list[tuple[Plan, list[dict[str, Any]]]] = []
    with Console(stderr=True).status("") as status:
        plans = plan(options)
        for number, one in enumerate(plans, start=1):
            status.update(f"job {number} of {len(plans)}: {one.case.name}")
            try:
                runs.append((one, run_plan(one)))
            except LabError as error:
                raise JobError(str(error)) from error
    environment = surroundings.environment("trepak lab run --gloo")
    return summarize([(one.case, measured) for one, measured in runs], environment)


def run_plan(plan: Plan) -> list[dict[str, Any]]:
    """Runs one job in a lab of its own; returns its trainings, see `bench_rna_worker`.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    state.down(_NAME)  # one that an earlier run left
    size = len(plan.case.ranks)
    lab, _ = state.up(_NAME, size, plan.case.bits_per_second(), 2, _PACKET)
    try:
        with tempfile.TemporaryDirectory() as folder:
            spec, output = Path(folder) / "spec.json", Path(folder) / "outcomes.json"
            spec.write_text(json.dumps(_spec(plan)))
            module = [sys.executable, "-m", "trepak.scripts.bench_rna_worker"]
            job = Job(
                [*module, "--spec", str(spec), "--output", str(output)],
                size,
                gloo=True,  # MPI's ranks poll while they wait
                variables={host: _VARIABLES for host in lab.host_names},
            )
            result = run(lab, job, lambda line: False, _TIMEOUT)
            if result.outcome.exit_code:
                raise JobError(
                    f"the workers ended with {result.outcome.exit_code}:\n{result.outcome.text()}"
                )
            runs: list[dict[str, Any]] = json.loads(output.read_text())
            return runs
    finally:
        state.down(_NAME)


_VARIABLES: Mapping[str, str] = {
    "HOROVOD_CYCLE_TIME": str(STRETCH / 2),
    "TREPAK_DEADLINE_SECONDS": "300",  # tracing takes one longer than another
}


def _spec(plan: Plan) -> dict[str, Any]:
    return {
        "case": dataclasses.asdict(plan.case),
        "ways": list(plan.ways),
        "seeds": list(plan.seeds),
        "epoch_steps": _EPOCH_STEPS,
        "epochs": plan.epochs,
        "patience": plan.patience,
    }
