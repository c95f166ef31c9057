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

from trepak.tf_plugins.memory.sizes import bytes_of

WORKER = Path(__file__).parent.parent / "workers" / "dymem_training.py"
BODIES = ("resnet", "inception", "densenet")
SAME = (*BODIES, "custom_loop", "control_flow", "another_model")
MIB = 1 << 20


def trained(options: dict[str, Any] | None, *cases: str) -> dict[str, dict[str, Any]]:
    """Returns what each case tells, in a process of its own."""
    command = [sys.executable, str(WORKER), json.dumps(options), *cases]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1"}
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
        {"policy": "superneurons"},
        {"policy": "none"},
    ],
    ids=["dymem", "dymem-file", "superneurons", "none"],
)
def test_weights_are_those_of_plain_tensorflow(options: dict[str, Any], tmp_path: Path) -> None:
    is_file = options.get("file", False)
    rest = {key: value for key, value in options.items() if key != "file"}
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
    if "control_flow" not in cases:
        assert not any(graph["left_alone"] for graph in statistics["graphs"])


def test_a_pool_in_which_plain_tensorflow_has_no_room() -> None:
    """The pool is a part of what lives at once without swaps; the copies' speed decides nothing."""
    beyond = {"beyond": "1GiB"}
    none = trained({**beyond, "pool": "1GiB", "policy": "none"}, "deep")["deep"]
    pool = int(none["statistics"]["pool"]["peak_live_bytes"] * 0.6)
    told = trained({**beyond, "pool": pool, "checksums": True}, "deep")["deep"]
    assert told["weights"] == none["weights"] == trained(None, "deep")["deep"]["weights"]
    assert told["statistics"]["pool"]["peak_occupied_bytes"] <= pool
    assert told["statistics"]["pool"]["failures"] == 0


@pytest.mark.parametrize("policy", ["dymem", "none"])
def test_no_room_is_an_error_and_no_end(policy: str) -> None:
    told = trained({"pool": "48MiB", "beyond": "1GiB", "policy": policy}, "too_large")["too_large"]
    assert "OOM when allocating tensor with shape" in told["said"]
    assert told["finite"]
    assert told["statistics"]["pool"]["failures"] >= 1
    assert told["statistics"]["beyond"]["used_bytes"] == 0


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
