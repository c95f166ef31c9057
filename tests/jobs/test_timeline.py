"""Timelines and `trepak trace merge`: what each rank did, on one clock."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import finish, horovodrun, start

from trepak.ops.timeline import parse_steps
from trepak.scripts import trace

TREPAK = str(Path(sys.executable).parent / "trepak")
STEPS = 30
# A whole script of a user, who sets one variable to get timelines.
SCRIPT = f"""
import sys, keras, numpy as np, trepak.keras as hvd
from trepak.models import zoo
hvd.init()
model = zoo.build("alexnet", emulate="k40", shrink=1000)
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
x = np.zeros((4 * {STEPS}, 1), "float32")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if len(sys.argv) > 1:
    callbacks.append(hvd.callbacks.TimelineCallback(sys.argv[1], steps="10:20"))
model.fit(x, x, batch_size=4, verbose=0, validation_data=(x[:4], x[:4]), callbacks=callbacks)
"""


def run_script(out: Path, *arguments: str, **env: str) -> None:
    command = [*horovodrun(2, gloo=False), sys.executable, "-c", SCRIPT, *arguments]
    code, output = finish(start(command, out, env), 100)
    assert code == 0, output[-3000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The timelines of a job of two ranks, one of them delayed."""
    out = tmp_path_factory.mktemp("timeline")
    run_script(out, TREPAK_TIMELINE=str(out), TREPAK_DELAY="round-robin:30ms")
    return out


def test_every_rank_writes_its_steps(folder: Path) -> None:
    for rank in range(2):
        written = json.loads((folder / f"rank-{rank}.json").read_text())
        assert all(event["pid"] == rank for event in written)
        one = trace.read(folder / f"rank-{rank}.json")
        assert one.about["rank"] == rank and one.about["size"] == 2
        computes, ends = one.spans("compute"), one.spans("synchronize")
        assert sorted(computes) == sorted(ends) == list(range(STEPS))
        for step in range(1, STEPS):
            assert computes[step]["ts"] == pytest.approx(trace._end(ends[step - 1]), abs=0.01)
        layers = {event["name"] for event in one.events if event.get("tid") == 1}
        assert {"conv_1", "dense_3", "conv_1 backward", "dense_3 backward"} <= layers


