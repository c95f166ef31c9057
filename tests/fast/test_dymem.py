"""Dymem trains the same model bit for bit, in little memory; what is wrong is named."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trepak.tf_plugins.memory.sizes import bytes_of, memory_share

WORKER = Path(__file__).parent.parent / "workers" / "dymem_training.py"
BODIES = ("resnet", "inception", "densenet")
SAME = (*BODIES, "custom_loop", "control_flow", "another_model")
MIB = 1 << 20
CHECKED = {"beyond": "1GiB", "checksums": True, "always_swap": True}


def trained(
    options: dict[str, Any] | None, *cases: str, threads: int = 0
) -> dict[str, dict[str, Any]]:
    """Returns what each case tells, in a process of its own.

    threads: for kernels side by side; 0: as many as TensorFlow takes.
    """
    command = [sys.executable, str(WORKER), json.dumps(options), *cases]
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": str(threads),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [case["case"] for case in told] == list(cases)
    return {case["case"]: case for case in told}


@functools.cache
def plain() -> dict[str, dict[str, Any]]:
    return trained(None, *SAME)


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "dymem", "checksums": True},
        {"policy": "dymem", "placement": "first_fit", "file": True, "checksums": True},
        {"policy": "vdnn", "checksums": True},
        {"policy": "superneurons"},
        {"policy": "none"},
    ],
    ids=["dymem", "dymem-file", "vdnn", "superneurons", "none"],
)
def test_weights_are_those_of_plain_tensorflow(options: dict[str, Any], tmp_path: Path) -> None:
    is_file = options.get("file", False)
    rest: dict[str, Any] = {"always_swap": True}
    rest |= {key: value for key, value in options.items() if key != "file"}
    cases = SAME if "checksums" in options else BODIES
    told = trained(
        {"pool": "64MiB", "beyond": str(tmp_path) if is_file else "1GiB", **rest}, *cases
    )
    for case in cases:
        assert told[case]["weights"] == plain()[case]["weights"], case
    assert all(told[body]["steps"] >= 50 for body in BODIES)
    statistics = told[cases[-1]]["statistics"]
    swaps, pool = statistics["swaps"], statistics["pool"]
    assert pool["peak_occupied_bytes"] <= 64 * MIB and pool["failures"] == 0
    assert statistics["first_failure"] == ""
    assert swaps["offloaded_tensors"] == swaps["fetched_tensors"] - swaps["cancelled_offloads"]
    assert (swaps["fetched_tensors"] > 1000) == (options["policy"] != "none")
    assert statistics["beyond"]["used_bytes"] == 0
    for graph in statistics["graphs"]:
        # The backward pass waits for the forward pass; in vDNN each layer does for the one before.
        waits_each = options["policy"] == "vdnn" and graph["swapped_tensors"] > 0
        assert (graph["waiting_layers"] > 1) == waits_each
    if "control_flow" not in cases:
        assert not any(graph["left_alone"] for graph in statistics["graphs"])


def test_a_pool_in_which_plain_tensorflow_has_no_room() -> None:
    """The pool is a part of what lives at once without swaps.

    Neither the copies' speed decides, nor who runs when: of one thread, a layer that waits for
    memory leaves none to run anything else.
    """
    beyond = {"beyond": "1GiB"}
    none = trained({**beyond, "pool": "1GiB", "policy": "none"}, "deep")["deep"]
    assert none["weights"] == trained(None, "deep")["deep"]["weights"]
    pool = int(none["statistics"]["pool"]["peak_live_bytes"] * 0.6)
    for threads in (1, 0):
        options = {**beyond, "pool": pool, "checksums": True}
        told = trained(options, "deep", threads=threads)["deep"]
        assert told["weights"] == none["weights"], threads
        figures = told["statistics"]["pool"]
        # What is too small to be placed is never refused.
        assert figures["peak_occupied_bytes"] <= pool + figures["peak_small_bytes"]
        assert figures["peak_small_bytes"] < pool / 20 and figures["failures"] == 0


def test_biases_and_loops() -> None:
    """No node waits for one inside a loop, or between two that TensorFlow makes one."""
    cases = ("biased", "recurrent")
    told, right = trained({"pool": "64MiB", **CHECKED}, *cases), trained(None, *cases)
    for case in cases:
        assert told[case]["weights"] == right[case]["weights"], case
    graphs = told["recurrent"]["statistics"]["graphs"]
    assert all(graph["swapped_tensors"] > 0 for graph in graphs)


def test_layers_before_and_behind_loops() -> None:
    told = trained({"pool": "64MiB", **CHECKED}, "loops")["loops"]
    assert told["weights"] == trained(None, "loops")["loops"]["weights"]
    assert told["statistics"]["swaps"]["offloaded_tensors"] > 0


def test_eager_kernels_that_find_no_room_end_no_process() -> None:
    """oneDNN's convolutions do not look whether they got memory; the next op does."""
    made = "[tf.nn.conv2d(tf.ones([8, 96, 96, 8]), tf.ones([3, 3, 8, 8]), 1, 'SAME')"
    said = wrong(
        f"trepak.Dymem('40MiB', '1GiB')\nmade = {made} for _ in range(40)]\ntf.ones([1 << 22])"
    )
    assert "ResourceExhaustedError" in said


