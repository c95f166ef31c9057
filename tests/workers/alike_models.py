"""Ranks that come to `fit` by other ways train alike, or what differs is refused."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from alike import SGD, Adam, network, on_first, train
from bad_input import fails
from features import assert_same_on_all_ranks, some_data
from harness import case

import trepak
import trepak.keras as hvd
from trepak.tf_plugins.model import turns

OUT = Path(os.environ["OUT"])
Broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback


class Lazy(keras.Model):
    """Makes its variables when it is first called."""

    def __init__(self, tells: bool = True) -> None:
        super().__init__()
        self.first, self.second = keras.layers.Dense(4, "tanh"), keras.layers.Dense(3)
        self.tells = tells

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))

    def get_build_config(self) -> Any:
        return super().get_build_config() if self.tells else None


@case
def models_that_one_rank_alone_has_built() -> Any:
    """The root's weights are there before the first step, also where it alone has loaded them."""
    for builder in range(hvd.size()):
        for broadcast in (True, False):
            keras.utils.set_random_seed(hvd.rank())
            model = Lazy()
            model.compile(hvd.DistributedOptimizer(SGD(0.0, momentum=0.9)), "mse")
            if hvd.rank() == builder:
                model(np.zeros((1, 6), "float32"))
                model.save_weights(OUT / f"{builder}.weights.h5")
                model.load_weights(OUT / f"{builder}.weights.h5")
            callbacks = [Broadcast(builder)] if broadcast else []
            train(model, *callbacks, broadcast=False, epochs=2)
            assert_same_on_all_ranks(model)
            trepak.compare_ranks(model)
            if hvd.rank() == builder and (broadcast or builder == 0):
                before = Lazy()
                before(np.zeros((1, 6), "float32"))
                before.load_weights(OUT / f"{builder}.weights.h5")
                for old, new in zip(before.weights, model.weights, strict=True):
                    np.testing.assert_array_equal(old, new)


@case
def models_that_one_rank_alone_has_built_and_keras_cannot() -> Any:
    """All ranks get the root's weights after the first batch, then."""
    for builder in range(hvd.size()):
        keras.utils.set_random_seed(hvd.rank())
        model = Lazy(tells=False)
        model.compile(hvd.DistributedOptimizer(Adam(0.01)), "mse")
        if hvd.rank() == builder:
            model(np.zeros((1, 6), "float32"))
        train(model, epochs=2)
        assert_same_on_all_ranks(model)
        model = Lazy(tells=False)
        model.compile(hvd.DistributedOptimizer(Adam(0.01)), "mse")
        if hvd.rank() == builder:
            model(np.zeros((1, 6), "float32"))
        if hvd.size() > 1:
            words = ("after a step", "BroadcastGlobalVariablesCallback", "build the model before")
            fails(ValueError, lambda m=model: train(m, broadcast=False), *words)


WAYS: dict[str, Any] = {
    "plain": dict,
    "geryon": lambda: {"transport": trepak.Geryon()},
    "passes": lambda: {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
    "rna": lambda: {"sync": trepak.RNA()},
    "ssp": lambda: {"sync": trepak.SSP(3)},
}


def loaded(model: Any, way: str) -> Any:
    """Returns a copy of a model and its state as another process would load it."""
    path = OUT / f"{way}-{hvd.rank()}.keras"
    model.save(path)
    model = keras.models.load_model(path)
    optimizer = hvd.DistributedOptimizer(model.optimizer, **WAYS[way]())
    model.compile(optimizer, "mse")
    return model


@case
def models_that_one_rank_alone_makes_anew() -> Any:
    """Between two fits: the next one goes on as if all ranks had, or none."""
    x, y = some_data(32, 0)  # the same on all ranks, so that one process takes the same steps
    options = {"batch_size": 8, "verbose": 0, "shuffle": False}
    for way in WAYS:
        for again in (loaded, compiled_again) if way == "plain" else (compiled_again,):
            model = network(hvd.DistributedOptimizer(SGD(0.1), **WAYS[way]()))
            alone = network(SGD(0.1, gradient_accumulation_steps=2 if way == "passes" else None))
            alone.set_weights(model.get_weights())
            for last in (False, False, True):
                model.fit(x, y, callbacks=[Broadcast(0)], **options)
                alone.fit(x, y, **options)
                assert_same_on_all_ranks(model)
                model = model if last or hvd.rank() else again(model, way)
            if way in ("plain", "geryon", "passes"):
                for ours, theirs in zip(model.get_weights(), alone.get_weights(), strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6, err_msg=way)


def compiled_again(model: Any, way: str) -> Any:
    model.compile(hvd.DistributedOptimizer(SGD(0.1), **WAYS[way]()), "mse")
    return model


@case
def overlapped_models_that_one_rank_alone_makes_anew() -> Any:
    x, y = some_data(32, 0)
    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    alone = network(SGD(0.1))
    alone.set_weights(model.get_weights())
    trepak.overlap(model)
    for last in (False, True):
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=[Broadcast(0)])
        alone.fit(x, y, batch_size=8, verbose=0, shuffle=False)
        if hvd.rank() == 0 and not last:
            model.compile(hvd.DistributedOptimizer(SGD(0.1)), "mse")
    for ours, theirs in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


