"""What overlap(model) promises, whatever carries the gradients."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from exactness import TRANSPORT, dense_model, wrapped
from harness import case
from horovod.common.exceptions import HorovodInternalError

import trepak
import trepak.keras as hvd

BATCH, BATCHES = 4, 6


def data() -> tuple[np.ndarray, np.ndarray]:
    """Returns batches that differ between ranks."""
    rng = np.random.default_rng([11, hvd.rank()])
    size = BATCH * BATCHES
    return rng.normal(size=(size, 6)).astype("f4"), rng.normal(size=(size, 3)).astype("f4")


def compiled(
    overlapped: bool = True, transport: Any = TRANSPORT, sync: Any = None, **options: Any
) -> Any:
    keras.utils.set_random_seed(5)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.Adam(0.01), transport=transport, sync=sync
    )
    model.compile(optimizer, loss="mse", jit_compile=False, **options)
    return trepak.overlap(model) if overlapped else model


def pending(model: Any) -> bool:
    variables = model.trainable_variables
    return bool(tf.reduce_any(model.optimizer._trepak.reducer.pending(variables)))


def is_broken(model: Any) -> bool:
    """Tells whether gradients are pending that can't be applied any more."""
    try:
        pending(model)
    except HorovodInternalError:
        return True
    return False


def fit(model: Any, **options: Any) -> Any:
    x, y = data()
    return model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, **options)


def reference(epochs: int = 1, **options: Any) -> list[np.ndarray]:
    model = compiled(overlapped=False, transport=None, **options)
    fit(model, epochs=epochs)
    return [np.asarray(weight) for weight in model.get_weights()]


def check_weights(model: Any, expected: list[np.ndarray]) -> None:
    for ours, theirs in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def stop_after(model: Any, batches: int) -> None:
    """Trains some batches in the middle of an epoch's function: the last one stays pending."""
    x, y = data()
    model.make_train_function()
    batched = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    iterator = iter(batched)
    for _ in range(batches):
        model.train_function(iterator)


@case
def steps_stay_pending_until_something_looks() -> None:
    x, y = data()
    looks: dict[str, Callable[[Any], Any]] = {
        "evaluate": lambda model: model.evaluate(x, y, verbose=0),
        "predict": lambda model: model.predict(x, verbose=0),
        "test_on_batch": lambda model: model.test_on_batch(x, y),
        "predict_on_batch": lambda model: model.predict_on_batch(x),
        "get_weights": lambda model: model.get_weights(),
        "save": lambda model: model.save(Path(tempfile.mkdtemp()) / "model.keras"),
        "save_weights": lambda model: model.save_weights(
            Path(tempfile.mkdtemp()) / "model.weights.h5"
        ),
    }
    expected = reference()
    for name, look in looks.items():
        model = compiled()
        stop_after(model, BATCHES)
        assert pending(model), name
        look(model)
        assert not pending(model), name
        check_weights(model, expected)


@case
def saved_weights_are_finished_ones() -> None:
    model, path = compiled(), Path(tempfile.mkdtemp()) / "model.weights.h5"
    stop_after(model, BATCHES)
    model.save_weights(path)
    other = dense_model()
    other.load_weights(path)
    for saved, mine in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(saved, mine)


@case
def nothing_is_pending_at_the_end_of_epochs() -> None:
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(pending(self.model))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(pending(self.model))

    for listed in (False, True):
        model, look = compiled(), Look()
        given = keras.callbacks.CallbackList([look], True, model=model) if listed else [look]
        seen.clear()
        fit(model, epochs=2, callbacks=given)
        assert seen == ([True] * BATCHES + [False]) * 2, seen
        assert getattr(given, "callbacks", given)[0] is look
        check_weights(model, reference(epochs=2))


@case
def nothing_is_pending_after_single_batches_and_blocks() -> None:
    model = compiled()
    x, y = data()
    model.train_on_batch(x[:BATCH], y[:BATCH])
    assert not pending(model)
    model = compiled(steps_per_execution=4)
    seen = []
    block_end = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(pending(model))
    )
    fit(model, callbacks=[block_end])
    assert seen == [False, False], seen
    check_weights(model, reference())


