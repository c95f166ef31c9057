"""Models whose embeddings became tables, beside the same models as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import keras_rs
import numpy as np
import pytest

import trepak.keras as hvd
from trepak.horovod_ext import basics
from trepak.tf_plugins.layers import converted_embeddings, initial_rows
from trepak.tf_plugins.layers.converted_embeddings import distribute_embeddings
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding

SAMPLES, BATCH = 24, 8
SGD = keras.optimizers.SGD(0.3)
Embedding, EmbedReduce, Input = keras.layers.Embedding, keras_rs.layers.EmbedReduce, keras.Input


def shared_and_weighted() -> Any:
    """One layer for two inputs, ids that are computed, weights, and float ids."""
    user, items = Input([], dtype="int64", name="user"), Input([3], name="items")
    weights = Input([3], name="weights")
    both = EmbedReduce(30, 4, name="both", combiner="sqrtn")
    halves = Embedding(15, 5, name="halves")(keras.ops.floor_divide(user, 2))
    reduced = both(keras.ops.cast(items, "int32"), weights)
    one = keras.layers.Concatenate()([both(user), reduced, halves])
    each = keras.layers.Flatten()(Embedding(30, 2, name="each")(items))
    hidden = keras.layers.Dense(4, "tanh")(keras.layers.Concatenate()([one, each]))
    return keras.Model([user, items, weights], keras.layers.Dense(1)(hidden), name="mine")


def nested() -> Any:
    """A model within a model, called twice, and a Sequential one."""
    ids = Input([3], dtype="int32")
    inner = keras.Model(ids, keras.layers.Dense(3)(EmbedReduce(30, 4, name="inner")(ids)))
    pooled = keras.layers.GlobalAveragePooling1D()
    plain = keras.Sequential([Input([3], dtype="int32"), Embedding(30, 3, name="plain"), pooled])
    user, items = Input([], dtype="int32", name="user"), Input([3], dtype="int32", name="items")
    weights = Input([3], name="weights")
    added = keras.layers.Add()([inner(items), plain(items), inner(29 - items), weights])
    rows = EmbedReduce(30, 3, name="user_rows")(user)
    return keras.Model([user, items, weights], keras.layers.Dense(1)(added * rows))


def numbered() -> Any:
    """A layer that is called three times, and others with the names of its second and third."""
    user, items = Input([], dtype="int32"), Input([3], dtype="int32")
    weights = Input([3])
    often = EmbedReduce(30, 4, name="embedding")
    first = EmbedReduce(30, 4, name="embedding_2")(user)
    rows = [often(user), often(items), often(29 - items), first]
    rows.append(EmbedReduce(30, 4, name="embedding_1")(items))
    outputs = keras.layers.Dense(1)(keras.layers.Concatenate()([*rows, weights]))
    return keras.Model([user, items, weights], outputs)


def sequential() -> Any:
    flat = keras.layers.Flatten()
    return keras.Sequential([Input([3]), Embedding(30, 4, name="e"), flat, keras.layers.Dense(1)])


def data() -> tuple[list[Any], Any]:
    random = np.random.default_rng(3)
    user, items = random.integers(0, 30, SAMPLES), random.integers(0, 30, [SAMPLES, 3])
    weights = random.uniform(0.5, 2, [SAMPLES, 3]).astype("float32")
    return [user, items, weights], random.uniform(size=[SAMPLES, 1]).astype("float32")


def tables_of(model: Any) -> dict[str, Any]:
    (layer,) = (one for one in model.layers if isinstance(one, DistributedEmbedding))
    return {name: np.array(table) for name, table in layer.get_embedding_tables().items()}


@pytest.mark.parametrize("make", [shared_and_weighted, nested, numbered, sequential])
def test_it_returns_and_trains_what_it_did(make: Callable[[], Any]) -> None:
    keras.utils.set_random_seed(1)
    before = make()
    keras.utils.set_random_seed(1)
    after = distribute_embeddings(make(), SGD)
    x, y = data()
    x = x[1] if make is sequential else x
    assert after.name == before.name or make is not shared_and_weighted
    np.testing.assert_allclose(after(x), before(x), rtol=1e-5, atol=1e-6)
    before.compile(keras.optimizers.SGD(0.3), "mse")
    after.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.3)), "mse")
    for model in (before, after):
        model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(after(x), before(x), rtol=1e-4, atol=1e-5)
    tables = tables_of(after)
    embeddings = [one for one in before._flatten_layers() if isinstance(one, Embedding)]
    assert set(tables) == {one.name for one in embeddings}
    for one in embeddings:
        np.testing.assert_allclose(tables[one.name], one.embeddings, rtol=1e-4, atol=1e-5)
    assert not any(isinstance(one, Embedding) for one in after._flatten_layers())


def test_what_is_left_stays_and_what_is_saved_loads(tmp_path: Any) -> None:
    ids = Input([3], dtype="int32")
    kept = Embedding(9, 4, name="kept", mask_zero=True)
    outputs = keras.layers.LSTM(2)(kept(ids)), EmbedReduce(9, 4, name="gone")(ids)
    model = keras.Model(ids, keras.layers.Concatenate()(outputs))
    expected = model(np.array([[1, 2, 0]]))
    after = distribute_embeddings(model, {"gone": SGD}, leave=["kept"], sharding={"gone": "row"})
    assert kept in after.layers and set(tables_of(after)) == {"gone"}
    after.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one in (after, loaded):
        np.testing.assert_allclose(one(np.array([[1, 2, 0]])), expected, rtol=1e-5)


def chained() -> Any:
    ids = Input([3], dtype="int32")
    first = Embedding(9, 1, name="first")(ids)
    again = Embedding(9, 4, name="again")(keras.ops.cast(first[..., 0], "int32"))
    return keras.Model(ids, again)


def over(layer: Any, **options: Any) -> Any:
    ids = Input([3], dtype="int32", **options)
    return keras.Model(ids, layer(ids))


def weighted_by_trained() -> Any:
    ids = Input([3], dtype="int32")
    weights = keras.layers.Dense(3)(keras.ops.cast(ids, "float32"))
    return keras.Model(ids, EmbedReduce(9, 4, name="e")(ids, weights))


def towers() -> Any:
    """Two models within the model, whose embeddings have one name."""
    ids = Input([3], dtype="int32")
    inner = [over(EmbedReduce(9, columns, name="emb")) for columns in (4, 5)]
    return keras.Model(ids, keras.layers.Concatenate()([one(ids) for one in inner]))


class Scores(keras.layers.Layer):
    """A layer whose kernel is an embedding's."""

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.kernel = kernel

    def call(self, rows: Any) -> Any:
        return keras.ops.matmul(rows, keras.ops.transpose(self.kernel))


