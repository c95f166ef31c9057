"""What a user sees of Dymem: MemoryMonitor, `trepak top`, timelines, warnings, errors."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from rich.console import Console

import trepak.callbacks
from trepak.scripts import top, trace
from trepak.tf_plugins.callbacks import memory_drawings
from trepak.tf_plugins.callbacks.memory_figures import MemoryFigures, Tally, format_bytes

WORKER = Path(__file__).parent.parent / "workers" / "memory_monitor.py"
MIB = 1 << 20


class Told:
    """What a process with a Dymem tells: of each case, and on its streams."""

    def __init__(self, folder: Path, options: dict[str, Any], *cases: str) -> None:
        self.folder = folder
        command = [sys.executable, str(WORKER), json.dumps(options), str(self.folder), *cases]
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "XDG_RUNTIME_DIR": str(self.folder)}
        environment = {**os.environ, "TF_NUM_INTRAOP_THREADS": "1", **quiet}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        self.output, self.errors = done.stdout, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.cases = {case["case"]: case for case in lines}


@pytest.fixture(scope="module")
def swapping(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("swapping")
    return Told(folder, {"pool": "64MiB", "beyond": "1GiB"}, "monitored", "left_alone")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("short")
    return Told(folder, {"pool": "48MiB", "beyond": "1GiB"}, "unseen", "tiny", "no_room")


def test_the_monitor_shows_what_was_swapped(swapping: Told) -> None:
    told = swapping.cases["monitored"]
    figures = told["figures"]
    assert figures["steps"] == 16 and told["why"] == ""
    assert figures["out_bytes"] == figures["in_bytes"] > MIB
    assert MIB < figures["peak_live_bytes"] <= figures["peak_occupied_bytes"] < 64 * MIB
    assert figures["beyond_peak_bytes"] >= figures["out_bytes"] / 2
    assert figures["copy_seconds"] > 0 and figures["waited_seconds"] >= 0
    assert 0 <= figures["mean_fragmentation"] <= figures["worst_fragmentation"] <= 1
    output = swapping.output
    assert output.count("epoch 1: at most ") == output.count("epoch 2: at most ") == 1
    assert "tensors left, 0 stayed after all, " in output and "came back: all did" in output
    assert " layers, 13 tensors swapped" in output and "Nothing was swapped" not in output
    assert output.count("┤") == 8 and "█ live ░ gaps" in output


def test_the_curve_is_of_one_step(swapping: Told) -> None:
    told = swapping.cases["monitored"]
    times, live, occupied = zip(*told["curve"], strict=True)
    assert times[0] == 0 and list(times) == sorted(times)
    assert 100 < len(times) <= 1024
    assert all(one <= other for one, other in zip(live, occupied, strict=True))
    # It rises in the forward pass and falls in the backward pass: neither end is the highest.
    assert max(live) > 2 * max(live[0], live[-1])
    assert max(live) <= told["figures"]["peak_live_bytes"]
    picture = (swapping.folder / "pictures" / "memory.png").read_bytes()
    assert picture.startswith(b"\x89PNG")


def test_top_shows_the_figures_while_it_runs(swapping: Told) -> None:
    told = swapping.cases["monitored"]
    assert "live and" in told["shown"] and "out and" in told["shown"]
    assert told["after"] == 0, "the job's file goes with it"


def test_top_passes_over_what_is_no_memory(tmp_path: Path) -> None:
    figures = dataclasses.asdict(MemoryFigures(2, *[1.0] * 10))
    job = {"pid": os.getpid(), "command": "train.py", "steps": 2, "rank": 1, "memory": figures}
    (tmp_path / "1.memory.json").write_text(json.dumps(job))
    for number, wrong in enumerate(({}, [], {**figures, "in_bytes": "x"}), start=2):
        (tmp_path / f"{number}.memory.json").write_text(json.dumps(job | {"memory": wrong}))
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top.sinks, "status_folder", lambda: tmp_path)
        top.show(None, once=True, console=Console(file=stream, width=200))
    assert stream.getvalue().splitlines() == [
        "train.py: 2 steps, memory of rank 1",
        MemoryFigures(2, *[1.0] * 10).line(),
    ]


def test_no_change_of_keras_hides_another(swapping: Told) -> None:
    assert swapping.cases["monitored"]["hidden"] == []


def test_the_timeline_shows_copies_and_the_pool(swapping: Told, tmp_path: Path) -> None:
    trace.merge(swapping.folder, tmp_path / "merged.json")
    events = json.loads((tmp_path / "merged.json").read_text())["traceEvents"]
    lanes = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    of_lane = {
        name: [e for e in events if e["ph"] == "X" and e["tid"] == lanes[name]]
        for name in ("copies out", "copies in")
    }
    assert len(of_lane["copies out"]) == len(of_lane["copies in"]) == 13 * 16
    for copies in of_lane.values():
        assert all("trepak" not in e["name"] and e["args"]["bytes"] > 0 for e in copies)
        assert len({e["name"] for e in copies}) == 13
    counted = {e["name"] for e in events if e["ph"] == "C"}
    assert counted == {"Dymem: live bytes", "Dymem: occupied bytes"}
    most = max(e["args"]["value"] for e in events if e["name"] == "Dymem: live bytes")
    assert most > swapping.cases["monitored"]["figures"]["peak_live_bytes"] / 2


def test_what_is_left_alone_is_said_once(swapping: Told) -> None:
    assert swapping.errors.count("trepak: Dymem leaves ") == 1
    assert "nodes in loops and branches of the graph" in swapping.errors


def test_what_dymem_cannot_see_is_said_once(short: Told) -> None:
    told = short.cases["unseen"]
    eager, xla = told["warnings"]
    assert "no tf.function around it" in eager and "jit_compile=True" in xla
    assert told["why"].startswith("jit_compile=True has XLA compile the step")
    assert told["figures"]["out_bytes"] == 0
    assert short.output.count("Nothing was swapped: jit_compile=True") == 2


def test_a_step_without_feature_maps_is_told(short: Told) -> None:
    assert short.cases["tiny"]["why"].startswith("nothing in the step is a feature map")
    assert short.output.count(": 0 layers, 0 tensors swapped") == 1


def test_a_step_without_room_tells_what_lies_in_the_pool(short: Told) -> None:
    told = short.cases["no_room"]
    of_fit, of_loop = told["said"]
    assert told["finite"]
    assert "bytes, finds no room in Dymem's pool of 50331648 bytes" in of_fit
    for part in ("The pool of 48.0 MiB holds", "largest blocks:", "gaps:", "beta", "outside"):
        assert part in of_fit
    assert "OOM when allocating tensor with shape" in of_fit
    assert "OOM when allocating tensor with shape" in of_loop
    # On the error stream, of either step, once.
    assert short.errors.count("finds no room in Dymem's pool") == 2
    assert short.errors.count("largest blocks:") == 2


def test_without_swaps_the_monitor_says_why(tmp_path: Path) -> None:
    told = Told(tmp_path, {"pool": "64MiB", "beyond": "1GiB", "policy": "none"}, "plain")
    assert told.cases["plain"]["why"] == 'policy="none" swaps nothing.'
    assert 'Nothing was swapped: policy="none" swaps nothing.' in told.output


def test_without_a_dymem_the_monitor_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    monitor = trepak.callbacks.MemoryMonitor()
    model.fit(np.zeros((4, 3)), np.zeros((4, 1)), verbose=0, callbacks=[monitor])
    assert monitor.figures is None and monitor.curve == []
    assert "this process has no Dymem" in monitor.why_nothing
    assert capfd.readouterr().out.startswith("Nothing was swapped: this process has no Dymem")


def statistics(
    graphs: list[dict[str, Any]] | None = None, offloaded: int = 0, failure: str = ""
) -> dict[str, Any]:
    pool = {"allocations": 0, "peak_live_bytes": 0, "peak_occupied_bytes": 0, "limit_bytes": 100}
    counters = ("offloaded_tensors", "kept_tensors", "cancelled_offloads", "fetched_tensors")
    swaps = dict.fromkeys(counters, 0)
    return {
        "policy": "dymem",
        "pool": {**pool, "mean_fragmentation": 0.0, "worst_fragmentation": 0.0},
        "swaps": {**swaps, "offloaded_tensors": offloaded},
        "graphs": graphs or [],
        "first_failure": failure,
    }


def graph(layers: int, swapped: int, left_alone: str = "") -> list[dict[str, Any]]:
    told = {"name": "g", "layers": layers, "swapped_tensors": swapped, "left_alone": left_alone}
    return [told]


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (statistics(graph(9, 3), offloaded=5), ""),
        (statistics(), "saw no graph of a training step"),
        (statistics(graph(0, 0)), "nothing in the step is a feature map"),
        (statistics(graph(0, 0, "7 nodes in loops")), "left 7 nodes in loops of the step alone"),
        (statistics(graph(9, 0)), 'policy="dymem" finds no tensor to swap'),
        (statistics(graph(9, 3), failure="the disk is full"), "the disk is full"),
        (statistics(graph(9, 3)), "needed again before its turn"),
        (statistics() | {"policy": "none"}, 'policy="none"'),
    ],
)
def test_why_nothing_was_swapped(now: dict[str, Any], why: str) -> None:
    tally = Tally(statistics())
    tally.add(now)
    assert why in tally.why_nothing() and bool(why) == bool(tally.why_nothing())


def test_a_tally_weighs_and_keeps_peaks() -> None:
    tally = Tally(statistics())
    for allocations, peak, mean in ((10, 70, 0.5), (40, 50, 0.1)):
        now = statistics()
        now["pool"] |= {"allocations": allocations, "peak_live_bytes": peak}
        now["pool"] |= {"mean_fragmentation": mean, "worst_fragmentation": 2 * mean}
        names = ("offloaded_bytes", "fetched_bytes", "offload_busy_seconds", "fetch_busy_seconds")
        now["swaps"] |= dict.fromkeys(names, 4.0) | {"computation_waited_seconds": 2.0}
        tally.add(now | {"beyond": {"peak_bytes": 5}})
    tally._begin["swaps"].update(dict.fromkeys(names, 0.0), computation_waited_seconds=0.0)
    figures = tally.figures(steps=4)
    assert figures.peak_live_bytes == 70 and figures.out_bytes == 1.0
    assert figures.mean_fragmentation == pytest.approx((10 * 0.5 + 30 * 0.1) / 40)
    assert figures.worst_fragmentation == 1.0
    assert figures.copy_seconds == 2.0 and figures.hidden == 0.75


def test_a_curve_as_text() -> None:
    curve = [(0.0, 4 * MIB, 4 * MIB), (0.5, 1 * MIB, 2 * MIB), (1.0, 0.0, 0.0)]
    assert memory_drawings.text_curve(curve, width=8, height=4).splitlines() == [
        "4.0 MiB ┤█████",
        "        ┤█████",
        "        ┤█████░░░",
        "      0 ┤████████",
        "        └────────",
        "         0    1 s   █ live ░ gaps",
    ]
    assert "0" in memory_drawings.text_curve([(0.0, 0.0, 0.0)]), "an empty pool"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5000 * 2**40, "5,000.0 TiB")],
)
def test_bytes_as_text(size: float, text: str) -> None:
    assert format_bytes(size) == text
