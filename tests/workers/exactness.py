"""n ranks with batches of b must take the steps that one process takes with batches of n·b."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import harness
import keras
import numpy as np
import tensorflow as tf

import trepak
import trepak.keras as hvd
from trepak.horovod_ext.collective_lanes import Collectives, PieceRules

STEPS, BATCH = 20, 4
RTOL, ATOL = 1e-5, 1e-6

# How gradients travel: by Horovod, by "geryon", or by "lanes" of Horovod's collectives, in small
# pieces, of which there are several; and whether the next step applies them: "geryon overlap".
WAY, _, _OVERLAP = os.environ.get("EXACTNESS_WAY", "horovod").partition(" ")
OVERLAPS = _OVERLAP == "overlap"
TRANSPORTS: dict[str, Callable[[], Any]] = {
    "horovod": lambda: None,
    "geryon": lambda: trepak.Geryon(threshold=0.4, slice_elements=10),
    "lanes": lambda: Collectives(lambda total: PieceRules(40, 80, 200)),
}
TRANSPORT = TRANSPORTS[WAY]()

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda **k: keras.optimizers.SGD(0.05, **k),
    "momentum": lambda **k: keras.optimizers.SGD(0.05, momentum=0.9, **k),
    "adam": lambda **k: keras.optimizers.Adam(0.01, **k),
    "adamw": lambda **k: keras.optimizers.AdamW(0.01, **k),
}


def dense_model() -> Any:
    return keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(3),
        ]
    )


def embedding_model() -> Any:
    layers = [keras.Input((5,), dtype="int32"), keras.layers.Embedding(30, 4)]
    return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(3)])


class UnusedModel(keras.Model):
    """A model one of whose variables gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(8, activation="tanh")
        self.unused = keras.layers.Dense(7)
        self.last = keras.layers.Dense(3)

    def build(self, shape: Any) -> None:
        self.first.build(shape)
        self.unused.build(shape)
        self.last.build((shape[0], 8))
        self.built = True

    def call(self, x: Any) -> Any:
        return self.last(self.first(x))


def unused_model() -> Any:
    model = UnusedModel()
    model.build((None, 6))
    return model


class CustomStep(keras.Model):
    """A model with a train_step of its own."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def custom_step_model() -> Any:
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    return CustomStep(inputs, keras.layers.Dense(3)(hidden))


def data(passes: int, sparse: bool) -> tuple[Any, Any]:
    """Returns x, y as [steps, passes, rank, batch, …]: one process takes a step's whole block."""
    rng = np.random.default_rng(7)
    shape = (STEPS, passes, hvd.size(), BATCH)
    if sparse:
        x = rng.integers(0, 30, (*shape, 5)).astype("int32")
    else:
        x = rng.normal(size=(*shape, 6)).astype("float32")
    return x, rng.normal(size=(*shape, 3)).astype("float32")


def fit(model: Any, x: Any, y: Any, batch: int) -> None:
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)


def fit_on_batches(model: Any, x: Any, y: Any, batch: int) -> None:
    for begin in range(0, len(x), batch):
        model.train_on_batch(x[begin : begin + batch], y[begin : begin + batch])


def custom_loop(model: Any, x: Any, y: Any, batch: int) -> None:
    optimizer = model.optimizer
    overlapped = OVERLAPS and batch == BATCH
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> None:
        if overlapped:
            optimizer.begin_step()
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    for begin in range(0, len(x), batch):
        step(tf.constant(x[begin : begin + batch]), tf.constant(y[begin : begin + batch]))
    if overlapped:
        optimizer.flush()


def dense_loop(model: Any, x: Any, y: Any, batch: int) -> None:
    """A custom loop that makes the one process' gradients dense; the ranks' optimizer does so."""

    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        grads = tape.gradient(loss, model.trainable_variables)
        if batch != BATCH:
            grads = [tf.convert_to_tensor(grad) for grad in grads]
        model.optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    for begin in range(0, len(x), batch):
        step(tf.constant(x[begin : begin + batch]), tf.constant(y[begin : begin + batch]))


def tape_loop(model: Any, x: Any, y: Any, batch: int) -> None:
    """A custom loop in which the tape reduces, and the optimizer is the plain one."""

    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        if batch == BATCH:  # a rank of the job, not the one process it is compared with
            tape = hvd.DistributedGradientTape(tape, transport=TRANSPORT)
        grads = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    for begin in range(0, len(x), batch):
        step(tf.constant(x[begin : begin + batch]), tf.constant(y[begin : begin + batch]))


def train(
    optimizer: Any,
    share: int | None,
    model_of: Callable[[], Any] = dense_model,
    loop: Callable[..., None] = fit,
    passes: int = 1,
    policy: str = "float32",
    whole_passes: bool = False,
    compile_options: dict[str, Any] | None = None,
) -> list[Any]:
    """Trains from fixed weights on one rank's share, or (None) on everything; returns weights.

    `whole_passes` says that the one process takes all passes of a step as one batch, too.
    """
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    model = model_of()
    keras.config.set_dtype_policy("float32")
    model.compile(optimizer, loss="mse", jit_compile=False, **(compile_options or {}))
    if not model.optimizer.built:
        # Keras builds it in the first traced step, and so copies weights into ScheduleFreeAdamW's
        # state anew in each step; a distributed optimizer is built once, as here.
        model.optimizer.build(model.trainable_variables)
    if OVERLAPS and share is not None and loop in (fit, fit_on_batches):
        trepak.overlap(model)
    x, y = data(passes, model_of is embedding_model)
    batch = BATCH
    if share is None:
        batch *= hvd.size() * (passes if whole_passes else 1)
    else:
        x, y = x[:, :, share], y[:, :, share]
    flat = [np.reshape(a, (-1, a.shape[-1])) for a in (x, y)]
    loop(model, *flat, batch)
    return [np.asarray(w) for w in model.get_weights()]


