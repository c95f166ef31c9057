"""What readers make of the ranks' batches, against NumPy; one process, without a service."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trepak.tf_plugins.data import reader_processes, reader_stream
from trepak.tf_plugins.data.ids_graph import IdsGraph
from trepak.tf_plugins.data.reader_rounds import Reading, RoutedLayer, rounds
from trepak.tf_plugins.data.reader_stream import ReaderStream
from trepak.tf_plugins.data.specs_as_text import from_text, to_text

RANKS, ROWS, STEPS = 3, 20, 4


def batch(rank: int, step: int) -> Any:
    return np.random.default_rng([rank, step]).integers(0, ROWS, 2 + rank + step)


def batches_of(rank: int, size: int) -> tf.data.Dataset:
    """Each rank has one batch more than the one before it."""
    assert size == RANKS

    def made(step: Any) -> Any:
        ids = tf.numpy_function(lambda one: batch(rank, int(one)), [step], tf.int64)
        return tf.ensure_shape(ids, [None])

    return tf.data.Dataset.range(STEPS + rank).map(made)


def other_dtype(rank: int, size: int) -> tf.data.Dataset:
    return batches_of(rank, size).map(lambda ids: tf.cast(ids, tf.int32 if rank else tf.int64))


def mirrored_ids() -> IdsGraph:
    with tf.Graph().as_default() as graph:
        ids = tf.compat.v1.placeholder(tf.int64, [None], "ids")
        found = tf.identity(19 - ids, "found")
        tf.range(tf.size(ids, tf.int64) + 1, name="splits")
    definition = graph.as_graph_def().SerializeToString()
    assert found.name == "found:0"
    return IdsGraph(definition, ("ids:0",), ("found:0", "splits:0"), ((1,),))


def reading(reader: int = 0, readers: int = 1, batches: Any = batches_of) -> Reading:
    table = {"name": "t", "vocabulary": ROWS, "dim": 2, "optimizer": {"name": "sgd"}}
    shards = [
        {
            **{"table": 0, "rank": rank, "first_row": rank, "row_stride": RANKS},
            **{"rows": len(range(rank, ROWS, RANKS)), "first_column": 0, "columns": 2},
        }
        for rank in range(RANKS)
    ]
    store = {"rank": RANKS, "ranks": RANKS + 1, "tables": [table], "shards": shards}
    layer = RoutedLayer(store, ("f",), (0,))
    return Reading(batches, mirrored_ids(), (layer,), RANKS, reader, readers)


def asked(owner: int, step: int) -> tuple[list[int], list[int]]:
    """Returns what all ranks ask of one: how many rows, then the rows; and the splits."""
    wanted: list[int] = []
    splits = []
    for rank in range(RANKS):
        rows = list(dict.fromkeys(19 - batch(rank, step)))  # each once, as they first occur
        mine = [int(row) // RANKS for row in rows if row % RANKS == owner]
        wanted += [len(mine), *mine]
        splits.append(1 + len(mine))
    return wanted, splits


@pytest.mark.parametrize("readers", [1, 3])
def test_each_rank_gets_its_batch_and_what_is_asked_of_it(readers: int) -> None:
    made = [iter(rounds(reading(number, readers))[0]) for number in range(readers)]
    for step in [*range(STEPS)] * 2:  # epochs
        for rank in range(RANKS):
            ended, ids, wanted, splits = next(made[step % readers])
            assert not ended
            np.testing.assert_array_equal(ids, batch(rank, step))
            expected = asked(rank, step)
            assert (list(wanted.numpy()), list(splits.numpy())) == expected
        if step == STEPS - 1:
            for one in made:
                assert all(next(one)[0] for _ in range(RANKS)), "where the first rank has no more"


def test_batches_of_ranks_must_be_alike() -> None:
    with pytest.raises(ValueError, match="batches of rank 1 have .*int32.* those of rank 0"):
        rounds(reading(batches=other_dtype))


def test_what_batches_are_goes_through_text() -> None:
    spec = ({"a": tf.RaggedTensorSpec([None, None], tf.int64)}, (tf.TensorSpec([3, None]),))
    assert from_text(to_text(spec)) == spec


def test_a_reader_that_has_not_begun_in_time_is_ended() -> None:
    with pytest.raises(RuntimeError, match=r"not begun within 0.1 s: raise TREPAK_DEADLINE_SECO"):
        reader_processes.start([b"not read"], "127.0.0.1", 0.1)
    assert not reader_processes._running


@pytest.mark.parametrize(
    ("does", "seconds", "what"),
    [
        ("exec sleep 60", 0.5, r"not begun within 0.5 s"),  # as one whose imports hang
        ("exit 3", 9.0, r"ended before it began, with the exit status 3"),
    ],
)
def test_a_reader_that_does_not_take_what_it_is_told_is_named(
    does: str, seconds: float, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=what):  # of more than a pipe holds
        reader_processes.start([bytes(1 << 20)] * 2, "127.0.0.1", seconds)
    assert time.monotonic() - begun < 10
    assert not reader_processes._running


def test_a_reader_ends_without_its_parent_though_its_input_is_open() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "trepak.tf_plugins.data.reader", str(writing), "-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[writing]) as process:
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()
    os.close(reading)
    os.close(writing)


def _next_of(iterator: Any, _: Any) -> Any:
    for element in iterator:
        return element
    raise ValueError("no more")


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """A reader that answers, without a service; and the elements that it has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        elements: list[Any] = []
        monkeypatch.setattr(reader_stream, "_dataset", lambda *_: elements)
        monkeypatch.setattr(reader_stream, "_next", _next_of)
        about = {"address": "127.0.0.1", "port": listener.getsockname()[1]}
        yield about | {"pid": 7, "host": "here"}, elements


def test_a_stream_reports_its_first_failure_ever_after(reader: Any) -> None:
    about, elements = reader
    elements.append([False, "batch"])  # the next one is no more there
    stream = ReaderStream([about], 1, 2, 60.0)
    assert stream.take() == [False, "batch"]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="rank 1: the input's readers: no more"):
            stream.take()
        stream._lines[0].shutdown(socket.SHUT_RDWR)  # as if the reader had gone since
    stream.close()


def test_a_reader_that_has_gone_leaves_what_it_has_said(reader: Any) -> None:
    stream = ReaderStream([reader[0]], 1, 2, 60.0)
    stream._lines[0].shutdown(socket.SHUT_RDWR)
    with pytest.raises(RuntimeError, match=r"pid 7 .* has ended.* Before that, .* no more"):
        stream.take()
    stream.close()


def test_a_stream_that_gets_nothing_says_what_may_be_the_cause(
    reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    monkeypatch.setattr(reader_stream, "_next", lambda *_: never.wait())
    stream = ReaderStream([reader[0]], 0, 2, 0.1)
    what = r"rank 0: reader 0 .*pid 7 on here.* nothing for 0.1 s.* another rank, which has taken"
    with pytest.raises(RuntimeError, match=what):
        stream.take()
    never.set()
    stream.close()