class Taped(keras.Model):
    """Trains by a tape that reduces."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@case
def models_with_tapes_that_one_rank_alone_makes_anew() -> Any:
    model = Taped()
    model.compile(SGD(0.1))
    for last in (False, True):
        train(model)
        assert_same_on_all_ranks(model)
        if hvd.rank() == 0 and not last:
            model = Taped()
            model.compile(SGD(0.1))


@case
def layers_that_one_rank_alone_freezes_later() -> Any:
    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    train(model)
    if hvd.rank() == 0:
        model.layers[0].trainable = False
        model.compile(model.optimizer, "mse")
    if hvd.size() > 1:
        fails(ValueError, lambda: train(model), "rank 0", "the same ones trainable")


@case
def options_of_the_model_that_differ() -> Any:
    if hvd.size() == 1:
        return
    model = network(hvd.DistributedOptimizer(SGD(0.1)), run_eagerly=hvd.rank() == 0)
    fails(ValueError, lambda: train(model), "run_eagerly is False", "True on rank 0")
    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    last = hvd.size() - 1
    own = Broadcast(on_first(0, last))
    words = ("root_rank", f"is {last} on rank", "0 on rank 0")
    fails(ValueError, lambda: train(model, own, broadcast=False), *words)
    if hvd.rank() > 0:
        model.optimizer.register_local_var(model.layers[0].kernel)
    fails(ValueError, lambda: train(model), "register_local_var", "rank 0")
    optimizer = hvd.DistributedOptimizer(SGD(on_first(0.1, 0.2)))
    step = (lambda: optimizer.apply([tf.ones(1)], [keras.Variable([1.0])]),)
    said = fails(ValueError, *step, "learning_rate", "give all ranks the same learning rate")
    assert "callback" not in said, said


@case
def attributes_in_another_order() -> Any:
    optimizer = SGD(0.1)
    for name in on_first(("one", "two"), ("two", "one")):
        setattr(optimizer, name, 1)
    model = network(hvd.DistributedOptimizer(optimizer))
    train(model)
    assert_same_on_all_ranks(model)
    optimizer.two = on_first(1, 2)
    if hvd.size() > 1:
        fails(ValueError, lambda: train(model), "the optimizer's two is 2 on", "1 on rank 0")


def batches(count: int) -> Any:
    """A data set of unknown length."""
    x, y = some_data(8, 0)
    signature = (tf.TensorSpec((8, 6)), tf.TensorSpec((8, 3)))
    return tf.data.Dataset.from_generator(
        lambda: ((x, y) for _ in range(count)), output_signature=signature
    )


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        raise KeyError


@case
def steps_after_ranks_went_in_lockstep() -> Any:
    """Neither an end nor an exception leaves an exchange before each step behind."""
    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    for callbacks in ([], [Fails()]):
        try:
            model.fit(batches(2 + hvd.rank()), verbose=0, callbacks=[Broadcast(0), *callbacks])
        except KeyError:
            pass
        x, y = some_data(8, 0)
        for _ in range(2 + hvd.rank()):
            model.train_on_batch(x, y)
        hvd.join()


class Watches(keras.layers.Layer):
    """Keeps a mean of its inputs, in inference too, and an integer buffer of each rank's own."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.last = self.add_weight(
            shape=(8, 6), dtype="uint8", initializer="zeros", trainable=False
        )

    def call(self, x: Any, training: Any = None) -> Any:
        self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(x, 0))
        if training:
            self.last.assign(tf.cast(tf.abs(x) * 10, tf.uint8))
        return x


