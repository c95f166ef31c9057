"""ChunkedDataset in one process: what `fit` is given, and what it says to what it can't take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trepak import chicle

SAMPLES = 100


def samples(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(SAMPLES, 4)).astype("float32")
    return x, x @ np.arange(8, dtype="float32").reshape(4, 2) / 8


def dense() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def compiled(model: Any, **how: Any) -> Any:
    model.compile(keras.optimizers.SGD(0.05), loss="mse", jit_compile=False, **how)
    return model


class Noting:
    """Notes the batches that a dataset gives."""

    def __init__(self, data: chicle.ChunkedDataset) -> None:
        self.batches: list[list[np.ndarray]] = []
        take = data.iterations.batches.take
        data.iterations.batches.take = self._noting(take)  # type: ignore[method-assign]

    def _noting(self, take: Callable[[], list[np.ndarray]]) -> Callable[[], list[np.ndarray]]:
        def noted() -> list[np.ndarray]:
            self.batches.append(take())
            return self.batches[-1]

        return noted

    def epochs(self, steps: int) -> list[np.ndarray]:
        """Returns by epoch the first field of its samples."""
        firsts = [batch[0] for batch in self.batches]
        return [np.concatenate(firsts[at : at + steps]) for at in range(0, len(firsts), steps)]


def in_order(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T)]


class Traced(keras.Model):
    """Counts how often its step is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.traces = 0

    def call(self, x: Any, training: bool = False) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        self.traces += 1
        return super().train_step(data)


def test_an_epoch_has_each_sample_once_in_another_order() -> None:
    x, y = samples()
    data = chicle.ChunkedDataset(x, y, batch_size=16, chunk_bytes=2500)
    assert len(data) == 7 and data.statistics()["chunks"] > 2
    noting, model = Noting(data), compiled(Traced())
    before = data.statistics()
    history = model.fit(data, epochs=3, verbose=0).history
    plain = compiled(Traced())
    plain.fit(x[:96], y[:96], batch_size=16, verbose=0)
    assert model.traces == plain.traces
    epochs = noting.epochs(7)
    assert len(epochs) == 3
    for epoch in epochs:
        np.testing.assert_array_equal(in_order(epoch), in_order(x))
    assert not np.array_equal(epochs[0], epochs[1])
    assert {len(batch[0]) for batch in noting.batches} == {14, 15}
    for batch in noting.batches:
        np.testing.assert_allclose(batch[1], batch[0] @ np.arange(8).reshape(4, 2) / 8, rtol=1e-5)
    assert history["loss"][-1] < history["loss"][0]
    assert data.statistics() == {**before, "iterations": 3}


