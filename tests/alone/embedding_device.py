"""Tables whose fast tier is a device's memory, beside the same tables in the host's.

No accelerator is needed: apart_device.cc is one whose memory the processor can't touch.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import keras_rs
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import load_library

import trepak.keras as hvd
from trepak import pipeline
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding

ROWS, COLUMNS = 3000, 6
FAST = 20_000  # bytes; a row of Adagrad has 48


@pytest.fixture(scope="module", autouse=True)
def _device(tmp_path_factory: Any) -> Iterator[None]:
    source, library = Path(__file__).parent / "apart_device.cc", tmp_path_factory.mktemp("built")
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    command = ["g++", "-shared", "-fPIC", source, "-o", library / "apart.so", *flags]
    subprocess.run(command, check=True)
    load_library.load_pluggable_device_library(str(library / "apart.so"))
    with tf.device("CPU:0"):  # the device has no kernels but the two for rows
        yield


def layer_of(optimizer: str = "adagrad", rows: int = ROWS, **options: Any) -> Any:
    initializer = keras.initializers.RandomNormal(seed=1)
    configs = {}
    for name, columns in (("a", COLUMNS), ("b", 3)):
        table = keras_rs.layers.TableConfig(
            name, rows, columns, initializer=initializer, optimizer=optimizer
        )
        configs[name] = keras_rs.layers.FeatureConfig(name, table, (None, 4), (None, columns))
    layer = DistributedEmbedding(configs, **options)
    layer.build(dict.fromkeys(configs, (None, 4)))
    return layer


def train(layer: Any, steps: int = 12) -> dict[str, Any]:
    """Trains, with rows that move if they can; returns the tables."""
    random = np.random.default_rng(0)
    moves = layer.storage.fast_bytes > 0
    layer.tables.tiers.track("lfu")
    for step in range(steps):
        drawn = np.minimum(random.geometric(0.003, (500, 4)) - 1, ROWS - 1)
        ids = {"a": tf.constant(drawn), "b": tf.constant(ROWS - 1 - drawn)}
        with tf.GradientTape() as tape:
            rows = layer(ids)
            loss = sum(tf.reduce_sum(tf.square(one - step)) for one in rows.values())
        tape.gradient(loss, layer.trainable_variables)
        if moves and step % 3 == 1:
            layer.tables.tiers.place(seed=step if step % 2 else None)
        elif moves and step % 3 == 2:
            layer.tables.tiers.replace()
    return {name: one.numpy() for name, one in layer.get_embedding_tables().items()}


def check_same(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, values in wanted.items():
        assert got[name].tobytes() == values.tobytes(), name


@pytest.mark.parametrize("device", ["APART:0", "/job:localhost/device:apart:0", "CPU:0"])
@pytest.mark.parametrize("is_in_file", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_numbers_are_the_same_bit_for_bit(
    device: str, is_in_file: bool, optimizer: str, tmp_path: Path
) -> None:
    options = {"folder": tmp_path} if is_in_file else {}
    layer = layer_of(optimizer, device=device, fast_bytes=FAST, **options)
    check_same(train(layer), train(layer_of(optimizer)))
    counted = layer.tables.statistics()
    assert 0.9 * FAST < counted["fast_bytes"] <= FAST
    assert 0 < counted["fast_rows"] < counted["rows_looked_up"]
    assert counted["evictions"] > 0
    assert (counted["disk_bytes"] > 0) == is_in_file


def test_dropped_rows_begin_anew_as_they_do_in_memory() -> None:
    rare = {"min_count": 1, "row_limit": 300}
    wanted = train(layer_of(**rare))
    check_same(train(layer_of(device="APART:0", fast_bytes=FAST, **rare)), wanted)


def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    layer = layer_of(device="APART:0", fast_bytes=FAST)
    inputs = {name: keras.Input((4,), dtype="int64", name=name) for name in ("a", "b")}
    model = keras.Model(inputs, keras.layers.Concatenate()(list(layer(inputs).values())))
    wanted = train(layer)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").layers[-2]
    assert again.storage.device == "APART:0"
    check_same({name: one.numpy() for name, one in again.get_embedding_tables().items()}, wanted)


def fitted(**options: Any) -> dict[str, Any]:
    layer = layer_of(**options)
    inputs = {name: keras.Input((4,), dtype="int64", name=name) for name in ("a", "b")}
    keras.utils.set_random_seed(2)
    rows = keras.layers.Concatenate()(list(layer(inputs).values()))
    model = keras.Model(inputs, keras.layers.Dense(1)(rows))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, loss="mse", jit_compile=False)
    pipeline(model)
    ids = {name: np.random.default_rng(3).integers(0, ROWS, (2000, 4)) for name in inputs}
    labels = np.random.default_rng(4).normal(size=(2000, 1))
    model.fit(ids, labels, batch_size=100, epochs=2, verbose=0, shuffle=False)
    return {name: one.numpy() for name, one in layer.get_embedding_tables().items()}


def test_a_pipeline_looks_up_beside_updates() -> None:
    check_same(fitted(device="APART:0", fast_bytes=FAST), fitted())


def test_an_update_needs_no_memory_for_another_tier() -> None:
    """The device has 64 MiB."""
    layer = layer_of(rows=1_100_000, device="APART:0", fast_bytes=50 << 20)
    train(layer, steps=1)


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(ValueError, match="device='GPU:7': TensorFlow has .*CPU:0.* on this"):
        layer_of(device="GPU:7", fast_bytes=FAST)
    with pytest.raises(ValueError, match="device='APART:0' needs fast_bytes="):
        layer_of(device="APART:0")
    with pytest.raises(ValueError, match="must be a name like 'GPU:0'"):
        layer_of(device=0, fast_bytes=FAST)
    with pytest.raises(
        tf.errors.ResourceExhaustedError,
        match=r"rank 0: embeddings: .*APART:0 has no \d+ bytes.*fast_bytes=",
    ):
        layer_of(rows=2_000_000, device="APART:0", fast_bytes=1 << 30)