@case
def state_that_validation_moves() -> Any:
    """It is the ranks' mean at the epoch's end, also where some ranks alone validate."""
    for validates in (True, hvd.rank() == 0):
        model = network(
            hvd.DistributedOptimizer(SGD(0.1)), layers=[Watches(), keras.layers.Dense(3)]
        )
        data = some_data(16, hvd.rank()) if validates else None
        train(model, epochs=2, validation_data=data)
        means = trepak.allgather(tf.convert_to_tensor(model.layers[0].mean)[None]).numpy()
        assert all(one.tobytes() == means[0].tobytes() for one in means)


@case
def quantized_weights_that_differ() -> Any:
    model = network(SGD(0.1), layers=[keras.layers.Dense(8), keras.layers.Dense(3)])
    model.layers[0].quantize("int8")
    model.compile(hvd.DistributedOptimizer(SGD(0.1)), "mse")
    trepak.broadcast_variables(model.weights, 0)
    trepak.compare_ranks(model)
    kernel = next(v for v in model.layers[0].weights if v.dtype == "int8")
    kernel.assign(kernel + tf.cast(hvd.rank(), tf.int8))
    if hvd.size() > 1:
        fails(ValueError, lambda: trepak.compare_ranks(model), "int8", "rank 0")


@case
def half_sums_that_differ() -> Any:
    """After join() or an exception, the next fit begins with empty sums, on all ranks."""
    if hvd.size() == 1:
        return  # nobody to agree with
    x, y = some_data(16, 0)
    options = {"batch_size": 8, "verbose": 0, "shuffle": False, "callbacks": [Broadcast(0)]}
    weights = []
    for dirt in ("none", "join", "exception"):
        inner = keras.optimizers.Adam(0.1)
        model = network(hvd.DistributedOptimizer(inner, backward_passes_per_step=2))
        first = model.get_weights()
        model.train_on_batch(x[:8], y[:8])
        model.train_on_batch(x[:8], y[:8])
        if dirt == "join":
            for _ in range(hvd.rank() % 2):
                model.train_on_batch(x[:8], y[:8])
            hvd.join()
        elif dirt == "exception":
            try:
                train(model, Fails())
            except KeyError:
                pass
        model.set_weights(first)
        for slot in inner.variables[2:]:
            slot.assign(tf.zeros_like(slot))
        model.fit(x, y, **options)
        assert_same_on_all_ranks(model)
        assert int(inner.iterations) == 4, (dirt, int(inner.iterations))
        weights.append(model.get_weights())
    for others in weights[1:]:
        for clean, other in zip(weights[0], others, strict=True):
            np.testing.assert_allclose(other, clean, rtol=1e-5, atol=1e-6)


def in_thread(work: Any) -> Any:
    """Runs something in a thread of its own; returns what it says if it fails."""
    said: list[str] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            said.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return said


@case
def a_thread_on_one_rank() -> Any:
    """Ranks that train one model each do so in whatever thread, of whatever number."""
    for own in (True, False):
        if hvd.rank() == 0:
            in_thread(lambda: None)  # the next one has another number
        model = network(hvd.DistributedOptimizer(SGD(0.1)))
        if own or hvd.rank() == 0:
            said = in_thread(lambda m=model: train(m))
            assert not said, said
        else:
            train(model)
        assert_same_on_all_ranks(model)


@case
def threads_in_another_order() -> Any:
    """Two models of two threads, which ranks train in another order, are told apart."""
    models = [network(hvd.DistributedOptimizer(SGD(0.1)), seed) for seed in (0, 1)]
    begun = threading.Event()
    said: list[str] = []

    class Waits(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            begun.set()
            end = time.monotonic() + 20
            while len(turns._training) < 2 and not said and time.monotonic() < end:
                time.sleep(0.01)

    def work(number: int) -> None:
        try:
            if number != min(hvd.rank(), 1):
                begun.wait(20)
            train(models[number], Waits(), broadcast=False)
        except Exception as error:
            said.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if hvd.size() > 1:
        assert len(said) == 2 and all("several threads train at once" in one for one in said), said
