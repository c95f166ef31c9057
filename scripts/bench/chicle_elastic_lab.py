"""Elastic jobs in the lab, whose hosts leave one by one, and their projections in virtual time."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trepak.models.linear import higgs_shaped
from trepak.scripts.bench import chicle_elastic_projection as projection
from trepak.scripts.bench.chicle_balance import COCOA, LOCAL_SGD
from trepak.scripts.bench.chicle_elastic_job import CHICLE, NETWORK, ElasticJob, Note, Spec
from trepak.scripts.bench.chicle_elastic_projection import Done, Projection
from trepak.scripts.bench.chicle_lanes import LANES
from trepak.scripts.bench.ranks import lab_of
from trepak.scripts.idle_watch import IdleSeconds
from trepak.scripts.report import Claims, Report
from trepak.scripts.surroundings import Surroundings
from trepak.tf_plugins.chicle.policy import TasksLeaving
from trepak.tf_plugins.chicle.virtual import Change

STEPS = "seconds of a step, in the lab and projected; CoCoA's is an iteration"
RUN = "elastic jobs in the lab, and their projections"
_HOSTS, _MOST_OFF = 4, 0.10
_SEEDS = 10  # projections that tell how much depends on orders


@dataclass(frozen=True)
class Kind:
    """A training of the lab's hosts.

    Attributes:
        training: its name.
        prepare: writes its samples to a folder, and returns what ranks are to do with them.
        project: makes it in virtual time.
        period: seconds of training between two hosts' leaving.
    """

    training: str
    prepare: Callable[[Path], Spec]
    project: Projection
    period: float


def _linear(folder: Path) -> Spec:
    samples, regularization, seconds = 20_000, 0.001, 4.0  # of one host over all samples
    x, y = higgs_shaped(samples)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y.astype(np.float64))
    return Spec(
        *(CHICLE, folder),
        sample_seconds=seconds / samples,
        c=1 / (regularization * samples),
        tol=3e-4,
        chunk_bytes=1 << 14,
    )


def _network(folder: Path) -> Spec:
    x = np.random.default_rng(0).standard_normal((2304, 1), np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x)
    return Spec(
        *(NETWORK, folder), sample_seconds=0.01, chunk_bytes=1280, batch=32, steps=4, epochs=4
    )


_KINDS = (
    Kind(COCOA, _linear, projection.cocoa, 6.0),
    Kind(LOCAL_SGD, _network, projection.local_sgd, 6.0),
)


@dataclass(frozen=True)
class Found:
    """What a job was measured to do, and what it was projected to.

    Attributes:
        training: its name.
        notes: of its ranks.
        projected: its iterations in virtual time.
        others: the steps of projections with other orders of samples and places of chunks.
    """

    training: str
    notes: Sequence[Note]
    projected: Sequence[Done]
    others: Sequence[int] = ()


def measure(say: Callable[[str], None]) -> Report:
    """Runs a job of each kind, and its projection, which learns from it only when hosts have left.

    Args:
        say: is told what is under way.

    Raises:
        JobError: a job has failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    with IdleSeconds() as idle:
        found = [_found(kind, say) for kind in _KINDS]
    environment = surroundings.environment("trepak lab run --elastic")
    return _summarized(found, environment, idle.median())


def _found(kind: Kind, say: Callable[[str], None]) -> Found:
    with tempfile.TemporaryDirectory() as name:
        spec = kind.prepare(Path(name))
        notes = _run(spec, kind.period, lambda what: say(f"{kind.training}: {what}"))
        say(f"{kind.training}: the same in virtual time")
        ran = _iterations(notes)
        changes = [
            Change(before.until - 0.5 * before.seconds, TasksLeaving((before.tasks - 1,)))
            for before, after in zip(ran, ran[1:], strict=False)
            if after.tasks < before.tasks
        ]
        projected, *others = (
            kind.project(dataclasses.replace(spec, seed=seed), _HOSTS, changes)
            for seed in range(spec.seed, spec.seed + _SEEDS)
        )
        return Found(kind.training, notes, projected, [_steps(one) for one in others])


def _run(spec: Spec, period: float, say: Callable[[str], None]) -> list[Note]:
    """Returns the notes of a job from which a host leaves every few seconds of training."""
    with lab_of(_HOSTS, 10**9) as lab:
        hosts = lab.host_names
        options = f"--elastic=--hosts {spec.folder / 'hosts'} --min-np 1"
        launcher = ["lab", "run", "--name", lab.name, "-np", str(_HOSTS), options]
        with ElasticJob(spec, launcher, hosts) as job:
            for leaving in range(1, _HOSTS):
                say(f"{_HOSTS - leaving + 1} hosts train")
                due = leaving * period
                job.wait(functools.partial(_is_trained, seconds=due), f"{due:g} s of training")
                job.use(hosts[: _HOSTS - leaving])
            say("one host trains")
            return job.wait(_is_done, "its end")


def _is_trained(notes: Sequence[Note], seconds: float) -> bool:
    ran = _iterations(notes)
    return bool(ran) and ran[-1].until >= seconds


