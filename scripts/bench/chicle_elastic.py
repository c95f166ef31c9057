"""How long a job stands still when a rank joins: with chunks that move, and with Horovod alone."""

from __future__ import annotations

import dataclasses
import functools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trepak.models.linear import higgs_shaped
from trepak.scripts.bench.chicle_elastic_job import CHICLE, PLAIN, ElasticJob, Note, Spec
from trepak.scripts.report import Claims, Report

PAUSES = "seconds of a job's pause when a rank joins, one by one"
MEDIANS = "seconds of a job's pause when a rank joins, medians"
_STAYS, _COMES = (
    "localhost",
    "127.0.0.1",
)  # names of this machine: Horovod would reach others by ssh
_SAMPLES, _QUICK_SAMPLES = 200_000, 20_000
_EVENTS, _QUICK_EVENTS = 5, 1
_SETTLED = 8  # iterations after which it is known how long one takes
_PAUSE = 0.05  # of an iteration, so that jobs don't use all of the CPU


def with_pauses(report: Report, is_quick: bool, say: Callable[[str], None]) -> Report:
    """Returns a report with the pauses, and their claim.

    Args:
        report: of the bench.
        is_quick: measures one join of each way, with less samples.
        say: is told what is under way.
    """
    events = _QUICK_EVENTS if is_quick else _EVENTS
    rows = []
    for way in (CHICLE, PLAIN):
        say(f"{way}: a rank joins {events} times")
        rows += [{"kind": PAUSES, "way": way, **row} for row in pauses(way, events, is_quick)]
    medians = [_median(way, [row for row in rows if row["way"] == way]) for way in (CHICLE, PLAIN)]
    ours, plain = (row["after_reset"] for row in medians)
    claims = Claims(report.claims)
    claims.add("chicle.scale_event_pause", ours, plain, "lower", "s", emulated=False)
    return dataclasses.replace(report, claims=claims, rows=[*report.rows, *rows, *medians])


def pauses(way: str, events: int, is_quick: bool = False) -> list[dict[str, float]]:
    """Returns the parts of each join's pause.

    Args:
        way: `CHICLE` or `PLAIN`.
        events: how many joins.
        is_quick: whether there are less samples.

    Raises:
        JobError: the job has failed, or takes too long.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x, y = higgs_shaped(_QUICK_SAMPLES if is_quick else _SAMPLES)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y.astype(np.float64))
        options = ["-np", "1", "--min-np", "1", "--max-np", "2", "--network-interface", "lo"]
        launcher = ["elastic", *options, "--hosts", str(folder / "hosts")]
        found = []
        with ElasticJob(Spec(way, folder, _PAUSE), launcher, [_STAYS]) as job:
            for _ in range(events):
                known = {note["pid"] for note in _of(_COMES, job.notes())}
                _wait_for_one(job)
                listed = job.use([_STAYS, _COMES])
                notes = job.wait(functools.partial(_has_come, known=known), "a join")
                found.append(_parts(notes, known, listed))
                job.use([_STAYS])
        return found


def _of(host: str, notes: Sequence[Note], what: str = "") -> list[Note]:
    return [one for one in notes if one["host"] == host and what in ("", one["what"])]


def _wait_for_one(job: ElasticJob) -> None:
    """Waits until the rank that stays trains alone."""

    def is_alone(notes: list[Note]) -> bool:
        last = max((one["end"] for one in _of(_COMES, notes)), default=0.0)
        alone = [one for one in _of(_STAYS, notes, "iteration") if one["begin"] > last + 1.0]
        return len(alone) >= _SETTLED

    job.wait(is_alone, "iterations of one rank")


def _has_come(notes: Sequence[Note], known: set[int]) -> bool:
    new = [one for one in _of(_COMES, notes, "iteration") if one["pid"] not in known]
    return len(new) > _SETTLED


def _parts(notes: Sequence[Note], known: set[int], listed: float) -> dict[str, float]:
    """Returns what a join's pause was made of, in seconds."""
    stays = _of(_STAYS, notes)
    new = [one for one in _of(_COMES, notes) if one["pid"] not in known]
    begun = next(one for one in new if one["what"] == "initialized")
    first = next(one for one in new if one["what"] == "iteration")
    interrupted = max(
        one["end"] for one in _of(_STAYS, notes, "round") if one["end"] < first["end"]
    )
    again = next(one["begin"] for one in _of(_STAYS, notes, "state") if one["begin"] > interrupted)
    since = [one for one in [*stays, *new] if one["begin"] >= again]
    firsts = [_of(host, since, "iteration")[0] for host in (_STAYS, _COMES)]
    later = [one for one in since if one["what"] == "iteration" and one not in firsts]
    usual = statistics.median(one["end"] - one["begin"] for one in later)
    after_reset = max(one["end"] for one in firsts) - again - usual
    before = [one for one in since if one["end"] <= max(first["begin"] for first in firsts)]
    state, data = (
        max(sum(map(_seconds, _of(host, before, what))) for host in (_STAYS, _COMES))
        for what in ("state", "data")
    )
    is_within = first["begin"] > again and any(
        one["begin"] < _of(_COMES, since, "data")[0]["begin"] < one["end"]
        for one in _of(_COMES, since, "state")
    )  # Chicle moves chunks in the roll call
    return {
        "notice": interrupted - listed,
        "reset": again - interrupted,
        "new_process": begun["imported"] - begun["begin"],
        "after_reset": after_reset,
        "state": state - (data if is_within else 0.0),
        "data": data,
        "the_rest": after_reset - state - (0.0 if is_within else data),
        "an_iteration": usual,
    }


def _seconds(note: Note) -> float:
    return float(note["end"] - note["begin"])


def _median(way: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = [name for name in rows[0] if name not in ("kind", "way")]
    medians = {name: statistics.median(row[name] for row in rows) for name in names}
    return {"kind": MEDIANS, "way": way, "joins": len(rows), **medians}