def test_a_batch_of_all_samples_is_that_of_arrays() -> None:
    """Also with weights, and inputs and targets in structures."""
    x, y = samples()
    weight = np.linspace(0, 2, SAMPLES).astype("float32")

    def functional() -> Any:
        keras.utils.set_random_seed(3)
        inputs = {name: keras.Input((2,), name=name) for name in ("b", "a")}
        hidden = keras.layers.Dense(3)(keras.layers.Concatenate()(list(inputs.values())))
        return keras.Model(inputs, [keras.layers.Dense(1)(hidden), keras.layers.Dense(1)(hidden)])

    cases: list[tuple[Callable[[], Any], tuple[Any, ...]]] = [
        (dense, (x, y)),
        (dense, (x.astype("float64"), y, weight)),
        (functional, ({"b": x[:, 2:], "a": x[:, :2]}, [y[:, :1], y[:, 1:]])),
    ]
    for make, given in cases:
        data = chicle.ChunkedDataset(*given, batch_size=SAMPLES, chunk_bytes=2500)
        ours, theirs = (compiled(make()) for _ in range(2))
        ours.fit(data, epochs=3, verbose=0)
        theirs.fit(
            *given[:2], sample_weight=(*given, None)[2], batch_size=SAMPLES, epochs=3, verbose=0
        )
        for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_model_may_have_no_targets() -> None:
    class Loss(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(tf.reduce_mean(x**2))
            return x

    x, _ = samples()
    model = keras.Sequential([keras.layers.Dense(2), Loss()])
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(chicle.ChunkedDataset(x), epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]


class Ends(keras.callbacks.Callback):
    """Ends a training amid an epoch."""

    def __init__(self, by_error: bool) -> None:
        super().__init__()
        self.by_error = by_error

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            if self.by_error:
                raise KeyError("enough")
            self.model.stop_training = True


@pytest.mark.parametrize("by_error", [False, True])
def test_a_training_after_one_that_was_ended_has_each_sample_once(by_error: bool) -> None:
    x, y = samples()
    data = chicle.ChunkedDataset(x, y, batch_size=10)
    noting, model = Noting(data), compiled(dense())
    try:
        model.fit(data, callbacks=[Ends(by_error)], epochs=2, verbose=0)
    except KeyError:
        assert by_error
    assert len(noting.batches) == 3
    noting.batches.clear()
    model.fit(data, epochs=2, verbose=0)
    for epoch in noting.epochs(10):
        np.testing.assert_array_equal(in_order(epoch), in_order(x))


def test_validation_may_be_of_arrays() -> None:
    x, y = samples()
    model = compiled(dense())
    history = model.fit(
        chicle.ChunkedDataset(x, y), validation_data=(x, y), epochs=2, verbose=0
    ).history
    assert history["val_loss"][-1] == pytest.approx(model.evaluate(x, y, verbose=0))


X, Y = samples()
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "lengths": ({"x": X, "y": Y[1:]}, "differ in how many there are"),
    "no x": ({"x": None, "y": Y}, "x must be"),
    "scalar": ({"x": X, "y": {"a": 1.0}}, r"y\['a'\] must be an array"),
    "weight alone": ({"x": X, "sample_weight": Y}, "give y as well"),
    "text": ({"x": np.array(["a", "b"])}, "make it numbers"),
    "batch": ({"x": X, "batch_size": 0}, "batch_size must be at least 1"),
    "part of a sample": ({"x": X, "batch_size": 32.5}, "batch_size must be a whole number"),
    "seed": ({"x": X, "seed": None}, "seed must be a whole number"),
    "commits": ({"x": X, "commit_seconds": -1}, "commit_seconds must be at least 0"),
    "commits in words": ({"x": X, "commit_seconds": "x"}, "commit_seconds must be a number"),
    "replicas": ({"x": X, "replicas": "yes"}, "replicas must be True or False"),
    "policy": ({"x": X, "policies": ["x"]}, "policies must be"),
    "share": ({"x": X, "policies": [chicle.StragglerMitigation()]}, "leave out Straggler"),
    "no samples": ({"x": X[:0]}, "0 chunks for 1 ranks"),
    "small chunks": ({"x": X, "chunk_bytes": 10}, "chunk_bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_samples_are_errors(name: str) -> None:
    given, match = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=match):
        chicle.ChunkedDataset(**given)


REFUSED: dict[str, dict[str, Any]] = {
    "y": {"y": Y},
    "sample_weight": {"sample_weight": Y[:, 0]},
    "class_weight": {"class_weight": {0: 1.0}},
    "steps_per_epoch": {"steps_per_epoch": 2},
    "batch_size": {"batch_size": 8},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_fit_can_not_take_with_it_is_an_error(name: str) -> None:
    data = chicle.ChunkedDataset(X, Y)
    with pytest.raises(ValueError, match=f"fit can't take {name} with a ChunkedDataset"):
        compiled(dense()).fit(data, verbose=0, **REFUSED[name])


def test_it_is_for_fit_alone() -> None:
    data, model = chicle.ChunkedDataset(X, Y), compiled(dense())
    for act in (model.evaluate, model.predict):
        with pytest.raises(RuntimeError, match="is what fit takes as x"):
            act(data, verbose=0)
    with pytest.raises(RuntimeError, match="is what fit takes as x"):
        model.fit(X, Y, validation_data=data, verbose=0)