def _is_done(notes: Sequence[Note]) -> bool:
    return any(note["what"] == "done" for note in notes)


def _iterations(notes: Sequence[Note]) -> list[Done]:
    """Returns the iterations that all their tasks have ended; those that were lost count once.

    One begins when the one before has ended; after a pause, when its last task begins.
    """
    of_number, of_process = _by("solve", "iteration", notes), _by("iteration", "pid", notes)
    rounds = [note["end"] for note in notes if note["what"] == "round"]
    found: list[Done] = []
    last = -math.inf
    for _, solves in sorted(of_number.items()):
        spans = [
            (one["begin"], one["end"])
            for solve in solves
            for one in of_process.get(solve["pid"], ())
            if one["begin"] <= solve["begin"] < one["end"]
        ]
        if len(spans) < len(solves) or len(solves) < solves[0]["tasks"]:
            continue
        begin, end = (max(times) for times in zip(*spans, strict=True))
        if found and not any(last <= over <= begin for over in rounds):
            begin = last
        until = (found[-1].until if found else 0.0) + end - begin
        found.append(Done(end - begin, until, len(solves), solves[0].get("steps", 1)))
        last = end
    return found


def _by(what: str, key: str, notes: Sequence[Note]) -> dict[Any, list[Note]]:
    found: dict[Any, list[Note]] = {}
    for note in notes:
        if note["what"] == what:
            found.setdefault(note[key], []).append(note)
    return found


def _summarized(found: Sequence[Found], environment: dict[str, Any], idle: float) -> Report:
    claims = Claims()
    runs, of_tasks, lanes = [], [], []
    for one in found:
        ran = _iterations(one.notes)
        by_tasks = _by_tasks(one, ran)
        run = _whole(one, ran)
        runs.append(run)
        of_tasks += by_tasks
        lanes += _lanes(one)
        for name, off in (
            ("step_time", max(row["off"] for row in by_tasks if row["off"] is not None)),
            ("steps", abs(run["steps"] / run["projected_steps"] - 1)),
            ("time", abs(run["training_seconds"] / run["projected_seconds"] - 1)),
        ):
            full = f"chicle.lab_{name}_off_projection.{one.training.lower().replace(' ', '_')}"
            claims.add(full, off, _MOST_OFF, "lower", "share")
    return Report("chicle", claims, [*runs, *of_tasks, *lanes], environment, (LANES,), idle)


def _by_tasks(found: Found, ran: Sequence[Done]) -> list[dict[str, Any]]:
    """Returns by number of hosts how long a step took, and how long it was projected to."""
    rows = []
    for tasks in sorted({one.tasks for one in ran}, reverse=True):
        ours, virtual = (
            [one for one in some if one.tasks == tasks] for some in (ran, found.projected)
        )
        took, expected = (_step_seconds(some) for some in (ours, virtual))
        rows.append(
            {"kind": STEPS, "training": found.training, "tasks": tasks}
            | {"steps": _steps(ours), "projected_steps": _steps(virtual)}
            | {"lab": took, "projected": expected}
            | {"off": abs(took / expected - 1) if took and expected else None}
        )
    return rows


def _steps(some: Sequence[Done]) -> int:
    return sum(one.steps for one in some)


def _step_seconds(some: Sequence[Done]) -> float | None:
    """Returns the median of what steps take, each with its part of its iteration's exchanges."""
    each = [one.seconds / one.steps for one in some for _ in range(one.steps)]
    return statistics.median(each) if each else None


def _whole(found: Found, ran: Sequence[Done]) -> dict[str, Any]:
    pauses = _pauses(found.notes)
    return {
        "kind": RUN,
        "training": found.training,
        "iterations": len(ran),
        "steps": _steps(ran),
        "projected_steps": _steps(found.projected),
        "least_of_seeds": min([_steps(found.projected), *found.others]),
        "most_of_seeds": max([_steps(found.projected), *found.others]),
        "training_seconds": ran[-1].until,
        "projected_seconds": found.projected[-1].until,
        "pauses": len(pauses),
        "pause_seconds": statistics.median(pauses) if pauses else None,
        "longest_pause": max(pauses, default=None),
    }


def _lanes(found: Found) -> list[dict[str, Any]]:
    solves = [note for note in found.notes if note["what"] == "solve"]
    first = min(one["begin"] for one in solves)
    return [
        {"kind": LANES, "training": found.training, "task": one["host"]}
        | {"iteration": one["iteration"], "begin": one["begin"] - first}
        | {"seconds": one["end"] - one["begin"], "chunks": one["chunks"]}
        | {"steps": one.get("steps", 1)}
        for one in solves
    ]


def _pauses(notes: Sequence[Note]) -> list[float]:
    """Returns the seconds of each change of hosts, in which nobody trained."""
    solves = sorted((one for one in notes if one["what"] == "solve"), key=lambda n: n["begin"])
    over = sorted(note["end"] for note in notes if note["what"] == "round")
    found, last = [], solves[0]["end"]
    for one in solves:
        if any(last <= end <= one["begin"] for end in over):
            found.append(one["begin"] - last)
        last = max(last, one["end"])
    return found
