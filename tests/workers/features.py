"""What the optimizer, the tape and the collectives promise beyond plain exactness."""

from __future__ import annotations

from typing import Any

import exactness
import keras
import numpy as np
import tensorflow as tf
from harness import add, case

import trepak
import trepak.keras as hvd


def small_model(optimizer: Any, **options: Any) -> Any:
    model = exactness.dense_model()
    model.compile(optimizer, loss="mse", **options)
    return model


def some_data(rows: int = 32, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6)).astype("float32")
    return x, rng.normal(size=(rows, 3)).astype("float32")


def assert_same_on_all_ranks(model: Any) -> None:
    for w in model.weights:
        seen = hvd.allgather(np.reshape(np.asarray(w), (1, -1))).numpy()
        assert all(row.tobytes() == seen[0].tobytes() for row in seen), w.path


@case
def mixed_float16_is_reduced_before_it_is_checked() -> Any:
    """One rank's inf must skip the step on all ranks: model.compile() wraps the optimizer."""
    keras.config.set_dtype_policy("mixed_float16")
    keras.utils.set_random_seed(1)
    model = exactness.dense_model()
    keras.config.set_dtype_policy("float32")
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    x, y = some_data(40, hvd.rank())
    if hvd.rank() == hvd.size() - 1:
        y[8:16] = np.inf  # the second of five batches, on the last rank only
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert_same_on_all_ranks(model)
    optimizer = model.optimizer
    assert int(optimizer.inner_optimizer.iterations) == 4, "one of five steps is skipped"
    assert float(optimizer.dynamic_scale) == optimizer.initial_scale / 2
    assert all(np.isfinite(w).all() for w in model.get_weights())
    return float(optimizer.dynamic_scale)


@case
def loss_scale_with_accumulation_agrees_on_an_inf() -> Any:
    inner = keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner, 1024.0))
    keras.utils.set_random_seed(1)
    model = small_model(optimizer)
    x, y = some_data(48, hvd.rank())
    if hvd.rank() == 0:
        y[8:16] = np.inf
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert_same_on_all_ranks(model)
    return int(inner._iterations)


def in_two_groups(optimizer: Any) -> Any:
    first, second = exactness.dense_model().trainable_variables[:2]
    return hvd.DistributedOptimizer(optimizer, groups=[[first], [second]])


def summing(optimizer: Any) -> Any:
    """Summed gradients with a rate of r are averaged ones with a rate of r·n."""
    optimizer.learning_rate = 0.05 / hvd.size()
    return hvd.DistributedOptimizer(optimizer, op=hvd.Sum)


def sgd() -> Any:
    return keras.optimizers.SGD(0.05)


# Forward and backward run in 11 bits on both sides, in other batches.
HALF: dict[str, Any] = {"policy": "mixed_float16", "rtol": 5e-3, "atol": 5e-4}
EAGER: dict[str, Any] = {"compile_options": {"run_eagerly": True}}
add(__name__, "mixed_float16_exactness", exactness.comparison(sgd, **HALF))
add(__name__, "run_eagerly", exactness.comparison(lambda: keras.optimizers.Adam(0.01), **EAGER))
add(__name__, "groups_of_variables", exactness.comparison(sgd, wrap=in_two_groups))
add(__name__, "sum_op", exactness.comparison(sgd, wrap=summing))


@case
def backward_passes_sum_by_default() -> Any:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=3)
    v = tf.Variable([0.0])
    for step in range(6):
        optimizer.apply_gradients([(tf.constant([float(hvd.rank() + 1)]), v)])
        assert int(optimizer.iterations) == step + 1
    mean = (hvd.size() + 1) / 2
    np.testing.assert_allclose(v.numpy(), [-2 * 3 * mean], rtol=1e-6)


