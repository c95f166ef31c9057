"""Dymem on a device whose memory the processor can't touch: a fake one, or a GPU."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TESTS = Path(__file__).parent.parent
WORKER = TESTS / "workers" / "dymem_on_device.py"
MIB = 1 << 20
POOL = {"pool": "128MiB"}  # of the processor


def run(options: dict[str, Any] | None, device: str, case: str, *library: Path) -> Any:
    """Returns how a worker ended, in a process of its own."""
    command = [sys.executable, str(WORKER), json.dumps(options), device, case, *map(str, library)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def told(*arguments: Any) -> dict[str, Any]:
    done = run(*arguments)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def apart(tmp_path_factory: Any) -> Path:
    """The library of the fake device."""
    import tensorflow as tf

    library: Path = tmp_path_factory.mktemp("built") / "apart.so"
    source = TESTS / "alone" / "apart_layers.cc"
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", source, "-o", library, *flags], check=True)
    return library


@functools.cache
def plain(library: Path) -> Any:
    return told(None, "APART:0", "dense", library)["weights"]


def check_all_came_back(statistics: dict[str, Any]) -> None:
    swaps = statistics["swaps"]
    assert swaps["fetched_tensors"] == (
        swaps["offloaded_tensors"] + swaps["kept_tensors"] + swaps["cancelled_offloads"]
    )
    assert statistics["beyond"]["used_bytes"] == 0
    assert statistics["pool"]["failures"] == 0


@pytest.mark.parametrize("policy", ["dymem", "vdnn"])
@pytest.mark.parametrize("is_file", [False, True], ids=["memory", "file"])
def test_weights_are_those_of_plain_tensorflow(
    policy: str, is_file: bool, apart: Path, tmp_path: Path
) -> None:
    options = {"beyond": str(tmp_path) if is_file else "1GiB", "checksums": True, "policy": policy}
    got = told({**POOL, **options}, "APART:0", "dense", apart)
    assert got["weights"] == plain(apart)
    statistics = got["statistics"]
    check_all_came_back(statistics)
    (graph,) = statistics["graphs"]
    assert graph["swapped_tensors"] >= 16  # two of each layer
    # On the device all leave in each step, whether they would fit or not.
    assert statistics["swaps"]["fetched_tensors"] >= 16 * 12
    assert statistics["swaps"]["kept_tensors"] == 0
    assert statistics["first_failure"] == ""


def test_a_step_that_finds_no_room_on_the_device_trains(apart: Path) -> None:
    refused = run(None, "APART:0", "large", apart)
    assert refused.returncode == 1 and "ResourceExhaustedError" in refused.stderr
    got = told({**POOL, "beyond": "1GiB"}, "APART:0", "large", apart)
    check_all_came_back(got["statistics"])
    assert got["statistics"]["beyond"]["peak_bytes"] >= 60 * MIB


def test_what_finds_no_room_beyond_stays_on_the_device(apart: Path) -> None:
    got = told({**POOL, "beyond": "300KiB", "checksums": True}, "APART:0", "dense", apart)
    assert got["weights"] == plain(apart)
    statistics = got["statistics"]
    check_all_came_back(statistics)
    swaps = statistics["swaps"]
    assert swaps["kept_tensors"] > 0 and swaps["offloaded_tensors"] > 0
    assert statistics["beyond"]["peak_bytes"] <= 300 << 10
    assert "stays where it is" in statistics["first_failure"]


def test_what_was_prefetched_leaves_again_when_a_fetch_finds_no_room(apart: Path) -> None:
    got = told({**POOL, "beyond": "1GiB", "checksums": True}, "APART:0", "shortage", apart)
    assert got["weights"] == [[2.0, 2.0], [1.0, 1.0], [0.0, 0.0]]
    assert got["statistics"]["swaps"]["evicted_tensors"] > 0
    check_all_came_back(got["statistics"])


@functools.cache
def has_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


@pytest.mark.parametrize(
    ("case", "least_bytes"),  # of a tensor of each layer, in all steps
    [("dense", 12 * 8 * 256 * 64 * 4), ("convolutions", 20 * 6 * 32 * 32 * 32 * 16 * 4)],
)
def test_a_gpu_trains_as_it_does_without(case: str, least_bytes: int) -> None:
    if not has_gpu():
        pytest.skip("no GPU here")
    wanted = told(None, "GPU:0", case)
    got = told({"beyond": "1GiB", "always_swap": True}, "GPU:0", case)
    for one, other in zip(got["weights"], wanted["weights"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    check_all_came_back(got["statistics"])
    assert got["statistics"]["swaps"]["offloaded_bytes"] > least_bytes
