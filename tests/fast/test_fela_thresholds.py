"""Threshold batch sizes: what is measured, and that it is measured once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from trepak.tf_plugins.fela import profile, thresholds
from trepak.tf_plugins.fela.graph import graph_of
from trepak.tf_plugins.fela.layer_shapes import is_weighted, shape_key, shape_type

L = keras.layers


def nodes(*layers: Any, shape: Any = (8,)) -> list[Any]:
    return list(graph_of(keras.Sequential([keras.Input(shape), *layers])).nodes)


def node(units: int = 3) -> Any:
    return nodes(L.Dense(units))[0]


@pytest.mark.parametrize("threshold", [1, 2, 16, 64, 2048, 4096])
def test_the_smallest_batch_with_the_best_throughput(threshold: int) -> None:
    """A device that takes as long for each batch below the threshold, as Figure 1 has it."""
    assert thresholds.saturating(lambda batch, _: 1e-6 * max(batch, threshold)) == threshold


def test_a_gain_below_the_tolerance_is_none() -> None:
    def seconds(gain: float) -> Callable[[int, float], float]:
        return lambda batch, _: 1e-6 * batch / (1 + gain * (batch >= 4))

    assert thresholds.saturating(seconds(0.9 * thresholds.TOLERANCE)) == 1
    assert thresholds.saturating(seconds(1.2 * thresholds.TOLERANCE)) == 4
    # Two doublings without a gain end it, so that a later one is not seen.
    assert thresholds.saturating(lambda batch, _: 1e-6 * batch / (1 + (batch >= 8))) == 1


def test_what_does_not_fit_is_not_tried() -> None:
    tried = []

    def seconds(batch: int, left: float) -> float | None:
        tried.append(batch)
        return None if batch > 8 else 1e-6

    assert thresholds.saturating(seconds) == 8
    assert tried == [1, 2, 4, 8, 16]


def test_measuring_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(thresholds, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def seconds(batch: int, left: float) -> float:
        clock[0] += 0.3
        return 0.3

    assert thresholds.saturating(seconds) == 2  # the third of 0.6 seconds at most does not fit
    assert clock[0] <= thresholds.SECONDS


def test_a_layer_is_measured_and_not_changed() -> None:
    norm = L.BatchNormalization()
    inner = keras.Sequential([keras.Input((8, 8, 3)), L.Conv2D(4, 3), norm, L.Dropout(0.5)])
    (called,) = nodes(inner, shape=(8, 8, 3))
    before = [v.numpy() for v in inner.variables]
    counts = len(inner._inbound_nodes)
    began = time.process_time()
    measured = thresholds.measure(called)
    assert time.process_time() - began < 30  # of a machine's cores together, with tracing
    assert measured in {2**i for i in range(13)}
    for variable, value in zip(inner.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    assert len(inner._inbound_nodes) == counts


@pytest.mark.parametrize("layer", [L.Embedding(10, 3), L.LSTM(3), L.Dense(2)])
def test_layers_of_other_kinds_are_measured(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "MAX_BATCH", 4)
    shape = (5,) if isinstance(layer, L.Embedding) else (5, 2)
    (called,) = nodes(layer, shape=shape)
    assert thresholds.measure(called) in (1, 2, 4)


def test_memory_bounds_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "MEMORY", 4 * 3 * (8 + 3) * 4)  # four samples
    seconds_for = thresholds._seconds_for(node())
    assert isinstance(seconds_for(4, 1.0), float)
    assert seconds_for(8, 1.0) is None


def test_an_open_dimension_is_explained() -> None:
    (called,) = nodes(L.Dense(3, name="dense"), shape=(None, 4))
    with pytest.raises(ValueError, match="'dense' has an open dimension .* cuts by name"):
        thresholds.measure(called)


def test_layers_that_have_a_kernel() -> None:
    layers = [L.Conv2D(4, 3), L.BatchNormalization(), L.PReLU(), L.DepthwiseConv2D(2), L.Flatten()]
    found = nodes(*layers, L.Dense(3), L.Dropout(0.5), shape=(8, 8, 3))
    assert [is_weighted(one) for one in found] == [True, False, False, True, False, True, False]


def test_what_a_threshold_is_kept_under() -> None:
    def key(layer: Any, shape: Any = (8, 8, 3), name: Callable[[Any], str] = shape_key) -> str:
        return name(nodes(layer, shape=shape)[0])

    plain = key(L.Conv2D(4, 3))
    assert key(L.Conv2D(4, 3, name="other", kernel_regularizer="l2", activation="relu")) == plain
    others = [
        key(L.Conv2D(5, 3)),
        key(L.Conv2D(4, 2)),
        key(L.Conv2D(4, 3, strides=2)),
        key(L.Conv2D(4, 3, dtype="bfloat16")),
        key(L.Conv2D(4, 3), (8, 9, 3)),
        key(L.Conv2D(4, 3), (8, 8, 2)),
        key(L.Conv2DTranspose(4, 3)),
    ]
    assert len({plain, *others}) == 8
    same = [key(L.Conv2D(4, 3), (8, 8, channels), shape_type) for channels in (2, 3)]
    assert same[0] == same[1] != key(L.Conv2D(4, 3), (9, 8, 3), shape_type)


def never(_: Any) -> int:
    raise AssertionError("measured twice")


def test_measured_once_and_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder" / "thresholds.json"
    monkeypatch.setattr(profile, "measure", lambda _: 32)
    assert profile.of_this_machine(path).threshold(node()) == 32
    monkeypatch.setattr(profile, "_device", lambda: "another")
    monkeypatch.setattr(profile, "measure", lambda _: 64)
    assert profile.of_this_machine(path).threshold(node()) == 64
    assert profile.of_this_machine(path).threshold(node(5)) == 64
    monkeypatch.undo()
    monkeypatch.setattr(profile, "measure", never)
    assert profile.of_this_machine(path).threshold(node()) == 32
    kept = json.loads(path.read_text())["devices"]
    assert kept["another"] == {shape_key(node()): 64, shape_key(node(5)): 64}
    assert [file.name for file in path.parent.iterdir()] == ["thresholds.json"]


def test_two_that_write_keep_what_both_know(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "thresholds.json"
    monkeypatch.setattr(profile, "measure", lambda _: 32)
    one, other = profile.of_this_machine(path), profile.of_this_machine(path)
    one.threshold(node())
    other.threshold(node(5))
    assert len(profile.of_this_machine(path).thresholds) == 2


def test_a_file_that_could_not_be_replaced_is_whole(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "thresholds.json"
    monkeypatch.setattr(profile, "measure", lambda _: 32)
    mine = profile.of_this_machine(path)
    mine.threshold(node())
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        mine.threshold(node(5))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    ["", '{"devices": {"cpu', "[]", "{}", '{"devices": {"cpu": {"key": "16"}}}', '{"devices": 3}'],
)
def test_a_damaged_file_is_explained(tmp_path: Path, text: str) -> None:
    path = tmp_path / "thresholds.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="thresholds.json is damaged .*delete it"):
        profile.of_this_machine(path)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREPAK_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert profile.of_this_machine().path == Path("/nowhere/.cache/trepak/fela/thresholds.json")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert profile.of_this_machine().path == Path("/elsewhere/trepak/fela/thresholds.json")
    monkeypatch.setenv("TREPAK_CACHE", "/here")
    assert profile.of_this_machine().path == Path("/here/fela/thresholds.json")
