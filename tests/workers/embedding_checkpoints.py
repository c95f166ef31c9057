"""Sharded checkpoints: other shardings, damaged files, ranks that fail."""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from embedding_files import FOLDER, configs, fit, layer_of, meet, model_of
from embedding_saving import SHARDINGS, check_equal, slots_of, step, tables_of
from embeddings import FEATURES, as_inputs, built
from harness import case

import trepak.keras as hvd
from trepak.layers import DistributedEmbedding, export_tables, load_tables, save_tables
from trepak.tf_plugins.layers import table_files


def check_slots(layer: Any, expected: list[Any]) -> None:
    for found, wanted in zip(slots_of(layer), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    meet("compared")


def saved(name: str, sharding: Any = "row", **options: Any) -> tuple[Any, Path]:
    """Returns a trained layer, and the folder where it was saved."""
    layer = built(sharding, **options)
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


MIN_COUNTS = {"sgd": 5, "adagrad": 3, "adam": 2}


def default_rows(layer: Any) -> list[Any]:
    rows = layer.tables.rows
    found = [
        rows.read(number, shard.rows, 1, with_slots=True)
        for table, about in enumerate(rows.plan.tables)
        if about.admits
        for number, shard in rows.shards(table)
    ]
    meet("read")
    return found


@case
def rows_that_are_admitted_are_admitted_again() -> None:
    for number, sharding in enumerate(SHARDINGS):
        layer, folder = saved(f"admitted{number}", sharding, min_count=MIN_COUNTS)
        admitted = layer.tables.statistics()["rows_admitted"]
        same = built(sharding, min_count=MIN_COUNTS)
        load_tables(same, folder)
        assert same.tables.statistics()["rows_admitted"] == admitted
        kept: dict[str, Any] = {}
        layer.save_own_variables(kept)
        from_keras = built(sharding, min_count=MIN_COUNTS)
        if hvd.rank() == 0:
            from_keras.load_own_variables(kept)
        meet("loaded")
        check_slots(from_keras, slots_of(layer))
        for one, other, third in zip(*map(default_rows, (layer, same, from_keras)), strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(one, third)
        for other in SHARDINGS:
            loaded = built(other, min_count=MIN_COUNTS)
            load_tables(loaded, folder)
            check_slots(loaded, slots_of(layer))
            load_tables(loaded, folder, optimizers=False)
            check_slots(loaded, slots_of(layer))
        fresh = built(sharding, min_count=MIN_COUNTS)
        load_tables(fresh, folder, optimizers=False)
        check_equal(tables_of(fresh), tables_of(layer))
        assert fresh.tables.statistics()["rows_admitted"] == admitted
        meet("compared")
        step(layer, 3)
        step(same, 3)
        check_slots(same, slots_of(layer))


@case
def rows_in_files_and_at_a_limit_are_loaded() -> None:
    """What is over the limit of a smaller part is dropped by the next update, and nothing fails."""
    layer, folder = saved("limited", min_count=MIN_COUNTS, row_limit={"adam": 20})
    for sharding in ("row", "column"):
        with tempfile.TemporaryDirectory() as files:
            options = {"min_count": MIN_COUNTS, "folder": files, "fast_bytes": 900}
            loaded = built(sharding, row_limit={"adam": 20}, **options)
            load_tables(loaded, folder)
            check_slots(loaded, slots_of(layer))
            step(loaded, 3)
            meet("trained")
            assert loaded.tables.statistics()["rows_admitted"] > 0


@case
def what_is_exported_is_what_look_ups_return() -> None:
    layer, folder = saved("looked up", min_count=MIN_COUNTS)
    for table, config in enumerate(layer.tables.plan.tables):
        seen = layer.tables.rows.whole(table, with_slots=True)[:, -1, 0]
        assert not config.admits or seen.min() < seen.max() == MIN_COUNTS[config.name], config
    if hvd.rank() == 0:
        export_tables(folder, FOLDER / "looked up.npz")
    meet("exported")
    plain = dict(np.load(FOLDER / "looked up.npz"))
    for feature, table in (("user", "sgd"), ("seen", "adam")):
        ids = {
            name: [[row] if name == feature else [0] * most for row in range(len(plain[table]))]
            for name, (_, _, most) in FEATURES.items()
        }
        rows = layer(as_inputs((ids, {}))[0])[feature]
        np.testing.assert_array_equal(rows, plain[table])
    for other in ({}, {"min_count": {**MIN_COUNTS, "adam": 4}}):
        with pytest.raises(ValueError, match=r"min_count=\d, but that of the layer .* has \d"):
            load_tables(built("row", **other), folder)
    meet("refused")


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
