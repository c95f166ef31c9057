"""Geryon's own promises, beyond the exactness of what it trains."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exactness import TRANSPORT, dense_model, wrapped
from harness import case

import trepak
import trepak.keras as hvd
from trepak.callbacks import PriorityThresholdTuning
from trepak.horovod_ext import exchange
from trepak.ops.engine import engine_counters
from trepak.tf_plugins import forward_order

BATCH, BATCHES = 4, 6
LATE_SECONDS = 3


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

    model = compiled()
    fit(model, epochs=2, callbacks=[Look()])
    assert seen == ([True] * BATCHES + [False]) * 2, seen
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
def places_follow_the_forward_pass() -> None:
    first, second, third = (keras.layers.Dense(3) for _ in range(3))
    conv = keras.layers.Conv1D(4, 2)
    for layer, shape in ((third, (4, 3)), (second, (4, 3)), (first, (4, 4)), (conv, (4, 8, 2))):
        layer.build(shape)
    layers = [third, conv, second, first]
    variables = [variable for layer in layers for variable in layer.trainable_variables]

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.reduce_mean(conv(x), 1)
            loss = tf.reduce_sum(third(second(first(hidden))))
        grads = tape.gradient(loss, variables)
        found.extend(forward_order.places(variables))
        return grads

    found: list[forward_order.Place] = []
    step(tf.ones([4, 8, 2]))
    expected = {third: (4, True), conv: (1, False), second: (3, True), first: (2, True)}
    assert found == [expected[layer] for layer in layers for _ in range(2)], found


@case
def bytes_leave_at_the_priority_of_the_map_table() -> None:
    """Layer 1 of 2 has urgency 0.5, above the threshold; layer 2 has 0."""
    model = compiled()
    fit(model)
    before = engine_counters()
    fit(model)
    after = engine_counters()
    sent = [b - a for a, b in zip(before.bytes_by_priority, after.bytes_by_priority, strict=True)]
    size = hvd.size()
    # What a rank pushes to others, and what its server answers others: in both directions, all but
    # its own share.
    layers = [sum(v.shape.num_elements() for v in layer.weights) for layer in model.layers]
    for got, elements in zip(sent, layers, strict=True):
        total = 4 * BATCHES * elements * (size - 1)
        everyone = int(hvd.allreduce(tf.constant(got), op=hvd.Sum))
        assert everyone == 2 * total, (sent, total)


@case
def choosing_priorities_takes_under_a_millisecond_per_step() -> None:
    """The least of some rounds: a machine that is busy elsewhere may halt a thread meanwhile."""
    model = compiled()
    fit(model)

    def lookup_seconds() -> float:
        before = engine_counters().lookup_seconds
        fit(model)
        return engine_counters().lookup_seconds - before

    assert min(lookup_seconds() for _ in range(5)) < 1e-3 * BATCHES


@case
def thresholds_are_tuned_alike_on_all_ranks() -> None:
    figure = Path(tempfile.mkdtemp()) / "curve.png"
    tuning = PriorityThresholdTuning((0.1, 0.4, 0.7), batches=2, figure=figure, verbose=0)
    model = compiled()
    fit(model, epochs=2, callbacks=[tuning])
    check_weights(model, reference(epochs=2))
    assert [trial.threshold for trial in tuning.trials] == [0.1, 0.4, 0.7]
    assert tuning.chosen is not None and 0.1 <= tuning.chosen <= 0.7
    found = exchange.gather([tuning.chosen, tuning.trials], "what was found")
    assert all(one == found[0] for one in found), found
    assert TRANSPORT.threshold == tuning.chosen
    assert figure.exists() == (hvd.rank() == 0)
    TRANSPORT.set_threshold(0.4)


@case
def short_trainings_keep_their_threshold() -> None:
    tuning = PriorityThresholdTuning(batches=50, verbose=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(compiled(), callbacks=[tuning])
    assert tuning.chosen is None
    assert any("has seen 6 of 255 batches" in str(one.message) for one in caught)
    TRANSPORT.set_threshold(0.4)


@case
def wrong_options_are_explained() -> None:
    for options, text in (
        ({"threshold": "fine"}, '"coarse" or a number'),
        ({"threshold": [0.5, 0.2]}, "2 priorities (dscp) need 1 thresholds, got 2"),
        ({"threshold": [0.2, 0.5], "dscp": (46, 34, 0)}, "that fall"),
        ({"threshold": 1.5}, "from 0 to 1"),
        ({"dscp": (46, 99)}, "0 to 63"),
        ({"slice_elements": -1}, "must not be negative"),
        ({"servers": []}, "at least one rank"),
    ):
        try:
            trepak.Geryon(**options)
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")
    misuse: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: wrapped_with("flows"), "transport must"),
        (lambda: trepak.overlap(dense_model()), "overlap() needs a model"),
        (lambda: PriorityThresholdTuning((0.1, 0.2)), "at least 3 different urgencies"),
        (lambda: PriorityThresholdTuning(batches=0), "batches must be at least 1"),
        (
            lambda: fit(
                compiled(overlapped=False, transport=None), callbacks=[PriorityThresholdTuning()]
            ),
            "needs DistributedOptimizer(..., transport=Geryon())",
        ),
        (
            lambda: fit(
                compiled(overlapped=False, sync=trepak.ASP()),
                callbacks=[PriorityThresholdTuning()],
            ),
            "PriorityThresholdTuning is for sync=BSP()",
        ),
    )
    for call, text in misuse:
        try:
            call()
        except (TypeError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")


@case
def late_server_loses_nothing() -> None:
    """Rank 1, a worker and a server, stands still for a while: the others wait for it."""
    expected = reference()
    fit(compiled())  # starts the servers
    began = time.monotonic()
    if hvd.rank() == 1:
        pause = f"kill -STOP {os.getpid()}; sleep {LATE_SECONDS}; kill -CONT {os.getpid()}"
        subprocess.Popen(["sh", "-c", f"sleep 0.3; {pause}"], stdin=subprocess.DEVNULL)
    while any(trepak.allgather_object(time.monotonic() - began < LATE_SECONDS + 1)):
        model = compiled()
        fit(model)
        check_weights(model, expected)


@case
def tapes_of_elastic_jobs_are_refused() -> None:
    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        trepak.DistributedGradientTape(tf.GradientTape(), transport=TRANSPORT)
    except ValueError as error:
        assert "elastic" in str(error)
    else:
        raise AssertionError("no error")
    finally:
        del os.environ["HOROVOD_ELASTIC"]


def wrapped_with(transport: Any) -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.SGD(), transport=transport)