@pytest.mark.parametrize("options", [CHECKED, {"beyond": "1GiB"}], ids=["swaps", "stays"])
def test_branches_of_which_one_runs(options: dict[str, Any]) -> None:
    """What waits for a join of branches runs, whichever of them did."""
    told = trained({"pool": "64MiB", **options}, "branched")["branched"]
    assert told["weights"] == trained(None, "branched")["branched"]["weights"]
    assert told["statistics"]["swaps"]["offloaded_tensors"] > 0


def test_what_was_prefetched_leaves_again_at_a_shortage() -> None:
    told = trained({"pool": "64MiB", **CHECKED}, "eviction")["eviction"]
    assert told["came"] == 4 and told["right"] == [True] * 4
    statistics = told["statistics"]
    assert statistics["swaps"]["evicted_tensors"] == 3
    assert statistics["swaps"]["fetched_tensors"] == 4 + 3
    assert statistics["pool"]["failures"] == 0
    assert statistics["beyond"]["used_bytes"] == 0


def test_threads_that_evict_each_others_tensors() -> None:
    told = trained({"pool": "40MiB", **CHECKED}, "evictions")["evictions"]
    assert told["right"] == [True] * 3
    assert told["statistics"]["swaps"]["evicted_tensors"] > 0
    assert told["statistics"]["pool"]["failures"] == 0
    assert told["statistics"]["beyond"]["used_bytes"] == 0


def test_a_step_that_fits_stays_in_memory() -> None:
    told = trained({"pool": "64MiB", "beyond": "1GiB"}, "resnet")["resnet"]
    assert told["weights"] == plain()["resnet"]["weights"]
    statistics = told["statistics"]
    assert statistics["kept_steps"] == told["steps"] - 1  # what the first one needs is not known
    swapped = sum(graph["swapped_tensors"] for graph in statistics["graphs"])
    assert statistics["swaps"]["offloaded_tensors"] == swapped


def test_a_larger_batch_leaves_after_all() -> None:
    told = trained({"pool": "20MiB", "beyond": "1GiB", "checksums": True}, "grown")["grown"]
    assert told["weights"] == trained(None, "grown")["grown"]["weights"]
    statistics = told["statistics"]
    assert 0 < statistics["kept_steps"] < 15 + 6 + 15 - 6
    assert statistics["pool"]["peak_occupied_bytes"] <= 20 * MIB
    assert statistics["pool"]["failures"] == 0


def test_of_two_models_that_train_by_turns_the_one_that_fits_stays() -> None:
    told = trained({"pool": "30MiB", "beyond": "1GiB", "checksums": True}, "by_turns")["by_turns"]
    assert told["weights"] == trained(None, "by_turns")["by_turns"]["weights"]
    statistics = told["statistics"]
    assert statistics["kept_steps"] == 10 - 1
    small, large = (graph["swapped_tensors"] for graph in statistics["graphs"])
    assert statistics["swaps"]["offloaded_tensors"] == small + 10 * large


def test_a_function_that_returns_nothing() -> None:
    told = trained({"pool": "64MiB", **CHECKED}, "no_result")["no_result"]
    assert told["weights"] == trained(None, "no_result")["no_result"]["weights"]
    swapped = [graph["swapped_tensors"] for graph in told["statistics"]["graphs"]]
    assert len(swapped) == 2 and min(swapped) > 0
    assert told["statistics"]["swaps"]["fetched_tensors"] == 10 * sum(swapped)


def test_a_layer_that_fails_while_others_wait_for_their_turn() -> None:
    told = trained({"pool": "64MiB", **CHECKED}, "failing_layer")["failing_layer"]
    assert len(told["said"]) == 5
    assert all("of the left branch" in said for said in told["said"])
    assert told["losses"] == trained(None, "failing_layer")["failing_layer"]["losses"]
    assert told["statistics"]["beyond"]["used_bytes"] == 0


