"""Trains small networks in a process with or without Dymem, and prints their weights' digests.

    python dymem_training.py '{"pool": "40MiB", …}' CASE…     null: plain TensorFlow

Each case prints a line of JSON. A process can have one Dymem, so that each kind has a process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trepak
from trepak.ops.loader import call, load

layers = keras.layers
STEPS = 50
SIDE, BATCH = 24, 16


def convolved(x: Any, filters: int, size: int = 3) -> Any:
    """Convolution, BatchNorm, ReLU."""
    x = layers.Conv2D(filters, size, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def resnet(x: Any, blocks: int = 2) -> Any:
    """Residual blocks."""
    x = convolved(x, 8)
    for _ in range(blocks):
        x = layers.ReLU()(layers.Add()([x, convolved(convolved(x, 8), 8)]))
    return layers.MaxPooling2D()(x)


def inception(x: Any) -> Any:
    """Four branches that are joined, with a Dropout."""
    x = convolved(x, 8)
    for _ in range(2):
        branches = [
            convolved(x, 4, 1),
            convolved(convolved(x, 4, 1), 6),
            convolved(convolved(convolved(x, 4, 1), 6), 6),
            convolved(layers.AveragePooling2D(3, 1, "same")(x), 4, 1),
        ]
        x = layers.Dropout(0.2, seed=3)(layers.Concatenate()(branches))
    return x


def deep(x: Any) -> Any:
    """So many layers that most of memory is what the backward pass reads."""
    return resnet(x, 8)


def densenet(x: Any) -> Any:
    """Each layer reads what all before it made."""
    x = convolved(x, 6)
    for _ in range(4):
        x = layers.Concatenate()([x, convolved(x, 4)])
    return x


def biased(x: Any) -> Any:
    """Convolutions with biases, whose gradients TensorFlow joins with those of the filters."""
    for _ in range(2):
        x = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    return x


def recurrent(x: Any) -> Any:
    """A loop between layers, with feature maps before and behind it."""
    x = layers.Reshape((SIDE, SIDE * 8))(convolved(x, 8))
    x = layers.LSTM(8, return_sequences=True)(x)
    return convolved(layers.Reshape((SIDE, 1, 8))(x), 8)


def branched(x: Any) -> Any:
    """One of two branches runs; what joins them is a feature map."""
    for filters in (6, 8, 10):
        x = layers.Lambda(
            lambda made: tf.cond(
                tf.reduce_mean(made) > 0.1, lambda: made + tf.nn.relu(made), lambda: tf.tanh(made)
            )
        )(convolved(x, filters))
        x = layers.Concatenate()([convolved(x, 6), convolved(x, 6), convolved(x, 6, 1)])
    return x


def network(body: Any, seed: int = 1) -> Any:
    """A compiled classifier."""
    keras.utils.set_random_seed(seed)
    image = keras.Input((SIDE, SIDE, 3))
    x = layers.GlobalAveragePooling2D()(body(image))
    model = keras.Model(image, layers.Dense(5, "softmax")(x))
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    loss = "sparse_categorical_crossentropy"
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    return model


def data(rows: int) -> tuple[Any, Any]:
    """Images and labels."""
    rng = np.random.default_rng(0)
    return rng.random((rows, SIDE, SIDE, 3), "float32"), rng.integers(0, 5, rows)


def digest(model: Any) -> str:
    """Of all weights, bit for bit."""
    return hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()[:16]


def fitted(body: Any) -> dict[str, Any]:
    """Trains by `fit`; the last batch of each epoch is a smaller one."""
    model = network(body)
    x, y = data(BATCH * 12 + 5)
    model.fit(x, y, BATCH, epochs=STEPS // 13 + 1, verbose=0)
    return {"weights": digest(model), "steps": int(model.optimizer.iterations.numpy())}


def custom_loop() -> dict[str, Any]:
    """Two inputs, two outputs, and a loop of one's own."""
    keras.utils.set_random_seed(2)
    a, b = keras.Input((SIDE, SIDE, 3)), keras.Input((SIDE, SIDE, 3))
    x = layers.Add()([convolved(a, 6), convolved(b, 6)])
    outputs = [layers.Dense(n)(layers.GlobalAveragePooling2D()(convolved(x, 6))) for n in (2, 3)]
    model = keras.Model([a, b], outputs)
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(one: Any, other: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([one, other])
            made = model([one, other], training=True)
            loss = sum(tf.reduce_mean(tf.square(part - 1.0)) for part in made)
        gradients = tape.gradient(loss, [*model.trainable_variables, one, other])
        optimizer.apply(gradients[:-2], model.trainable_variables)
        return loss, gradients[-2:]  # as large as feature maps

    x, _ = data(BATCH * 2)
    for _ in range(STEPS):
        loss, _ = step(tf.constant(x[:BATCH]), tf.constant(x[BATCH:]))
    return {"weights": digest(model), "loss": float(loss)}


def control_flow() -> dict[str, Any]:
    """A loop around the loss, and a branch around what is applied."""
    model = network(resnet)
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images: Any) -> Any:
        with tf.GradientTape() as tape:
            made = model(images, training=True)
            scaled = tf.while_loop(lambda k, _: k < 3, lambda k, x: (k + 1, x * 1.1), [0, made])[1]
            loss = tf.reduce_mean(tf.square(scaled - 0.3))
        gradients = tape.gradient(loss, model.trainable_variables)
        if loss > 0.01:
            optimizer.apply(gradients, model.trainable_variables)
        return loss

    x, _ = data(BATCH)
    for _ in range(20):
        loss = step(tf.constant(x))
    return {"weights": digest(model), "loss": float(loss)}