@case
def buckets_give_the_bits_of_one_group() -> Any:
    """The default reduces several buckets; with two ranks no order of sums can differ."""
    calls = []
    original = trepak.horovod_ext.collectives.grouped_allreduce

    def noted(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(len(tensors))
        return original(tensors, *args, **kwargs)

    def trained(groups: int | None) -> list[Any]:
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(700, "relu") for _ in range(3)]
        model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(3)])
        optimizer = keras.optimizers.Adam(0.01, global_clipnorm=0.5)
        model.compile(hvd.DistributedOptimizer(optimizer, groups=groups), loss="mse")
        model.fit(*some_data(32, hvd.rank()), batch_size=8, shuffle=False, verbose=0)
        assert_same_on_all_ranks(model)
        return list(model.get_weights())

    trepak.horovod_ext.collectives.grouped_allreduce = noted
    try:
        one = trained(1)
        assert hvd.size() == 1 or set(calls) == {8}
        calls.clear()
        several = trained(None)
        # Two kernels of 2 MB each, and what is small.
        assert hvd.size() == 1 or sorted(calls)[-3:] == [1, 1, 6]
    finally:
        trepak.horovod_ext.collectives.grouped_allreduce = original
    for a, b in zip(one, several, strict=True):
        same = a.tobytes() == b.tobytes()
        assert same or (hvd.size() > 2 and np.allclose(a, b, rtol=1e-5, atol=1e-6))


@case
def reduces_once_per_real_step() -> Any:
    """Counts the allreduces of accumulation, by looking at when weights change."""
    seen = []
    original = trepak.horovod_ext.collectives.grouped_allreduce

    def counting(tensors: Any, **kwargs: Any) -> Any:
        reduced = original(tensors, **kwargs)
        with tf.control_dependencies(reduced):
            tf.py_function(lambda: seen.append(1), [], [])
        return reduced

    trepak.horovod_ext.collectives.grouped_allreduce = counting
    try:
        for options, settings in (
            ({"backward_passes_per_step": 4}, {}),
            ({}, {"gradient_accumulation_steps": 4}),
        ):
            seen.clear()
            optimizer = keras.optimizers.SGD(0.1, **settings)
            model = small_model(hvd.DistributedOptimizer(optimizer, **options))
            x, y = some_data(64)
            model.fit(x, y, batch_size=8, verbose=0)
            expected = 2 if hvd.size() > 1 else 0
            assert len(seen) == expected, f"8 passes, 4 per step, but {len(seen)} reductions"
    finally:
        trepak.horovod_ext.collectives.grouped_allreduce = original


@case
def mixed_sparse_and_dense_group() -> Any:
    n, r = hvd.size(), hvd.rank()
    slices = tf.IndexedSlices(tf.ones([1, 2]) * r, tf.constant([r]), tf.constant([n, 2]))
    dense, sparse = hvd_grouped([tf.ones([3]) * r, slices])
    np.testing.assert_allclose(dense, np.full(3, (n - 1) / 2))
    expected = np.repeat(np.arange(n)[:, None], 2, 1) / n
    np.testing.assert_allclose(tf.convert_to_tensor(sparse), expected, rtol=1e-6)
    assert list(sparse.dense_shape.numpy()) == [n, 2]


def hvd_grouped(tensors: Any) -> Any:
    return trepak.grouped_allreduce(tensors, name="mixed")


@case
def keras_variables_in_collectives() -> Any:
    variable = keras.Variable([float(hvd.rank())])
    np.testing.assert_allclose(trepak.allreduce(variable), [(hvd.size() - 1) / 2])
    trepak.broadcast_variables([variable], root_rank=hvd.size() - 1)
    np.testing.assert_allclose(variable.numpy(), [hvd.size() - 1])


