"""An elastic job in the lab, whose hosts leave one by one, and its projection in virtual time."""

from __future__ import annotations

import functools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from trepak.models.linear import higgs_shaped
from trepak.scripts.bench.chicle_elastic_job import CHICLE, ElasticJob, Note, Spec
from trepak.scripts.bench.chicle_lanes import LANES
from trepak.scripts.bench.ranks import lab_of
from trepak.scripts.idle_watch import IdleSeconds
from trepak.scripts.report import Claims, Report
from trepak.scripts.surroundings import Surroundings
from trepak.tf_plugins.chicle.cluster import OneProcess
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import TasksLeaving
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.training import Training
from trepak.tf_plugins.chicle.virtual import PARTS, Change, VirtualNodes, VirtualTime

ITERATIONS = "seconds of an iteration, in the lab and projected"
RUN = "an elastic job in the lab, and its projection"
_HOSTS, _SAMPLES, _PASS_SECONDS = 4, 20_000, 4.0  # of one host over all samples
_PERIOD = 6.0  # of training between two hosts' leaving
_REGULARIZATION, _GOAL, _CHUNK_BYTES, _SEED = 0.001, 3e-4, 1 << 14, 0
_MOST_OFF = 0.10


def measure(say: Callable[[str], None]) -> Report:
    """Runs the job, and its projection, which learns from it only when hosts have left.

    Args:
        say: is told what is under way.

    Raises:
        JobError: the job has failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    with tempfile.TemporaryDirectory() as name, IdleSeconds() as idle:
        folder = Path(name)
        x, y = higgs_shaped(_SAMPLES)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y.astype(np.float64))
        spec = Spec(
            *(CHICLE, folder),
            sample_seconds=_PASS_SECONDS / _SAMPLES,
            c=1 / (_REGULARIZATION * _SAMPLES),
            tol=_GOAL,
            chunk_bytes=_CHUNK_BYTES,
            seed=_SEED,
        )
        notes = _run(spec, say)
    ran = _iterations(notes)
    say("the same in virtual time")
    changes = [
        Change(before.until - 0.5 * before.seconds, TasksLeaving((before.tasks - 1,)))
        for before, after in zip(ran, ran[1:], strict=False)
        if after.tasks < before.tasks
    ]
    projected = _projected(spec, x, y, changes)
    environment = surroundings.environment("trepak lab run --elastic")
    return _summarized(notes, ran, projected, environment, idle.median())


@dataclass(frozen=True)
class Iteration:
    """One of a training.

    Attributes:
        seconds: that it took.
        until: seconds of training until its end; pauses do not count.
        tasks: that worked.
    """

    seconds: float
    until: float
    tasks: int


def _run(spec: Spec, say: Callable[[str], None]) -> list[Note]:
    """Returns the notes of a job from which a host leaves every few seconds of training."""
    with lab_of(_HOSTS, 10**9) as lab:
        hosts = lab.host_names
        options = f"--elastic=--hosts {spec.folder / 'hosts'} --min-np 1"
        launcher = ["lab", "run", "--name", lab.name, "-np", str(_HOSTS), options]
        with ElasticJob(spec, launcher, hosts) as job:
            for leaving in range(1, _HOSTS):
                say(f"{_HOSTS - leaving + 1} hosts train")
                due = leaving * _PERIOD
                job.wait(functools.partial(_is_trained, seconds=due), f"{due:g} s of training")
                job.use(hosts[: _HOSTS - leaving])
            say("one host trains")
            return job.wait(_is_done, "its end")


def _is_trained(notes: Sequence[Note], seconds: float) -> bool:
    ran = _iterations(notes)
    return bool(ran) and ran[-1].until >= seconds


def _is_done(notes: Sequence[Note]) -> bool:
    return any(note["what"] == "done" for note in notes)


def _iterations(notes: Sequence[Note]) -> list[Iteration]:
    """Returns the iterations of which a task's work was noted; those that were lost count once."""
    by_number: dict[int, list[Note]] = {}
    for note in notes:
        if note["what"] == "solve":
            by_number.setdefault(note["iteration"], []).append(note)
    whole = [_of(notes, solves) for _, solves in sorted(by_number.items())]
    found: list[Iteration] = []
    for seconds, tasks in [one for one in whole if one is not None]:
        found.append(Iteration(seconds, (found[-1].until if found else 0.0) + seconds, tasks))
    return found