def tied(scores: Callable[[Any, Any], Any]) -> Any:
    ids = Input([3], dtype="int32")
    embedding = Embedding(9, 4, name="e")
    rows = embedding(ids)
    return keras.Model(ids, scores(rows, embedding.embeddings))


class Subclassed(keras.Model):
    pass


class Wrapping(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.inner = Embedding(9, 4, name="e")

    def call(self, ids: Any) -> Any:
        return self.inner(ids)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: over(Embedding(9, 4, name="e", mask_zero=True)), "'e' has mask_zero"),
        (lambda: over(Embedding(9, 4, embeddings_regularizer="l2")), "a regularizer"),
        (lambda: over(Embedding(9, 4, embeddings_constraint="non_neg")), "a constraint"),
        (lambda: over(Embedding(9, 4, lora_rank=2)), "LoRA"),
        (lambda: over(Embedding(9, 4, trainable=False)), "not trainable"),
        (lambda: over(Embedding(9, 4, dtype="float16")), "weights of float16"),
        (lambda: over(keras.layers.ReversibleEmbedding(9, 4)), "ReversibleEmbedding"),
        (lambda: over(Wrapping(name="w")), "'e' is called inside of another layer"),
        (lambda: over(Embedding(9, 4), ragged=True), "sparse or ragged"),
        (weighted_by_trained, "from layers that are trained"),
        (towers, "'emb' is the name of several"),
        (lambda: tied(lambda rows, kernel: Scores(kernel)(rows)), "'e' has a variable that"),
        (lambda: tied(lambda rows, kernel: keras.ops.inner(rows, kernel)), "'e' has a variable"),
        (chained, "'again' looks up depends"),
        (lambda: Subclassed(name="own"), "neither functional nor Sequential"),
        (lambda: keras.Sequential([Embedding(9, 4)]), "begin it with a keras.Input"),
        (lambda: over(keras.layers.Dense(3)), "no embeddings"),
    ],
)
def test_what_cannot_be_a_table_is_named(make: Callable[[], Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        distribute_embeddings(make(), SGD)


def test_nothing_is_drawn_but_default_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def blocks(_: Any, name: str, rows: int, columns: int) -> Iterator[Any]:
        drawn.append(name)
        yield 0, np.ones([rows, columns], "float32")

    monkeypatch.setattr(initial_rows, "blocks", blocks)
    after = distribute_embeddings(sequential(), SGD)
    assert not drawn
    config = next(iter(after.layers[1]._configs.values()))
    assert isinstance(config.table.initializer, keras.initializers.RandomUniform)
    distribute_embeddings(sequential(), SGD, min_count=2)
    assert drawn == ["e", "e: default row"]


def test_all_ranks_hear_that_rank_0_can_not_move_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(DistributedEmbedding, "set_embedding_tables", fails)
    told = []

    def gather(fact: Any, tag: str) -> list[Any]:
        told.append(fact)
        return [fact] if basics.rank() == 0 else ["no room", fact]

    monkeypatch.setattr(converted_embeddings.exchange, "gather", gather)
    layer = DistributedEmbedding
    with pytest.raises(OSError, match="no room"):
        converted_embeddings._move_values([], layer)
    monkeypatch.setattr(basics, "rank", lambda: 1)
    with pytest.raises(RuntimeError, match="rank 0 can't give .* values: no room"):
        converted_embeddings._move_values([], layer)
    assert told == ["no room", None]


def test_names_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="leave= names 'x'"):
        distribute_embeddings(sequential(), SGD, leave=["x"])
    with pytest.raises(ValueError, match="differs in x"):
        distribute_embeddings(sequential(), {"e": SGD, "x": SGD})
    with pytest.raises(ValueError, match="RMSprop"):
        distribute_embeddings(sequential(), keras.optimizers.RMSprop())


def test_the_given_model_says_where_its_tables_are() -> None:
    ids = Input([], dtype="int32")
    given = keras.Model(ids, keras.layers.Dense(1)(Embedding(30, 4, name="rows")(ids)), name="mine")
    given.compile(keras.optimizers.SGD(0.1), loss="mse")
    given.predict(np.arange(4), verbose=0)
    distribute_embeddings(given, SGD)
    for call in (given, given.get_layer("rows"), lambda x: given.predict(x, verbose=0)):
        with pytest.raises(RuntimeError, match="the model that distribute_embeddings has returned"):
            call(np.arange(4))