def compare(
    reference: list[Any],
    optimizer: Any,
    rtol: float = RTOL,
    atol: float = ATOL,
    **options: Any,
) -> float:
    """Trains on this rank's share and compares; returns the largest deviation over the tolerance.

    `reference` holds the weights of the one process; `optimizer` is distributed already.
    """
    mine = train(optimizer, hvd.rank(), **options)
    everyone = [hvd.allgather(w.reshape(1, -1)).numpy() for w in mine]
    for gathered in everyone:
        for other in gathered[1:]:
            assert other.tobytes() == gathered[0].tobytes(), "ranks hold different weights"
    for ours, theirs in zip(mine, reference, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
    return max(
        float(np.max(np.abs(a - b) / (atol + rtol * np.abs(b))))
        for a, b in zip(mine, reference, strict=True)
    )


def comparison(
    optimizer_of: Callable[[], Any],
    wrap: Callable[[Any], Any] | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    **options: Any,
) -> harness.Case:
    """Returns the case that trains both ways and compares; one rank trains for the one process."""
    wrap = wrap or wrapped()
    return harness.Case(
        run=lambda reference: compare(reference, wrap(optimizer_of()), rtol, atol, **options),
        alone=lambda: train(optimizer_of(), None, **options),
    )


def loss_scaled(optimizer: Any) -> Any:
    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0)


def wrapped(**options: Any) -> Callable[[Any], Any]:
    return lambda optimizer: hvd.DistributedOptimizer(optimizer, transport=TRANSPORT, **options)


# Feature → (options of the optimizer, options of comparison())
FEATURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "clipnorm": ({"clipnorm": 0.05}, {}),
    "global_clipnorm": ({"global_clipnorm": 0.1}, {}),
    "clipvalue": ({"clipvalue": 0.02}, {}),
    "ema": ({"use_ema": True, "ema_overwrite_frequency": 7}, {}),
    "weight_decay": ({"weight_decay": 0.01}, {}),
    "accumulation": ({"gradient_accumulation_steps": 2}, {"passes": 2}),
    "backward_passes": (
        {},
        {
            "passes": 2,
            "whole_passes": True,
            "wrap": wrapped(backward_passes_per_step=2, average_aggregated_gradients=True),
        },
    ),
    "predivide": ({}, {"wrap": wrapped(gradient_predivide_factor=2.0)}),
    "groups": ({}, {"wrap": wrapped(groups=2)}),
    # Of one process, Keras' Adam squares the rows of one id each by itself, if they are sparse.
    "sparse": ({}, {"model_of": embedding_model, "loop": dense_loop}),
    "sparse_as_dense": (
        {},
        {"model_of": embedding_model, "wrap": wrapped(sparse_as_dense=True), "loop": dense_loop},
    ),
    "none_gradients": ({}, {"model_of": unused_model}),
    "custom_train_step": ({}, {"model_of": custom_step_model}),
    "train_on_batch": ({}, {"loop": fit_on_batches}),
    "custom_loop": ({}, {"loop": custom_loop}),
    "steps_per_execution": ({}, {"compile_options": {"steps_per_execution": 4}}),
    "sync_bsp": ({}, {"wrap": wrapped(sync=trepak.BSP())}),
}


def add_matrix() -> None:
    """Registers optimizer × feature.

    $EXACTNESS_OPTIMIZERS narrows the optimizers, $EXACTNESS_PART="I/K" the features to every K-th,
    from the I-th.
    """
    chosen = os.environ.get("EXACTNESS_OPTIMIZERS", " ".join(OPTIMIZERS)).split()
    first, every = map(int, os.environ.get("EXACTNESS_PART", "1/1").split("/"))
    for name in chosen:
        for feature, one in list(features_of(OPTIMIZERS[name]).items())[first - 1 :: every]:
            harness.add(__name__, f"{name}-{feature}", one)


def features_of(optimizer: Callable[..., Any]) -> dict[str, harness.Case]:
    """Returns the cases of one optimizer, by feature."""
    cases = {
        feature: comparison(functools.partial(optimizer, **settings), **options)
        for feature, (settings, options) in FEATURES.items()
    }
    cases["loss_scale"] = comparison(lambda: loss_scaled(optimizer()))
    cases["loss_scale_backward_passes"] = comparison(
        lambda: loss_scaled(optimizer()),
        passes=2,
        whole_passes=True,
        wrap=wrapped(backward_passes_per_step=2, average_aggregated_gradients=True),
    )
    cases["loss_scale_accumulation"] = comparison(
        lambda: loss_scaled(optimizer(gradient_accumulation_steps=2)), passes=2
    )
    cases["tape"] = comparison(optimizer, wrap=lambda plain: plain, loop=tape_loop)
    # 11 bits of mantissa in every step's gradients: a relative error of 2**-11 = 4.9e-4 each.
    cases["fp16"] = comparison(
        optimizer, wrap=wrapped(compression=hvd.Compression.fp16), rtol=5e-4, atol=5e-4
    )
    return cases


add_matrix()