@case
def a_learning_rate_acts_on_the_step_it_was_set_for() -> None:
    def train(model: Any) -> list[np.ndarray]:
        def set_rate(batch: int, logs: Any) -> None:
            model.optimizer.learning_rate = 0.02 / (1 + batch)

        fit(model, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_begin=set_rate)])
        return [np.asarray(weight) for weight in model.get_weights()]

    for ours, theirs in zip(
        train(compiled()), train(compiled(overlapped=False, transport=None)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@case
def datasets_of_unknown_length_lose_nothing() -> None:
    x, y = data()

    def batches() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        return dataset.filter(lambda x, y: True)

    for options in ({}, {"steps_per_execution": 4}):
        model = compiled(**options)
        model.fit(batches(), epochs=2, verbose=0)
        check_weights(model, reference(epochs=2))


@case
def obstacles_are_named() -> None:
    cases: dict[str, Any] = {
        "global_clipnorm": keras.optimizers.SGD(0.1, global_clipnorm=1.0),
        "use_ema": keras.optimizers.SGD(0.1, use_ema=True),
        "_backend_update_step": keras.optimizers.Nadam(0.1),
        "several passes": keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        "scaled": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
    }
    x, y = data()
    for text, plain in cases.items():
        model = dense_model()
        model.compile(wrapped()(plain), loss="mse", jit_compile=False)
        trepak.overlap(model)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.train_on_batch(x[:BATCH], y[:BATCH])
        said = [str(one.message) for one in caught if "does not overlap" in str(one.message)]
        assert len(said) == 1 and text in said[0], (text, said)


@case
def a_default_optimizer_overlaps_too() -> None:
    """Horovod's collectives carry what is pushed where no transport was asked for."""
    model = compiled(transport=None)
    stop_after(model, BATCHES)
    assert pending(model)
    check_weights(model, reference())
    other = compiled(transport=None)  # a second model in the same job
    fit(other, epochs=2)
    check_weights(other, reference(epochs=2))


@case
def steps_go_on_after_a_shutdown() -> None:
    expected = reference(epochs=2)
    model = compiled(transport=None)
    fit(model)
    hvd.shutdown()
    hvd.init()
    x, y = data()
    for first in range(0, len(x), BATCH):  # without what `fit` does at its beginning
        model.train_on_batch(x[first : first + BATCH], y[first : first + BATCH])
    check_weights(model, expected)
    fit(model)
    check_weights(model, reference(epochs=3))


@case
def a_step_that_nobody_applies_is_told() -> None:
    model = compiled(transport=None)
    for _ in range(2):  # also where the step that was traced before goes on
        stop_after(model, 2)
        hvd.barrier()  # a shutdown ends Horovod for all, and who still pushes would fail
        with pytest.warns(UserWarning, match="never applied"):
            hvd.shutdown()
        hvd.init()


@case
def a_step_that_is_lost_is_told() -> None:
    """Rank 0's last gradients wait for the others', who have ended Horovod meanwhile."""
    model = compiled(transport=None)
    first = hvd.rank() == 0
    stop_after(model, 2 if first else 1)
    hvd.barrier()
    deadline = time.monotonic() + 30
    while first and time.monotonic() < deadline and not is_broken(model):
        time.sleep(0.01)
    with pytest.warns(UserWarning, match="can't come any more" if first else "never applied"):
        hvd.shutdown()
    hvd.init()


@case
def half_a_step_is_told_and_a_new_optimizer_goes_on() -> None:
    x, y = data()
    model = compiled(transport=None)
    optimizer, variables = model.optimizer, model.trainable_variables
    optimizer.build(variables)

    def fail_late(broken: Any) -> None:
        if broken:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline and not is_broken(model):
                time.sleep(0.01)
            raise RuntimeError("broken")

    @tf.function
    def step(broken: Any) -> None:
        optimizer.begin_step()
        grads = [tf.ones(variable.shape) for variable in variables]
        with tf.control_dependencies([tf.py_function(fail_late, [broken], [])]):
            grads[0] = tf.identity(grads[0])
        optimizer.apply(grads, variables)

    step(False)
    optimizer.flush()
    weights = model.get_weights()
    with pytest.raises(tf.errors.UnknownError, match="broken"):
        step(True)
    with pytest.raises(HorovodInternalError, match="compiled with a new optimizer"):
        model.set_weights(weights)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse", jit_compile=False)
    model.set_weights(weights)
    fit(model)
    assert model.optimizer.iterations.numpy() == BATCHES


@case
def models_are_built_from_the_data_and_in_float64() -> None:
    x, y = data()
    before = keras.config.floatx()
    for floatx in (before, "float64"):
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(floatx)
        trained = []
        for overlapped in (True, False):
            keras.utils.set_random_seed(5)
            model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(3)])
            model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
            if overlapped:
                trepak.overlap(model)
            model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
            trained.append(model.get_weights())
        for ours, theirs in zip(*trained, strict=True):
            assert ours.dtype == floatx
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    keras.config.set_floatx(before)
    keras.config.set_dtype_policy(before)


@case
def a_model_may_be_compiled_anew() -> None:
    model = compiled(transport=None)
    fit(model)
    plain = keras.optimizers.SGD(0.1)
    model.compile(plain, loss="mse", jit_compile=False)
    x, y = data()
    model.evaluate(x, y, verbose=0)
    model.train_on_batch(x[:BATCH], y[:BATCH])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=True)
    with pytest.raises(ValueError, match="XLA"):
        model.train_on_batch(x[:BATCH], y[:BATCH])


@case
def others_go_on_after_a_rank_has_joined() -> None:
    """By windows: the kernels are larger than what is urgent."""
    variables = [keras.Variable(np.zeros(n, "float32")) for n in (400, 300_000)]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.build(variables)

    @tf.function
    def step() -> None:
        optimizer.begin_step()
        optimizer.apply([tf.ones(v.shape) for v in variables], variables)

    steps = [3 + 2 * rank for rank in range(hvd.size())]
    for _ in range(steps[hvd.rank()]):
        step()
    optimizer.flush()
    trepak.join()
    if hvd.rank() == hvd.size() - 1:
        for variable in variables:
            np.testing.assert_allclose(variable.numpy(), -sum(steps) / hvd.size(), rtol=1e-5)
