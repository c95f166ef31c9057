"""Sharded checkpoints: other shardings, damaged files, ranks that fail."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from embedding_files import FOLDER, configs, fit, layer_of, meet, model_of
from embedding_saving import SHARDINGS, check_equal, slots_of, step, tables_of
from embeddings import built
from harness import case

import trepak.keras as hvd
from trepak.layers import DistributedEmbedding, export_tables, load_tables, save_tables
from trepak.tf_plugins.layers import table_files


def check_slots(layer: Any, expected: list[Any]) -> None:
    for found, wanted in zip(slots_of(layer), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    meet("compared")


def saved(name: str, sharding: Any = "row") -> tuple[Any, Path]:
    """Returns a trained layer, and the folder where it was saved."""
    layer = built(sharding)
    for number in range(3):
        step(layer, number)
    folder = meet(name)
    save_tables(layer, folder)
    return layer, folder


@case
def they_are_loaded_with_any_sharding() -> None:
    block, table_files._BLOCK_BYTES = table_files._BLOCK_BYTES, 500  # several blocks in each file
    for number, sharding in enumerate(SHARDINGS):
        layer, folder = saved(f"sharded{number}", sharding)
        for other in SHARDINGS:
            loaded = built(other)
            load_tables(loaded, str(folder))
            check_slots(loaded, slots_of(layer))
            assert [int(one.iterations) for one in loaded.tables.optimizers] == [3] * 4
        step(layer, 3)
        step(loaded, 3)
        check_slots(loaded, slots_of(layer))
    table_files._BLOCK_BYTES = block


@case
def a_folder_is_saved_to_again_and_again() -> None:
    layer, folder = saved("again")
    files = len(list(folder.iterdir()))
    step(layer, 3)
    meet("counted")
    save_tables(layer, folder)
    assert len(list(folder.iterdir())) == files
    loaded = built("column")
    load_tables(loaded, folder)
    check_slots(loaded, slots_of(layer))


@case
def a_rank_that_cannot_write_fails_all_and_nothing_is_lost() -> None:
    layer, folder = saved("full")
    expected, before = slots_of(layer), sorted(folder.iterdir())
    meet("read")
    for number in range(3, 5):
        step(layer, number)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hvd.rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))
    try:
        with pytest.raises(
            OSError, match="failed on rank 1: .*rows can.t be written .File too large.*still"
        ):
            save_tables(layer, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    meet("failed")
    assert sorted(folder.iterdir()) == before
    loaded = built("table")
    load_tables(loaded, folder)
    check_slots(loaded, expected)


@case
def a_file_where_the_folder_should_be_is_an_error() -> None:
    layer, path = built("row"), meet("a_file")
    path.touch()
    with pytest.raises(OSError, match="saving embedding tables has failed on rank 0.*a_file"):
        save_tables(layer, path)
    with pytest.raises(OSError, match="checking a checkpoint .* failed on rank 0.*a_file"):
        load_tables(layer, path)


def damaged(folder: Path, path: Path, damage: Any, text: str) -> None:
    """Damages a file on rank 0, and puts it back when all ranks have refused it."""
    content = path.read_bytes()
    loaded = built("column")
    before = slots_of(loaded)
    meet("at hand")
    if hvd.rank() == 0:
        damage(path, content)
    meet("damaged")
    with pytest.raises(OSError, match=f"{path.name} .*{text}.*nothing has been loaded"):
        load_tables(loaded, folder)
    check_slots(loaded, before)
    if hvd.rank() == 0:
        path.write_bytes(content)
    meet("put back")


def flip(path: Path, content: bytes) -> None:
    at = len(content) // 2
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


@case
def files_that_are_damaged_are_named_before_anything_is_loaded() -> None:
    layer, folder = saved("damaged")
    files = sorted(folder.glob("*.rows"))
    assert len(files) == len(layer.tables.plan.shards)
    damaged(folder, files[0], flip, "is damaged from row 0 on")
    damaged(folder, files[-1], flip, "is damaged from row 0 on")
    damaged(folder, files[1], lambda path, content: path.write_bytes(content[:-1]), "bytes instead")
    damaged(folder, files[2], lambda path, content: path.unlink(), "is missing")
    index = folder / table_files.INDEX
    damaged(folder, index, lambda path, content: path.unlink(), "is missing")
    damaged(folder, index, lambda path, content: path.write_bytes(content[:-9]), "is damaged")
    damaged(
        folder,
        index,
        lambda path, content: path.write_bytes(content.replace(b'"rows": 7', b'"rows": 8', 1)),
        "is damaged",
    )
    load_tables(layer, folder)


@case
def a_models_layers_are_saved_together_and_exported() -> None:
    model = model_of(DistributedEmbedding(configs(), sharding="row"), train=2)
    folder = meet("model")
    save_tables(model, folder)
    other = model_of(DistributedEmbedding(configs(), sharding="column"))
    load_tables(other, folder)
    expected = tables_of(layer_of(model))
    check_equal(tables_of(layer_of(other)), expected)
    if hvd.rank() == 0:
        assert export_tables(folder, FOLDER / "tables.npz") == ["a", "b"]
        check_equal(dict(np.load(FOLDER / "tables.npz")), expected)
        export_tables(str(folder), str(FOLDER / "plain"))
        check_equal({n: np.load(FOLDER / "plain" / f"{n}.npy") for n in "ab"}, expected)
        assert sorted(path.name for path in (FOLDER / "plain").iterdir()) == ["a.npy", "b.npy"]
    meet("exported")


@case
def other_tables_and_optimizers_are_refused() -> None:
    model = model_of(DistributedEmbedding(configs()), train=2)
    folder = meet("others")
    save_tables(model, folder)
    smaller = model_of(DistributedEmbedding(configs({"a": 90, "b": 8})))
    with pytest.raises(ValueError, match="table 'b' .*others has 9 rows.* has 8"):
        load_tables(smaller, folder)
    sgd = model_of(DistributedEmbedding(configs(optimizer=keras.optimizers.SGD(0.1))))
    with pytest.raises(ValueError, match="by adam.* by sgd.*optimizers=False"):
        load_tables(sgd, folder)
    load_tables(sgd, folder, optimizers=False)
    check_equal(tables_of(layer_of(sgd)), tables_of(layer_of(model)))
    meet("compared")
    fit(sgd, 1)
    with pytest.raises(ValueError, match="has no trepak.layers.DistributedEmbedding"):
        save_tables(keras.Sequential([keras.Input([1]), keras.layers.Dense(1)]), folder)
    with pytest.raises(ValueError, match="is not built"):
        save_tables(DistributedEmbedding(configs()), folder)
