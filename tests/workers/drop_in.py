"""What a drop-in must take: copies, late first reductions, schedules, early ends, threads."""

from __future__ import annotations

import copy
import threading
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from alike import SGD, Adam, every_way, network, on_first, schedules, train
from bad_input import fails
from features import assert_same_on_all_ranks, some_data
from harness import case

import trepak
import trepak.keras as hvd


def passes_of(optimizer: Any) -> int:
    """Returns after how many passes an optimizer applies a sum, found out by using it."""
    variable = tf.Variable([0.0])
    for passes in range(1, 9):
        optimizer.apply([tf.constant([hvd.rank() + 1.0])], [variable])
        if float(variable[0]):
            mean = (hvd.size() + 1) / 2
            np.testing.assert_allclose(variable, [-mean * passes])
            return passes
    raise AssertionError("nothing was applied")


@case
def copies_of_an_optimizer_stay_distributed() -> Any:
    first = hvd.DistributedOptimizer(SGD(1.0), backward_passes_per_step=2)
    assert passes_of(copy.deepcopy(first)) == 2
    assert passes_of(type(first).from_config(first.get_config())) == 2
    assert passes_of(first) == 2
    scaled = hvd.DistributedOptimizer(
        keras.optimizers.LossScaleOptimizer(SGD(1.0), 1.0), backward_passes_per_step=2
    )
    assert passes_of(copy.deepcopy(scaled)) == 2


@case
def copies_that_are_plain_are_refused() -> Any:
    model = network(hvd.DistributedOptimizer(Adam(0.1)))
    train(model)
    cloned = keras.models.clone_model(model)
    cloned.compile_from_config(model.get_compile_config())
    for copied in (cloned, copy.deepcopy(model)):
        if hvd.size() > 1:
            words = ("not distributed", "DistributedOptimizer", "clone_model")
            fails(ValueError, lambda c=copied: train(c), "rank 0", *words)
        copied.compile(hvd.DistributedOptimizer(Adam(0.1)), "mse")
        train(copied)
        assert_same_on_all_ranks(copied)


@case
def wrapped_twice() -> Any:
    optimizer = hvd.DistributedOptimizer(SGD(1.0), backward_passes_per_step=2)
    assert hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2) is optimizer
    fails(ValueError, lambda: hvd.DistributedOptimizer(optimizer), "already", "passes")
    assert passes_of(optimizer) == 2


@case
def functions_whose_first_trace_does_not_reduce() -> Any:
    """Whatever is made lazily must not belong to the function that is traced."""
    ways: list[Any] = [
        *every_way(),
        {"backward_passes_per_step": 2},
        {"sync": trepak.ADPSGD()},
        {"sync": trepak.EagerSGD()},
    ]
    for way in ways:
        variable = tf.Variable([0.0, 0.0])
        optimizer = hvd.DistributedOptimizer(Adam(0.1), **way)

        @tf.function
        def step(reduce: bool, v: Any = variable, o: Any = optimizer) -> None:
            if reduce:
                o.apply([v + hvd.rank() + 1.0], [v])

        for reduce in (False, True, True):
            step(reduce)
        optimizer.flush()
        assert abs(float(variable[0])) > 1e-3, way
        seen = trepak.allgather(variable.value()[None]).numpy()
        np.testing.assert_array_equal(seen, np.broadcast_to(seen[0], seen.shape))

    source = tf.Variable([1.0])

    @tf.function
    def gradient(reduce: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = source * (hvd.rank() + 1.0)
        tape = hvd.DistributedGradientTape(tape) if reduce else tape
        return tape.gradient(loss, [source])[0]

    gradient(False)
    np.testing.assert_allclose(gradient(True), [(hvd.size() + 1) / 2])


@case
def a_schedule_counts_steps() -> Any:
    schedule = schedules.ExponentialDecay(1.0, 1, 0.5)
    v = tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(SGD(schedule), backward_passes_per_step=2)
    for _ in range(6):
        optimizer.apply([tf.constant([1.0])], [v])
    np.testing.assert_allclose(v, [-2 * (1 + 0.5 + 0.25)])
    assert (float(optimizer.learning_rate), int(optimizer.iterations)) == (0.125, 6)


@case
def xla_is_left_out_where_keras_decides() -> Any:
    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    model._resolve_auto_jit_compile = lambda: True
    model.compile(hvd.DistributedOptimizer(SGD(0.1)), "mse")
    assert model.jit_compile is False
    train(model)
    assert_same_on_all_ranks(model)


@case
def data_of_epochs_that_end_early() -> Any:
    """An epoch that ends with the shortest shard leaves each rank's data ready for the next one."""
    x, y = some_data(64, hvd.rank())
    taken: list[int] = []
    ended: list[int] = []

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 4 + hvd.rank()

        def __getitem__(self, index: int) -> Any:
            taken.append(index)
            return x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]

        def on_epoch_end(self) -> None:
            ended.append(len(taken))

    for workers in (1, 2):
        taken.clear()
        model = network(hvd.DistributedOptimizer(SGD(0.1)))
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        data = Batches(workers=workers)
        history = model.fit(data, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
        assert len(history.history["loss"]) == 3
        assert int(model.optimizer.iterations) == 12
        assert_same_on_all_ranks(model)
    assert len(ended) >= 6


@case
def threads_take_turns() -> Any:
    outcomes: list[str] = []

    def work(seed: int) -> None:
        try:
            model = network(hvd.DistributedOptimizer(SGD(0.1)), seed)
            train(model, broadcast=False, epochs=3)
            outcomes.append("trained")
        except Exception as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=work, args=(0,)) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 2 and all(o == "trained" or "thread" in o for o in outcomes), outcomes


@case
def replicas_are_refused() -> Any:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = network(hvd.DistributedOptimizer(SGD(0.1)))
        variable = tf.Variable([1.0])
        optimizer = hvd.DistributedOptimizer(SGD(0.1))
        fails(ValueError, lambda: optimizer.apply([tf.ones(1)], [variable]), "a process per device")
    if hvd.size() > 1:
        fails(ValueError, lambda: train(model), "MirroredStrategy", "horovodrun")


@case
def sources_that_are_local_to_a_tape() -> Any:
    local = keras.layers.Dense(3)

    class Model(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
            tape = trepak.PartialDistributedGradientTape(tape, local_layers=[local])
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    keras.utils.set_random_seed(0)
    model = Model([keras.Input((6,)), keras.layers.Dense(4), local])
    model.compile(Adam(0.1), "mse")
    train(model, epochs=2)
    assert_same_on_all_ranks(model.layers[0])


@case
def lengths_that_only_some_ranks_know() -> Any:
    for mine, others in ((2, 2), (2, 3), (3, 2)):
        batches = on_first(mine, others)
        x, y = some_data(8 * batches, hvd.rank())
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
        model = network(hvd.DistributedOptimizer(SGD(0.1)))
        data = on_first(data, data.filter(lambda *_: True))
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        model.fit(data, epochs=2, verbose=0, callbacks=callbacks)
        assert hvd.size() == 1 or int(model.optimizer.iterations) == 4, (mine, others)
        assert_same_on_all_ranks(model)
