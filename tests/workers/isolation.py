"""What keeps ranks, optimizers, functions and process sets from getting in each other's way."""

from __future__ import annotations

import os
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from features import assert_same_on_all_ranks, small_model, some_data
from harness import case

import trepak
import trepak.keras as hvd

# All ranks but the last, as a set of their own.
_SIZE = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("HOROVOD_SIZE", "1"))
LOWER = hvd.ProcessSet(list(range(max(1, _SIZE - 1))))
PROCESS_SETS = [LOWER] if _SIZE > 1 else []  # of all ranks is the global one: there is no second


@case
def local_variables() -> Any:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    shared, local = keras.Variable([0.0]), keras.Variable([0.0])
    optimizer.register_local_var(local)
    mine = float(hvd.rank() + 1)
    optimizer.apply([tf.constant([mine]), tf.constant([mine])], [shared, local])
    np.testing.assert_allclose(shared.numpy(), [-(hvd.size() + 1) / 2])
    np.testing.assert_allclose(local.numpy(), [-mine / hvd.size()], rtol=1e-6)


@case
def computed_gradients_are_reduced_once() -> Any:
    for op in (hvd.Average, hvd.Sum):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=op)
        v = tf.Variable([0.0])
        pairs = optimizer.compute_gradients(lambda v=v: v * (hvd.rank() + 1.0), [v])
        mean = (hvd.size() + 1) / 2
        expected = mean if op == hvd.Average else mean * hvd.size()
        np.testing.assert_allclose(pairs[0][0], [expected])
        optimizer.apply_gradients([(grad * 2.0, w) for grad, w in pairs])  # changed, as by clipping
        np.testing.assert_allclose(v, [-2 * expected])
        optimizer.apply_gradients([(tf.constant([1.0]), v)])  # the next ones are reduced again
        np.testing.assert_allclose(v, [-2 * expected - (1 if op == hvd.Average else hvd.size())])


def delayed(value: Any, slow: bool) -> Any:
    """Passes a tensor on, on one rank after a while: ranks reach its collective in other orders.

    Its gradient waits as long. It is no `tf.py_function`, which keeps what its gradient needs under
    the name of the node, where two calls of one function, at one time, take it from each other.
    """

    def wait(x: Any) -> Any:
        time.sleep(0.2 if slow else 0.0)
        return x

    @tf.custom_gradient
    def passed_on(x: Any) -> Any:
        result = tf.ensure_shape(tf.numpy_function(wait, [x], x.dtype), x.shape)

        def gradient(upstream: Any) -> Any:
            with tf.control_dependencies([result]):
                return tf.identity(upstream)

        return result, gradient

    return passed_on(value)


@case
def tapes_in_two_functions_keep_apart() -> Any:
    """As in a GAN: two functions, called in one graph, reduce gradients of equal shapes."""
    first, second = tf.Variable(tf.ones([2])), tf.Variable(tf.ones([2]))

    def gradient_of(v: Any, factor: float, slow: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(delayed(v * factor, slow))
        return hvd.DistributedGradientTape(tape).gradient(loss, [v])[0]

    one = tf.function(lambda: gradient_of(first, 1.0, hvd.rank() == 0))
    other = tf.function(lambda: gradient_of(second, 100.0, hvd.rank() == 1))
    again = tf.function(lambda: gradient_of(first, 7.0, hvd.rank() == 0))

    @tf.function
    def both() -> Any:
        return one(), other(), again(), one()

    for _ in range(3):
        got = [float(g[0]) for g in both()]
        assert got == [1.0, 100.0, 7.0, 1.0], got


@case
def two_optimizers_in_one_step() -> Any:
    first, second = tf.Variable([0.0]), tf.Variable([0.0])
    optimizers = [hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)) for _ in "ab"]

    def apply(index: int, v: Any, value: float) -> None:
        optimizers[index].apply([delayed(tf.constant([value]), hvd.rank() == index)], [v])

    one = tf.function(lambda: apply(0, first, 1.0))
    other = tf.function(lambda: apply(1, second, 100.0))

    @tf.function
    def both() -> None:
        one()
        other()
        one()

    both()
    assert (float(first[0]), float(second[0])) == (-2.0, -100.0)


@case
def reduces_again_outside_a_loss_scale_optimizer() -> Any:
    inner = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    scaled = keras.optimizers.LossScaleOptimizer(inner, initial_scale=1.0)
    v = tf.Variable([0.0])
    mean = (hvd.size() + 1) / 2
    scaled.apply([tf.constant([hvd.rank() + 1.0])], [v])
    np.testing.assert_allclose(v, [-mean])
    inner.apply([tf.constant([hvd.rank() + 1.0])], [v])
    np.testing.assert_allclose(v, [-2 * mean])


@case
def a_copy_from_config_shares_nothing() -> Any:
    first = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    second = type(first).from_config(first.get_config())
    v, w = tf.Variable([0.0]), tf.Variable([0.0])
    first.apply([tf.constant([1.0])], [v])
    second.apply([tf.constant([10.0])], [w])
    assert float(v[0]) == float(w[0]) == 0.0
    first.apply([tf.constant([1.0])], [v])
    assert (float(v[0]), float(w[0])) == (-2.0, 0.0)