def test_any_thread_trains_in_the_pool() -> None:
    told = trained({"pool": "64MiB", "beyond": "1GiB"}, "another_thread")["another_thread"]
    assert told["weights"] == trained(None, "another_thread")["another_thread"]["weights"]
    assert [graph["swapped_tensors"] > 0 for graph in told["statistics"]["graphs"]] == [True] * 2


@pytest.mark.parametrize("policy", ["dymem", "none"])
def test_no_room_is_an_error_and_no_end(policy: str) -> None:
    told = trained({"pool": "48MiB", "beyond": "1GiB", "policy": policy}, "too_large")["too_large"]
    assert "OOM when allocating tensor with shape" in told["said"]
    assert told["finite"]
    assert told["statistics"]["pool"]["failures"] >= 1
    assert told["statistics"]["beyond"]["used_bytes"] == 0


def test_a_pool_finds_its_size() -> None:
    """It keeps what a step takes, and a larger batch gets more."""
    told = trained({"checksums": True}, "self_sized")["self_sized"]
    assert told["weights"] == trained(None, "self_sized")["self_sized"]["weights"]
    first, second, larger = told["pools"]
    assert first["peak_occupied_bytes"] < 64 * MIB < memory_share() // 4
    assert first["limit_bytes"] < 1.25 * first["peak_occupied_bytes"]
    # What is small is never refused, and copies of another speed may need another beta.
    assert second["peak_occupied_bytes"] < 1.01 * second["limit_bytes"]
    assert second["limit_bytes"] < 2 * first["limit_bytes"]
    assert second["limit_bytes"] < larger["limit_bytes"] < 8 * first["limit_bytes"]
    assert larger["shortages"] > second["shortages"]
    assert larger["failures"] == 0


def wrong(script: str) -> str:
    """Returns the last line of the error with which a script ends."""
    command = [sys.executable, "-c", f"import tensorflow as tf, trepak\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stderr[-2000:]
    return done.stderr.strip().splitlines()[-1]


def test_too_late_is_an_error_and_no_abort() -> None:
    late = wrong("tf.constant(1.0)\ntrepak.Dymem('64MiB', '1GiB')")
    assert late.startswith("RuntimeError: trepak.Dymem comes too late")


def test_twice_is_an_error() -> None:
    twice = wrong("trepak.Dymem('64MiB', '1GiB')\ntrepak.Dymem('64MiB', '1GiB')")
    assert "has a trepak.Dymem already" in twice


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("'64 MiX', '1GiB'", "pool='64 MiX' is no size"),
        ("0, '1GiB'", "pool=0 must be a number of bytes above 0"),
        ("'100', '1GiB'", "pool='100' is 100 bytes, too little for any tensor"),
        ("'64MiB', '/no/such/folder'", "/no/such/folder"),
        ("'64MiB', '1GiB', beta='64MiB'", "no room beside beta"),
        ("'64MiB', '1GiB', policy='fast'", "policy='fast'"),
        ("'64MiB', '1GiB', placement='worst_fit'", "placement='worst_fit'"),
    ],
)
def test_wrong_arguments_are_named(arguments: str, said: str) -> None:
    error = wrong(f"trepak.Dymem({arguments})")
    assert error.startswith("ValueError") and said in error


@pytest.mark.parametrize(
    ("size", "number"),
    [("1GiB", 1 << 30), ("1.5 MiB", 3 << 19), ("2GB", 2 * 10**9), ("77", 77), (5, 5)],
)
def test_sizes(size: int | str, number: int) -> None:
    assert bytes_of(size, "pool") == number


def test_memory_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of what is available and of all groups' limits, whichever version they have."""

    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    for launcher in ("OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE"):
        monkeypatch.delenv(launcher, raising=False)
    write("proc/meminfo", "MemTotal: 999 kB\nMemAvailable:   800 kB\n")
    write("proc/self/cgroup", "4:cpu,memory:/jobs/one\n0::/jobs/one\n")
    assert memory_share(tmp_path) == 800 * 1024
    write("sys/fs/cgroup/jobs/one/memory.max", "max\n")
    write("sys/fs/cgroup/jobs/memory.max", "700000\n")
    assert memory_share(tmp_path) == 700000
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "600000\n")
    assert memory_share(tmp_path) == 600000
    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", "4")
    assert memory_share(tmp_path) == 150000