@case
def sync_batch_norm_normalizes_as_one() -> Any:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4 * hvd.size(), 6)).astype("float32")
    mine = tf.constant(np.split(x, hvd.size())[hvd.rank()])
    results = []
    for layer, batch in (
        (keras.layers.BatchNormalization(), tf.constant(x)),
        (hvd.SyncBatchNormalization(), mine),
    ):
        with tf.GradientTape() as tape:
            tape.watch(batch)
            out = layer(batch, training=True)
            loss = tf.reduce_sum(tf.sin(out * 1.5))
        grad = tape.gradient(loss, batch)
        results.append([out.numpy(), grad.numpy(), *(np.asarray(w) for w in layer.weights)])
    whole, synced = results
    for index in (0, 1):
        part = np.split(whole[index], hvd.size())[hvd.rank()]
        np.testing.assert_allclose(synced[index], part, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(synced[2:], whole[2:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@case
def keeps_the_optimizers_state_and_settings() -> Any:
    model = small_model(keras.optimizers.Adam(0.01))
    model.optimizer.exclude_from_weight_decay(var_names=["bias"])
    x, y = some_data()
    model.fit(x, y, verbose=0)
    before = [np.asarray(v) for v in model.optimizer.variables]
    wrapped = hvd.DistributedOptimizer(model.optimizer)
    for old, new in zip(before, wrapped.variables, strict=True):
        np.testing.assert_array_equal(old, new)
    assert wrapped._exclude_from_weight_decay_pattern is not None
    config = wrapped.get_config()
    assert wrapped.from_config(config).get_config() == config
    assert type(wrapped).from_config(config).get_config() == config


@case
def learning_rate_callbacks() -> Any:
    model = small_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size())))
    rates: list[float] = []

    class Store(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            rates.append(float(self.model.optimizer.learning_rate))

    rate = 0.1 * hvd.size()
    callbacks = [
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(rate, 1e-1, start_epoch=2, end_epoch=4),
        hvd.callbacks.LearningRateScheduleCallback(rate, lambda e: e, start_epoch=4),
        Store(),
    ]
    x, y = some_data(32)
    history = model.fit(x, y, batch_size=8, epochs=6, verbose=0, callbacks=callbacks)
    n = hvd.size()
    warmup = [rate / n * ((i + 1) / 4 * (n - 1) / 2 + 1) for i in range(8)]
    np.testing.assert_allclose(rates[:8], warmup, rtol=1e-5)
    np.testing.assert_allclose(rates[8:12], [rate] * 4, rtol=1e-5)
    np.testing.assert_allclose(rates[12:16], [rate * 0.1] * 4, rtol=1e-5)
    np.testing.assert_allclose(rates[16:20], [rate * 4] * 4, rtol=1e-5)
    np.testing.assert_allclose(history.history["lr"][-1], rate * 5, rtol=1e-5)


@case
def momentum_is_corrected_when_the_rate_changes() -> Any:
    """v ← μ·(new/old)·v − lr·g, w ← w + v, with a loss whose gradient is constant."""
    momentum, rate = 0.9, 0.1
    for corrected in (True, False):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=momentum))
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(optimizer, loss=lambda y, predicted: predicted)
        schedule = hvd.callbacks.LearningRateScheduleCallback(
            rate, lambda epoch: 0.5**epoch, momentum_correction=corrected
        )
        x = np.ones((8, 1), "float32")
        model.fit(x, x, batch_size=4, epochs=4, verbose=0, callbacks=[schedule])
        w = v = 0.0
        old = rate
        for epoch in range(4):
            new = rate * 0.5**epoch
            v *= new / old if corrected else 1.0
            old = new
            for _ in range(2):
                v = momentum * v - new
                w += v
        np.testing.assert_allclose(np.asarray(layer.kernel), [[w]], rtol=1e-5)


@case
def legacy_optimizers_pass_through() -> Any:
    legacy = trepak.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    assert isinstance(legacy, tf.compat.v1.train.Optimizer)


@case
def join_ends_uneven_loops() -> Any:
    for _ in range(hvd.rank() + 1):
        trepak.allreduce(tf.ones([2]), op=trepak.Sum, name="uneven")
    assert int(hvd.join()) == hvd.size() - 1


class OwnTransport(trepak.Transport):
    """A user's own way for gradients, of narrow floats too."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._sums: dict[int, Any] = {}

    def start(self) -> None:
        pass

    def carries(self, dtype: Any) -> bool:
        return dtype in (tf.float16, tf.float32)

    def register(self, key: int, variable: Any) -> None:
        self._names[key] = f"own_{key}"

    def push(self, keys: Any, variables: Any, gradients: Any, factor: float, average: bool) -> None:
        op = trepak.Average if average else trepak.Sum
        for key, gradient in zip(keys, gradients, strict=True):
            total = trepak.allreduce(gradient, op=op, name=self._names[key])
            self._sums[key] = total * tf.cast(factor, total.dtype)

    def deliver(self, key: int, variable: Any) -> Any:
        return self._sums.pop(key)

    def pending(self, keys: Any, variables: Any) -> Any:
        return tf.constant([key in self._sums for key in keys])


@case
def a_transport_of_ones_own_carries_gradients() -> None:
    transport = OwnTransport()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), transport=transport)
    variables = [keras.Variable(np.zeros(3), dtype=dtype) for dtype in ("float16", "float32")]
    optimizer.build(variables)
    for _ in range(2):
        gradients = [tf.fill([3], tf.cast(hvd.rank() + 1.0, v.dtype)) for v in variables]
        optimizer.apply(gradients, variables)
    mean = (hvd.size() + 1) / 2
    for variable in variables:
        np.testing.assert_allclose(variable.numpy(), -2 * mean)
    # One rank alone has nobody to exchange with.
    assert len(transport._names) == (2 if hvd.size() > 1 else 0) and not transport._sums
