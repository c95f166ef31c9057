"""Chunks, stores and the ledger: what they hold, whose they are, what they refuse."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trepak.tf_plugins.chicle.chunk import Chunk, Field
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.ledger import Ledger, LedgerError, Move

STATE = Field("alpha", "float64", (2,), is_state=True)
DTYPES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]


def samples(length: int, seed: int = 0) -> dict[str, Any]:
    """Returns fields of all kinds; sparse rows are of very different lengths."""
    rng = np.random.default_rng(seed)
    rows = sp.random_array((length, 50), density=0.2, format="csr", rng=rng, dtype="float32")
    dense = {f"f{dtype}": rng.integers(0, 2, (length, 3)).astype(dtype) for dtype in DTYPES}
    return {"rows": rows, "image": rng.random((length, 4, 5)), **dense}


@given(length=st.integers(1, 60), size=st.sampled_from([6000, 9000, 100_000]))
@settings(max_examples=15, deadline=None)
def test_chunks_hold_what_they_were_cut_from(length: int, size: int) -> None:
    given_samples = samples(length, length)
    cutting = Cutting(given_samples, [STATE], size)
    chunks = list(cutting.chunks(7))
    assert [chunk.samples for chunk in chunks] == cutting.sizes and sum(cutting.sizes) == length
    assert [chunk.id for chunk in chunks] == list(range(7, 7 + len(chunks)))
    for chunk in chunks:
        chunk.check()
        assert chunk.bytes <= size
    back = sp.vstack([chunk.rows("rows") for chunk in chunks])
    assert (back != given_samples["rows"]).nnz == 0
    for name in set(given_samples) - {"rows"}:
        views = [chunk.view(name) for chunk in chunks]
        assert {view.dtype for view in views} == {given_samples[name].dtype}
        np.testing.assert_array_equal(np.concatenate(views), given_samples[name])


def test_the_arrays_are_the_chunks_own_memory_for_numpy_and_tensorflow() -> None:
    chunk = Chunk.make(1, 10, [Field("x", "float32", (3,))])
    written, read = chunk.view("x", writable=True), chunk.view("x")
    tensor = tf.experimental.dlpack.from_dlpack(chunk.dlpack("x"))
    written[4, 2] = 5
    assert read[4, 2] == 5 and tensor[4, 2] == 5
    assert read.ctypes.data % 64 == 0 and not read.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 1
    del chunk, written
    gc.collect()
    assert read[4, 2] == 5 and tensor[4, 2] == 5


def test_what_no_chunk_can_be_is_an_error_that_says_why() -> None:
    with pytest.raises(TypeError, match="'name' can't be of <U2"):
        Chunk.make(0, 1, [Field("name", "<U2")])
    with pytest.raises(ValueError, match="sample 0 needs [0-9]+ bytes, and a chunk has 4096"):
        Cutting({"x": np.zeros((3, 1000))}, size=4096)
    with pytest.raises(ValueError, match="differ in how many there are: {'x': 3, 'y': 2}"):
        Cutting({"x": np.zeros(3), "y": np.zeros(2)})
    wrong = Chunk.make(0, 1, [Field("rows", "float32", (5,), is_sparse=True, nonzeros=1)])
    wrong.view("rows", "starts", writable=True)[:] = [0, 1]
    wrong.view("rows", "columns", writable=True)[:] = 5
    with pytest.raises(tf.errors.InvalidArgumentError, match="column beyond its 5 columns"):
        wrong.check()


def test_a_tasks_chunks_are_its_own_in_an_iteration_and_the_schedulers_between() -> None:
    store = ChunkStore(checked=True)
    chunk, other = (Chunk.make(number, 3, [Field("x", "int32"), STATE]) for number in (1, 2))
    store.add(chunk)
    with pytest.raises(tf.errors.FailedPreconditionError, match="the scheduler owns"):
        store.state(chunk, "alpha")
    with store.iteration():
        state = store.state(chunk, "alpha")
        state[:] = 1
        for wrong in (lambda: store.add(other), lambda: store.take(1), store.commit):
            with pytest.raises(tf.errors.FailedPreconditionError, match="the task owns"):
                wrong()
        with pytest.raises(ValueError, match="'x' of chunk 1 is no state"):
            store.state(chunk, "x")
    with pytest.raises(tf.errors.AlreadyExistsError):
        store.add(chunk)
    with pytest.raises(tf.errors.NotFoundError):
        store.take(2)
    state[0] = 2
    with pytest.raises(tf.errors.FailedPreconditionError, match="written to between iterations"):
        store.take(1)
    with (
        pytest.raises(tf.errors.FailedPreconditionError, match="written to between"),
        store.iteration(),
    ):
        pass


def test_state_goes_back_to_the_last_commit_also_out_of_an_iteration() -> None:
    store = ChunkStore()
    store.add(Chunk.make(1, 3, [STATE]))
    chunk = store.chunks()[0]
    for value in (1, 2):
        with store.iteration():
            store.state(chunk, "alpha")[:] = value
        if value == 1:
            store.commit()
    store.restore()
    assert (chunk.view("alpha") == 1).all()
    with pytest.raises(RuntimeError, match="stopped"), store.iteration():
        store.state(chunk, "alpha")[:] = 3
        raise RuntimeError("stopped")
    store.restore()
    assert (chunk.view("alpha") == 1).all() and (chunk.view("alpha", "committed") == 1).all()


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_the_ledger_knows_one_owner_of_each_chunk_whatever_moves(data: st.DataObject) -> None:
    count, tasks = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 6))
    ledger = Ledger(count)
    ledger.assign_randomly(range(tasks), np.random.default_rng(0))
    held = {task: set(ledger.chunks_of(task)) for task in range(tasks)}
    assert max(map(len, held.values())) - min(map(len, held.values())) <= 1
    for _ in range(data.draw(st.integers(0, 20))):
        numbers = [data.draw(st.integers(0, most)) for most in (count - 1, tasks - 1, tasks - 1)]
        move = Move(*numbers)
        if move.chunk in held[move.source]:
            ledger.move(move)
            held[move.source].remove(move.chunk)
            held[move.target].add(move.chunk)
        else:
            with pytest.raises(LedgerError, match=f"not to task {move.source}"):
                ledger.move(move)
    ledger.check(held)
    assert ledger.count(held) == {task: len(chunks) for task, chunks in held.items()}
    chunk, owner = next((chunk, task) for task in held for chunk in held[task])
    with pytest.raises(LedgerError, match=f"does not have chunk {chunk}"):
        ledger.check({owner: held[owner] - {chunk}})
    with pytest.raises(LedgerError, match="both have chunk|belongs to task"):
        ledger.check({**held, owner + 1: held.get(owner + 1, set()) | {chunk}})
    ledger.release(chunk)
    assert ledger.unowned() == [chunk]
    ledger.assign(chunk, 0)
    with pytest.raises(LedgerError, match=f"there is no chunk {count}"):
        ledger.move(Move(count, 0, 0))