@case
def gradients_that_come_later_are_summed_too() -> Any:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    v, w = tf.Variable([0.0]), tf.Variable([0.0])
    one = tf.constant([1.0])
    optimizer.apply([one, None], [v, w])
    optimizer.apply([None, one * 5.0], [v, w])
    assert (float(v[0]), float(w[0])) == (-1.0, -5.0)
    try:
        optimizer.apply([one], [w])
    except ValueError as error:
        assert "same passes" in str(error)
    else:
        raise AssertionError("other variables were accepted")


@case
def local_layers() -> Any:
    model = small_model("sgd")
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.1), local_layers=model.layers[-1]
    )
    model.compile(optimizer, loss="mse")
    x, y = some_data(16, hvd.rank())
    local = model.layers[-1].trainable_weights
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local)
    model.fit(x, y, verbose=0, callbacks=[callback])
    first = hvd.allgather(np.reshape(model.weights[0], (1, -1))).numpy()
    last = hvd.allgather(np.reshape(model.weights[-2], (1, -1))).numpy()
    assert first[0].tobytes() == first[-1].tobytes()
    assert hvd.size() == 1 or last[0].tobytes() != last[-1].tobytes()


@case
def captured_eager_tensors() -> Any:
    captured = [tf.ones([2]), tf.ones([3])]

    @tf.function
    def reduce() -> Any:
        return trepak.grouped_allreduce(captured, op=trepak.Sum)

    for tensor in reduce():
        np.testing.assert_allclose(tensor, np.full(tensor.shape, hvd.size()))


@case
def sync_batch_norm_on_ranks_that_number_layers_differently() -> Any:
    if hvd.rank() == 0:
        hvd.SyncBatchNormalization()(tf.ones([2, 3]))  # as if it had loaded another model
    layers = [hvd.SyncBatchNormalization() for _ in "ab"]
    dense = keras.layers.Dense(4)
    model = keras.Sequential([keras.Input((6,)), layers[0], dense, layers[1]])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    x = some_data(16, hvd.rank())[0]
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, x[:, :4], batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    assert_same_on_all_ranks(model)


@case
def process_sets() -> Any:
    """The ranks of a set train together; a rank outside keeps its own gradients."""
    if hvd.size() == 1:
        return
    v = tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=LOWER)
    optimizer.apply([tf.constant([float(hvd.rank() + 1)])], [v])
    mean = (LOWER.size() + 1) / 2
    expected = mean if hvd.rank() in LOWER.ranks else hvd.rank() + 1
    np.testing.assert_allclose(v.numpy(), [-expected], rtol=1e-6)


@case
def process_sets_that_each_fit() -> Any:
    """Steps, broadcast, metrics and comparisons are those of the set; others train alone."""
    if hvd.size() == 1:
        return
    inside = hvd.rank() in LOWER.ranks
    keras.utils.set_random_seed(hvd.rank())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), process_set=LOWER)
    model = small_model(optimizer, metrics=["mae"])
    rows = 16 + 8 * hvd.rank()
    x, y = some_data(rows, hvd.rank())
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(LOWER.ranks[-1]),
        hvd.callbacks.MetricAverageCallback(),
    ]
    epochs = 3 if inside else 1 + hvd.rank()  # who is outside has epochs of its own
    history = model.fit(x, y, batch_size=8, epochs=epochs, verbose=0, callbacks=callbacks)
    assert int(optimizer.iterations) == epochs * (2 if inside else rows // 8)
    if inside:
        first = np.concatenate([np.ravel(w) for w in model.get_weights()])
        seen = trepak.allgather(first[None], process_set=LOWER).numpy()
        assert all(row.tobytes() == seen[0].tobytes() for row in seen)
        logs = np.array([history.history["mae"]])
        logged = trepak.allgather(logs, process_set=LOWER).numpy()
        np.testing.assert_array_equal(logged, np.broadcast_to(logged[0], logged.shape))


@case
def tape_over_watched_tensors() -> Any:
    """Sources may be plain tensors, which have no names and are new in every step."""
    for _ in range(3):
        x = tf.ones([3]) * (hvd.rank() + 1)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(x * x)
        grad = hvd.DistributedGradientTape(tape).gradient(y, x)
        np.testing.assert_allclose(grad, np.full(3, hvd.size() + 1.0))


@case
def ranks_of_a_set_average_among_themselves() -> Any:
    """With local SGD, whose learning rate is scaled by their number."""
    if hvd.size() == 1:
        return
    size = len(LOWER.ranks)
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), sync=trepak.LocalSGD(H=2), process_set=LOWER
    )
    v = tf.Variable([0.0])
    step = tf.function(lambda: optimizer.apply([tf.constant([1.0 + hvd.rank()])], [v]))
    step()
    inside = hvd.rank() < size
    factor = size**0.5 if inside else 1.0
    np.testing.assert_allclose(v, [-factor * (1 + hvd.rank())], rtol=1e-6)
    step()
    step()
    optimizer.flush()
    gradient = 1 + (size - 1) / 2 if inside else 1 + hvd.rank()
    np.testing.assert_allclose(v, [-3 * factor * gradient], rtol=1e-6)