def loops() -> dict[str, Any]:
    """What leaves a loop is read before what enters it, if one goes by edges alone."""
    keras.utils.set_random_seed(2)
    x = keras.Input((SIDE, SIDE, 3))
    mapped = layers.Lambda(lambda made: tf.map_fn(lambda one: one * 2.0, made))
    made = mapped(layers.Conv2D(8, 3, activation="relu")(x))
    images = keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(made)))
    words = keras.Input((None,), dtype="int32")
    made = layers.Conv1D(8, 3, padding="same", activation="relu")(layers.Embedding(50, 8)(words))
    made = layers.Conv1D(8, 3)(layers.LSTM(8, return_sequences=True)(made))
    texts = keras.Model(words, layers.Dense(10)(layers.GlobalMaxPool1D()(made)))
    loss = keras.losses.SparseCategoricalCrossentropy(True)
    x, y = data(BATCH * 2)
    for model in (images, texts):
        model.compile("sgd", loss, jit_compile=False)
    for length in (10, 20, 30, 40):
        images.train_on_batch(x, y)
        rows = np.arange(16 * BATCH * length).reshape(-1, length) % 50
        texts.train_on_batch(rows, np.resize(y, len(rows)))
    return {"weights": [digest(model) for model in (images, texts)]}


def another_model() -> dict[str, Any]:
    """Fit after fit with another model, then with the first one again; one evaluates between."""
    x, y = data(BATCH * 3)
    models = [network(resnet), network(densenet, seed=4)]
    for model in (*models, models[0]):
        model.fit(x, y, BATCH, epochs=2, verbose=0)
        model.evaluate(x, y, BATCH, verbose=0)
    return {"weights": [digest(model) for model in models]}


def by_turns() -> dict[str, Any]:
    """Two models train by turns; the pool has room for a step of one of them only."""
    models = [network(resnet), network(deep, seed=4)]
    x, y = data(BATCH * 3)
    for _ in range(10):
        models[0].train_on_batch(x[:BATCH], y[:BATCH])
        models[1].train_on_batch(x, y)
    return {"weights": [digest(model) for model in models]}


def no_result() -> dict[str, Any]:
    """Steps of functions that return nothing."""
    return {"weights": [without_result(body) for body in (inception, branched)]}


def without_result(body: Any) -> str:
    """Trains by a function that returns nothing."""
    model = network(body)
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(images: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(images, training=True) - 0.3))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)

    x, _ = data(BATCH)
    for _ in range(10):
        step(tf.constant(x))
    return digest(model)


def failing_layer() -> dict[str, Any]:
    """A layer fails while others wait for their turn; the model trains on."""
    keras.utils.set_random_seed(2)
    x = keras.Input((SIDE, SIDE, 3))
    left = layers.Lambda(lambda made: tf.debugging.check_numerics(made, "of the left branch"))
    joined = layers.Concatenate()([left(convolved(x, 6)), convolved(x, 6), convolved(x, 6)])
    model = keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(convolved(joined, 6))))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True), jit_compile=False)
    images, labels = data(BATCH)
    model.train_on_batch(images, labels)
    said = []
    for _ in range(5):
        try:
            model.train_on_batch(images * np.nan, labels)
        except tf.errors.InvalidArgumentError as error:
            said.append(str(error))
    # Nothing of the failed steps is applied: they fail in the forward pass.
    losses = [float(model.train_on_batch(images, labels)) for _ in range(3)]
    return {"said": said, "losses": losses}


def another_thread() -> dict[str, Any]:
    """Fits in a thread of its own, and after an option of Grappler's was set."""
    x, y = data(BATCH * 3)
    models = [network(resnet), network(densenet, seed=4)]
    with ThreadPoolExecutor(1) as thread:
        thread.submit(models[0].fit, x, y, BATCH, verbose=0).result()
    tf.config.optimizer.set_experimental_options({"debug_stripper": True})
    models[1].fit(x, y, BATCH, verbose=0)
    return {"weights": [digest(model) for model in models]}