def _of(notes: Sequence[Note], solves: Sequence[Note]) -> tuple[float, int] | None:
    """Returns the seconds of an iteration, and its tasks; None: it has not ended yet."""
    around = [
        one
        for solve in solves
        for one in notes
        if (one["what"], one["pid"]) == ("iteration", solve["pid"])
        and one["begin"] <= solve["begin"] < one["end"]
    ]
    if len(around) < len(solves) or len(solves) < solves[0]["tasks"]:
        return None
    return max(one["end"] for one in around) - min(one["begin"] for one in around), len(solves)


def _projected(
    spec: Spec, x: np.ndarray, y: np.ndarray, changes: Sequence[Change]
) -> list[Iteration]:
    """Returns the iterations of the same training in virtual time."""
    seed = int(check_random_state(spec.seed).randint(2**31))  # as estimators draw theirs
    problems = Problems((Problem("hinge", c=spec.c, positive=1.0),), x.shape[1])
    fields = {"x": x, "y": y.astype(np.float64), "weight": np.ones(len(y))}
    cutting = Cutting(fields, problems.state(), spec.chunk_bytes)
    trainer = CocoaTrainer(problems, spec.tol, 10**6, seed)
    placed = place(cutting, _HOSTS, OneProcess(), seed)
    unit = spec.sample_seconds * len(y) / PARTS
    nodes = VirtualNodes(len(y), unit, dict.fromkeys(range(_HOSTS), 1.0))
    policies = (ElasticScaling(seed), Rebalancing(seed=seed))
    with Training(trainer, placed, policies=policies, clock=nodes.clock) as training:
        passed = VirtualTime(training, nodes, changes)
        passed.run()
    seconds = np.diff([0.0, *passed.ends])
    rows = zip(seconds, passed.ends, passed.tasks, strict=True)
    return [Iteration(float(took), until, tasks) for took, until, tasks in rows]


def _summarized(
    notes: Sequence[Note],
    ran: Sequence[Iteration],
    projected: Sequence[Iteration],
    environment: dict[str, Any],
    idle: float,
) -> Report:
    begin = min(note["begin"] for note in notes if note["what"] == "solve")
    of_tasks, offs = [], []
    for tasks in sorted({one.tasks for one in ran}, reverse=True):
        ours, virtual = (
            [one.seconds for one in some if one.tasks == tasks] for some in (ran, projected)
        )
        took, expected = (statistics.median(some) if some else None for some in (ours, virtual))
        counts = {"iterations": len(ours), "projected_iterations": len(virtual)}
        off = abs(took / expected - 1) if took and expected else None
        offs += [off] if off is not None else []
        of_tasks.append(
            {"kind": ITERATIONS, "tasks": tasks, **counts}
            | {"lab": took, "projected": expected, "off": off}
        )
    pauses = _pauses(notes)
    run = {
        "kind": RUN,
        "iterations": len(ran),
        "projected_iterations": len(projected),
        "training_seconds": ran[-1].until,
        "projected_seconds": projected[-1].until,
        "pauses": len(pauses),
        "pause_seconds": statistics.median(pauses) if pauses else None,
        "longest_pause": max(pauses, default=None),
    }
    claims = Claims()
    for name, off in (
        ("iteration_time", max(offs)),
        ("iterations", abs(len(ran) / len(projected) - 1)),
        ("time", abs(ran[-1].until / projected[-1].until - 1)),
    ):
        claims.add(f"chicle.lab_{name}_off_projection", off, _MOST_OFF, "lower", "share")
    lanes = [
        {"kind": LANES, "task": one["host"], "iteration": one["iteration"]}
        | {"begin": one["begin"] - begin, "seconds": one["end"] - one["begin"]}
        | {"chunks": one["chunks"]}
        for one in notes
        if one["what"] == "solve"
    ]
    return Report("chicle", claims, [run, *of_tasks, *lanes], environment, (LANES,), idle)


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
