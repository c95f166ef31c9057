"""What `trepak bench chicle` makes of the notes of elastic jobs' ranks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from matplotlib.figure import Figure

from trepak.scripts.bench import bench_chicle, chicle_elastic, chicle_elastic_lab
from trepak.scripts.bench.chicle_elastic_lab import Iteration

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


def iteration(number: int, begin: float, end: float, hosts: list[str]) -> list[dict[str, Any]]:
    about = {"iteration": number, "tasks": len(hosts), "chunks": 7}
    return [
        one
        for host in hosts
        for one in (
            note("iteration", host, begin, end),
            note("solve", host, begin + 0.01, end - 0.1, **about),
        )
    ]


def test_iterations_and_pauses_of_a_job_in_the_lab() -> None:
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
    projected = [Iteration(1.0, 1.0, 2), Iteration(1.0, 2.0, 2), Iteration(2.0, 4.0, 1)]
    report = chicle_elastic_lab._summarized(notes, ran, projected, {}, 0.5)
    claims = {name: claim.value for name, claim in report.claims.items()}
    assert claims == pytest.approx(
        {
            "chicle.lab_iteration_time_off_projection": 0.1,
            "chicle.lab_iterations_off_projection": 0.0,
            "chicle.lab_time_off_projection": 0.05,
        }
    )
    json.loads(report.to_json())
    figure = Figure()
    bench_chicle.draw(report, figure)
    assert len(figure.axes) == 2