def test_merged_ranks_show_who_waited(folder: Path) -> None:
    done = subprocess.run([TREPAK, "trace", "merge", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"Merged 2 ranks, {STEPS} steps" in done.stdout
    events = json.loads((folder / "merged.json").read_text())["traceEvents"]
    waits = [e for e in events if e.get("tid") == 3 and e["ph"] == "X" and e["dur"] > 15_000]
    by_step = {e["args"]["step"]: e for e in waits if e["args"]["step"] > 2}
    assert len(by_step) > 0.5 * (STEPS - 3)
    right = [e["name"] == f"waits for rank {step % 2}" for step, e in by_step.items()]
    assert sum(right) > 0.7 * len(right), "step i of rank i modulo 2 is delayed"


def test_window_keeps_files_small(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "window.json"
    command = [TREPAK, "trace", "merge", str(folder), "--steps", "10:12", "-o", str(output)]
    assert subprocess.run(command).returncode == 0
    events = json.loads(output.read_text())["traceEvents"]
    kept = {e["args"]["step"] for e in events if e["ph"] == "X" and e["name"] == "synchronize"}
    assert {10, 11} <= kept <= {9, 10, 11, 12}


def test_callback_writes_a_window_and_epochs(tmp_path: Path) -> None:
    run_script(tmp_path, str(tmp_path))
    one = trace.read(tmp_path / "rank-1.json")
    assert sorted(one.spans("compute")) == list(range(10, 20))


# Rank 2 takes long for each step, and RNA goes on without it.
RNA_SCRIPT = """
import json, os, sys, time, keras, tensorflow as tf, trepak, trepak.keras as hvd
hvd.init()
slow = hvd.rank() == 2
optimizer = hvd.DistributedOptimizer(
    keras.optimizers.SGD(0.1), sync=trepak.RNA(choices=3, staleness=1000)
)
variable = keras.Variable([0.0])
optimizer.build([variable])
step = tf.function(lambda: optimizer.apply([tf.ones(1)], [variable]))
step()  # traced on all ranks before any of them goes on
optimizer.flush()
for _ in range(10 if slow else 40):
    time.sleep(0.08 if slow else 0.02)
    step()
optimizer.flush()
counters = optimizer.statistics()
with open(f"{os.environ['OUT']}/counters-{hvd.rank()}", "w") as file:
    json.dump(counters, file)
"""


def inside(span: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(other["ts"] <= span["ts"] and trace._end(span) <= trace._end(other))


def overlaps(span: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(span["ts"] < trace._end(other) and other["ts"] < trace._end(span))


def test_rounds_go_on_while_a_rank_computes(tmp_path: Path) -> None:
    """Figure 5.1 of the thesis: computation and communication of each rank, side by side."""
    command = [*horovodrun(3, gloo=True), sys.executable, "-c", RNA_SCRIPT]
    code, output = finish(start(command, tmp_path, {"TREPAK_TIMELINE": str(tmp_path)}), 200)
    assert code == 0, output[-3000:]
    done = subprocess.run([TREPAK, "trace", "merge", str(tmp_path)], capture_output=True, text=True)
    assert "Merged 3 ranks, 41 steps" in done.stdout, done.stderr
    events = json.loads((tmp_path / "merged.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    names = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert names == {(rank, name) for rank in range(3) for name in ("steps", "rounds")}
    assert not [s for s in spans if s["name"] == "synchronize" or "waits for" in s["name"]]

    contributors: dict[int, int] = {}
    told: list[list[int]] = []
    for rank in range(3):
        counters = json.loads((tmp_path / f"counters-{rank}").read_text())
        rounds = [s for s in spans if s["pid"] == rank and s["tid"] == 4]
        assert [r["args"]["round"] for r in rounds] == list(range(counters["rounds"]))
        assert all(
            trace._end(one) <= after["ts"] + 0.01
            for one, after in zip(rounds, rounds[1:], strict=False)
        )
        null = [r for r in rounds if r["name"].endswith(": null gradient")]
        brought = [r for r in rounds if r not in null]
        assert all(r["name"].startswith(f"round {r['args']['round']}: ") for r in rounds)
        assert len(brought) == counters["contributed"]
        assert sum(r["args"]["gradients"] for r in brought) == (11 if rank == 2 else 41)
        assert sum(r["args"]["staleness"] for r in brought) == counters["staleness"]
        assert all(r["args"]["gradients"] == 0 and "staleness" not in r["args"] for r in null)
        for one in brought:
            contributors[one["args"]["round"]] = contributors.get(one["args"]["round"], 0) + 1
        told.append([r["args"]["contributors"] for r in rounds])

        computes = [s for s in spans if s["pid"] == rank and s["name"] == "compute"]
        handed = [s for s in spans if s["pid"] == rank and s["name"] == "hand over"]
        assert len(handed) == len(computes) == (11 if rank == 2 else 41)
        assert any(overlaps(r, c) for r in rounds for c in computes), "rounds stop nobody"
        if rank == 2:
            assert any(inside(r, c) for r in null for c in computes), "rounds go on without it"
            handing, computing = (
                statistics.median(e["dur"] for e in some) for some in (handed, computes)
            )
            assert handing < computing / 2, "it waits for nobody"
    assert told[0] == told[1] == told[2] == [contributors.get(k, 0) for k in range(len(told[0]))]


# Rank 1 takes twice as long for a step.
ELASTIC_BSP_SCRIPT = """
import os, time, keras, tensorflow as tf, trepak, trepak.keras as hvd
hvd.init()
optimizer = hvd.DistributedOptimizer(
    keras.optimizers.SGD(0.1), sync=trepak.ElasticBSP(lookahead=4)
)
variable = keras.Variable([0.0])
optimizer.build([variable])
step = tf.function(lambda: optimizer.apply([tf.ones(1)], [variable]))
for _ in range(40 // (1 + hvd.rank())):
    time.sleep(0.03 * (1 + hvd.rank()))
    step()
optimizer.flush()
"""


def test_barriers_are_shown_on_all_ranks(tmp_path: Path) -> None:
    command = [*horovodrun(2, gloo=True), sys.executable, "-c", ELASTIC_BSP_SCRIPT]
    code, output = finish(start(command, tmp_path, {"TREPAK_TIMELINE": str(tmp_path)}), 200)
    assert code == 0, output[-3000:]
    by_rank = []
    for rank in range(2):
        spans = [e for e in trace.read(tmp_path / f"rank-{rank}.json").events if e["ph"] == "X"]
        waits = [e for e in spans if e["tid"] == 4]
        barriers = {e["name"]: e for e in waits if "round" in e["args"]}
        supersteps = [e for e in waits if "superstep" in e["args"]]
        assert [e["name"] for e in supersteps] == [
            f"superstep {e['args']['superstep']}" for e in supersteps
        ]
        # One ends where the wait at its barrier begins. (The first one, a step, may have ended
        # before this rank has heard of it.)
        ends = [trace._end(e) for e in supersteps]
        later = [e["ts"] for e in barriers.values() if e["args"]["round"] > 2]
        assert all(min(abs(begin - end) for end in ends) < 1_000 for begin in later)
        others = [
            e["name"] for e in waits if "round" not in e["args"] and "superstep" not in e["args"]
        ]
        assert others[-1] == "wait for all to flush"
        assert set(others[:-1]) <= {"wait until all have fetched"}
        assert all(name == f"barrier {e['args']['round']}" for name, e in barriers.items())
        steps = [e["args"]["steps"] for e in barriers.values()]
        assert steps == sorted(set(steps)) and steps[-1] <= 40 // (1 + rank)
        by_rank.append(barriers)
    shared = [(by_rank[0][n], by_rank[1][n]) for n in by_rank[0].keys() & by_rank[1].keys()]
    assert len(shared) >= 20 // 4, by_rank  # of the one with fewer steps, all within the lookahead
    for both in shared:
        assert min(map(trace._end, both)) > max(e["ts"] for e in both) - 10, "none leaves before"
    # One is to take two steps where the other takes one. How often they come to that depends on how
    # even the machine's times are; only with no plan at all would both take as many all the time.
    assert any(one["args"]["steps"] != other["args"]["steps"] for one, other in shared), shared


def made(rank: int, clock: str, shift: float) -> trace.RankTrace:
    """A trace of three steps of 10 ms on a clock that is `shift` behind."""
    events = []
    for step in range(3):
        ready = 1e6 + 10_000 * step + (4_000 if rank == 1 else 1_000) - shift
        end = 1e6 + 10_000 * step + 9_000 - shift
        for name, begin, until in (
            ("compute", ready - 1_000, ready),
            ("synchronize", ready, end + 10 * rank),
        ):
            events.append(
                {
                    "ph": "X",
                    "name": name,
                    "ts": begin,
                    "dur": until - begin,
                    "pid": rank,
                    "tid": 0,
                    "args": {"step": step},
                }
            )
    return trace.RankTrace(rank, {"rank": rank, "clock": clock}, events)


def test_clocks_of_other_machines_are_aligned() -> None:
    traces = [made(0, "a", 0.0), made(1, "b", 5e6), made(2, "a", 0.0)]
    found = trace.offsets(traces)
    assert found == {0: 0.0, 1: pytest.approx(5e6, abs=50), 2: 0.0}
    waits = trace.waits(traces)
    assert {(w["pid"], w["name"]) for w in waits} == {
        (0, "waits for rank 1"),
        (2, "waits for rank 1"),
    }
    assert all(w["dur"] == pytest.approx(3_000, abs=50) for w in waits)


def at_own_pace(rank: int, clock: str, shift: float, group: int = 0) -> trace.RankTrace:
    """A trace of two rounds that end 3 and 8 ms after the first step began, on such a clock."""
    about = {"rank": rank, "clock": clock, "started": 7.0, "monotonic": 1.0 - shift / 1e6}
    spans: list[tuple[str, int, float, dict[str, int]]] = [
        ("compute", 0, 1_000, {"step": 0}),
        ("hand over", 0, 1_000 + 2_000 * rank, {"step": 0}),
    ]
    spans += [
        (f"round {k}", 4, end, {"round": k, "group": group, "run": 0})
        for k, end in enumerate((3_000, 8_000))
    ]
    events = [
        {"ph": "X", "name": name, "ts": end - 500 - shift, "dur": 500, "tid": tid, "args": args}
        for name, tid, end, args in spans
    ]
    return trace.RankTrace(rank, about, events)


def test_ranks_at_their_own_pace_are_aligned_by_rounds() -> None:
    traces = [
        at_own_pace(0, "a", 0.0),
        at_own_pace(1, "b", 5e6),
        at_own_pace(2, "c", 4e6, group=2),  # has no round with the others
    ]
    assert trace.offsets(traces) == {0: 0.0, 1: pytest.approx(5e6), 2: pytest.approx(4e6)}
    assert trace.waits(traces) == []


def test_clocks_without_a_common_step_are_refused() -> None:
    other = trace.RankTrace(1, {"rank": 1, "clock": "b"}, [])
    with pytest.raises(ValueError, match="ranks 0 and 1 ran on different machines"):
        trace.offsets([made(0, "a", 0.0), other])


def test_killed_processs_file_is_read(tmp_path: Path) -> None:
    head = '[\n{"ph":"M","name":"trepak","pid":0,"args":{"rank":0,"size":1,"clock":"a"}},\n'
    whole = '{"ph":"X","name":"compute","ts":1,"dur":1,"args":{"step":0},"pid":0,"tid":0},\n'
    file = tmp_path / "rank-0.json"
    file.write_text(head + whole + whole[:40])
    assert len(trace.read(file).events) == 2
    file.write_text(head + whole[:40] + "\n" + whole)
    with pytest.raises(ValueError, match="line 3"):
        trace.read(file)
    file.write_text("[]")
    with pytest.raises(ValueError, match="not a timeline of trepak"):
        trace.read(file)


@pytest.mark.parametrize(
    ("text", "steps"), [(":", (0, None)), ("5:", (5, None)), (":7", (0, 7)), ("2:3", (2, 3))]
)
def test_windows(text: str, steps: Any) -> None:
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["", "5", "7:5", "3:3", "a:b"])
def test_windows_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 10:20"):
        parse_steps(text)


def test_empty_folder_is_explained(tmp_path: Path) -> None:
    command = [TREPAK, "trace", "merge", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "holds no timelines" in done.stderr and "Traceback" not in done.stderr


def test_unusable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = "import trepak; trepak.init()"
    environment = {**os.environ, "TREPAK_TIMELINE": str(tmp_path / "file" / "x")}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0 and "NotADirectoryError" in done.stderr
    assert time.monotonic() - began < 60