def self_sized() -> dict[str, Any]:
    """Fits twice, then with a larger batch; tells the pool's figures after each."""
    model = network(resnet)
    x, y = data(BATCH * 12)
    pools = []
    for batch in (BATCH, BATCH, BATCH * 6):
        model.fit(x, y, batch, verbose=0)
        pools.append(pool_figures())
        call("dymem_reset_peaks")
    return {"weights": digest(model), "pools": pools}


def pool_figures() -> dict[str, Any]:
    """Of the pool; nothing in plain TensorFlow."""
    try:
        figures: dict[str, Any] = call("dymem_statistics")["pool"]
    except tf.errors.NotFoundError:
        return {}
    return figures


def grown() -> dict[str, Any]:
    """Batches that fit without swaps, then larger ones that do not."""
    model = network(deep)
    x, y = data(BATCH * 15)
    for batch in (BATCH, BATCH * 5 // 2, BATCH):
        model.fit(x, y, batch, epochs=1, verbose=0)
    return {"weights": digest(model)}


def too_large() -> dict[str, Any]:
    """A batch that finds no room is an error; the model trains on with a smaller one."""
    model = network(resnet)
    x, y = data(BATCH * 64)
    said = ""
    try:
        model.fit(x, y, len(x), verbose=0)
    except tf.errors.ResourceExhaustedError as error:
        said = str(error)
    model.fit(x[:BATCH], y[:BATCH], BATCH, verbose=0)
    with contextlib.suppress(tf.errors.ResourceExhaustedError):
        tf.zeros([1 << 24])  # an eager tensor without room, after which others have some
    assert float(tf.reduce_sum(tf.ones([1 << 18]))) == 1 << 18
    return {"said": said, "finite": bool(np.isfinite(model.get_weights()[0]).all())}


def swapped(rows: int, value: float) -> Any:
    """Sends a MiB for each row out, and returns what stands for it."""
    step = load().trepak_step(turns=0)
    return load().trepak_offload(tf.fill([rows, 1 << 18], float(value)), step, called="test")


def fetched(one: Any, rows: int) -> Any:
    """Reads what has left."""
    return load().trepak_fetch(one, T=tf.float32, shape=[rows, 1 << 18]).numpy()


def eviction() -> dict[str, Any]:
    """What was prefetched fills the pool when a tensor is asked for that needs most of it."""
    ones = [swapped(12, k) for k in range(4)]
    load().trepak_synchronize(load().trepak_step(turns=0))
    for one in ones:
        load().trepak_prefetch(one)
    load().trepak_synchronize(load().trepak_step(turns=0))
    tf.zeros([44, 1 << 18])  # beside one of them
    told = {"came": call("dymem_statistics")["swaps"]["fetched_tensors"]}
    told["right"] = [bool((fetched(one, 12) == k).all()) for k, one in enumerate(ones)]
    return told


def evictions() -> dict[str, Any]:
    """Threads that prefetch, ask for memory and read, in a pool that is too small for them."""

    def one(seed: int) -> bool:
        right = True
        for k in range(40):
            ones = [swapped(4, seed + k + i) for i in range(4)]
            for each in ones:
                load().trepak_prefetch(each)
            load().trepak_synchronize(load().trepak_step(turns=0))
            tf.zeros([8, 1 << 18])
            right &= all((fetched(o, 4) == seed + k + i).all() for i, o in enumerate(ones))
        return bool(right)

    with ThreadPoolExecutor(3) as threads:
        return {"right": list(threads.map(one, [0, 1000, 2000]))}


BODIES = (resnet, inception, densenet, deep, biased, recurrent, branched)
CASES = {
    **{body.__name__: (lambda body=body: fitted(body)) for body in BODIES},
    "custom_loop": custom_loop,
    "control_flow": control_flow,
    "loops": loops,
    "another_model": another_model,
    "by_turns": by_turns,
    "no_result": no_result,
    "failing_layer": failing_layer,
    "another_thread": another_thread,
    "self_sized": self_sized,
    "grown": grown,
    "too_large": too_large,
    "eviction": eviction,
    "evictions": evictions,
}


def main() -> None:
    """Runs the cases of the command line."""
    options = json.loads(sys.argv[1])
    dymem = None if options is None else trepak.Dymem(**options)
    tf.config.experimental.enable_op_determinism()
    for name in sys.argv[2:]:
        told = {"case": name, **CASES[name]()}
        if dymem is not None:
            told["statistics"] = dymem.statistics()
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
