"""What `trepak bench chicle` makes of the notes of elastic jobs' ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from trepak.scripts.bench import (
    bench_chicle,
    chicle_elastic,
    chicle_elastic_lab,
    chicle_elastic_projection,
)
from trepak.scripts.bench.chicle_elastic_job import NETWORK, Spec
from trepak.scripts.bench.chicle_elastic_lab import Found
from trepak.scripts.bench.chicle_elastic_projection import Done
from trepak.tf_plugins.chicle.policy import TasksLeaving
from trepak.tf_plugins.chicle.virtual import Change

STAYS, COMES = "localhost", "127.0.0.1"


def note(what: str, host: str, begin: float, end: float, **about: Any) -> dict[str, Any]:
    return {"what": what, "host": host, "pid": f"of {host}", "begin": begin, "end": end, **about}


def test_the_parts_of_a_pause() -> None:
    """Listed at 9, interrupted at 10, all there at 15; then state takes 0.3 s, and data 0.2 s."""
    notes = [
        note("initialized", COMES, 9.5, 14.9, imported=14.5),
        note("round", STAYS, 0, 10),
        note("iteration", STAYS, 9.8, 10),
        *(note("state", host, 15, 15.5) for host in (STAYS, COMES)),
        *(note("data", host, 15.3, 15.5) for host in (STAYS, COMES)),
        *(note("iteration", host, 15.6, 15.9) for host in (STAYS, COMES)),
        *(note("iteration", h, 16 + n, 16.1 + n) for n in range(9) for h in (STAYS, COMES)),
    ]
    parts = chicle_elastic._parts(notes, known=set(), listed=9.0)
    assert parts == pytest.approx(
        {"notice": 1.0, "reset": 5.0, "new_process": 5.0, "after_reset": 0.8, "state": 0.3}
        | {"data": 0.2, "the_rest": 0.3, "an_iteration": 0.1}
    )


def iteration(
    number: int, begin: float, end: float, hosts: list[str], steps: int | None = None
) -> list[dict[str, Any]]:
    about = {"iteration": number, "tasks": len(hosts), "chunks": 7}
    about |= {} if steps is None else {"steps": steps}
    return [
        one
        for host in hosts
        for one in (
            note("iteration", host, begin, end),
            note("solve", host, begin + 0.01, end - 0.1, **about),
        )
    ]


def test_iterations_and_pauses_of_jobs_in_the_lab() -> None:
    notes = [
        *iteration(0, 1, 2, ["w0", "w1"]),
        *iteration(1, 2, 3, ["w0", "w1"]),
        note("round", "w0", 0.5, 3),
        *iteration(2, 8, 10.2, ["w0"]),
        *iteration(3, 10.2, 12.4, ["w0", "w1"])[:2],  # has not ended on all
    ]
    ran = chicle_elastic_lab._iterations(notes)
    assert [one.tasks for one in ran] == [2, 2, 1]
    assert [one.seconds for one in ran] == pytest.approx([1, 1, 2.2])
    assert ran[-1].until == pytest.approx(4.2)
    assert chicle_elastic_lab._pauses(notes) == pytest.approx([8.01 - 2.9])
    projected = [Done(1.0, 1.0, 2), Done(1.0, 2.0, 2), Done(2.0, 4.0, 1)]
    of_steps = [
        *iteration(0, 1, 3, ["w0", "w1"], steps=4),
        *iteration(1, 3, 6, ["w0", "w1"], steps=5),  # 0.6 s a step: more of them than of 0.5 s
    ]
    shorter = [Done(2.0, 2.0, 2, 4), Done(1.0, 3.0, 2, 2)]
    found = [Found("CoCoA", notes, projected), Found("local SGD", of_steps, shorter)]
    report = chicle_elastic_lab._summarized(found, {}, 0.5)
    claims = {name: claim.value for name, claim in report.claims.items()}
    assert claims == pytest.approx(
        {
            "chicle.lab_step_time_off_projection.cocoa": 0.1,
            "chicle.lab_steps_off_projection.cocoa": 0.0,
            "chicle.lab_time_off_projection.cocoa": 0.05,
            "chicle.lab_step_time_off_projection.local_sgd": 0.2,
            "chicle.lab_steps_off_projection.local_sgd": 3 / 6,
            "chicle.lab_time_off_projection.local_sgd": 2 / 3,
        }
    )
    json.loads(report.to_json())
    figure = Figure()
    bench_chicle.draw(report, figure)
    assert [axes.get_title() for axes in figure.axes] == ["CoCoA", "local SGD", "", ""]


def test_a_pass_of_local_sgd_in_virtual_time_when_a_host_leaves(tmp_path: Path) -> None:
    """Two take 2 of the 7 steps that 200 samples are to them, so 57; one takes 143, in 9 steps."""
    for name in "xy":
        np.save(tmp_path / f"{name}.npy", np.zeros((200, 1), np.float32))
    spec = Spec(
        *(NETWORK, tmp_path), sample_seconds=0.01, chunk_bytes=1100, batch=16, steps=2, epochs=2
    )
    done = chicle_elastic_projection.local_sgd(spec, 2, [Change(0.1, TasksLeaving((1,)))])
    assert [one.tasks for one in done] == [2] + [1] * (len(done) - 1)
    assert done[0].seconds == pytest.approx(0.285, rel=0.1)  # chunks are whole: parts may differ
    assert [one.steps for one in done] == [2] * 5 + [1] + [2] * 6 + [1]  # 2 of two; 9, then 13
    assert done[-1].until == pytest.approx(done[0].seconds + 1.43 + 2.0)
