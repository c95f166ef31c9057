"""What `fit` with trepak's callbacks promises: equal starts, even ends, averaged state and logs."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import exactness
import features
import keras
import numpy as np
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd

OUT = Path(os.environ["OUT"])


def batch_norm_model() -> Any:
    return keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(3),
        ]
    )


def moving_statistics(model: Any) -> list[Any]:
    return [np.asarray(w) for w in model.non_trainable_weights]


@case
def starts_from_one_ranks_weights() -> Any:
    """The first step counts: ranks that start differently end as one process would."""
    root = hvd.size() - 1
    keras.utils.set_random_seed(100 + hvd.rank())
    model = features.small_model(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    keras.utils.set_random_seed(100 + root)
    reference = features.small_model(keras.optimizers.Adam(0.01))
    x, y = features.some_data(32)  # the same on all ranks: each takes the one process' steps
    for trained in (model, reference):
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(root)]
        trained.fit(
            x, y, shuffle=False, verbose=0, callbacks=callbacks if trained is model else None
        )
    features.assert_same_on_all_ranks(model)
    for ours, theirs in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@case
def uneven_shards_end_cleanly() -> Any:
    keras.utils.set_random_seed(hvd.rank())
    rows = 40 + 8 * hvd.rank()
    x, y = features.some_data(rows, hvd.rank())
    for options in ({}, {"steps_per_execution": 2}):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
        model = features.small_model(optimizer, **options)
        stopping = keras.callbacks.EarlyStopping(monitor="loss", patience=50)
        callbacks = [stopping, hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        callbacks.append(hvd.callbacks.LearningRateWarmupCallback(0.05, warmup_epochs=2))
        history = model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=callbacks)
        assert len(history.history["loss"]) == 3
        per_call = model.steps_per_execution
        steps = 5 // per_call * per_call if hvd.size() > 1 else 5
        assert int(model.optimizer.iterations) == 3 * steps
        features.assert_same_on_all_ranks(model)


@case
def early_stopping_still_stops() -> Any:
    x, y = features.some_data(40 + 8 * hvd.rank())
    for first in (True, False):
        model = features.small_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)))
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        stopping = keras.callbacks.EarlyStopping(monitor="loss", patience=0, min_delta=1e9)
        callbacks.insert(0 if first else 1, stopping)
        history = model.fit(x, y, batch_size=8, epochs=5, verbose=0, callbacks=callbacks)
        assert len(history.history["loss"]) == 2, history.history


@case
def unknown_lengths_end_together() -> Any:
    x, y = features.some_data(40 + 8 * hvd.rank())
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).filter(lambda *_: True)
    assert data.cardinality() < 0
    for steps_per_execution in (1, 2):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
        model = features.small_model(optimizer, steps_per_execution=steps_per_execution)
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(data, epochs=2, verbose=0, callbacks=[callback])
        # In one process Keras counts a step too many where it runs into the end of the data.
        assert hvd.size() == 1 or int(optimizer.iterations) == 10, int(optimizer.iterations)
        features.assert_same_on_all_ranks(model)


@case
def state_is_averaged_before_validation_and_saving() -> Any:
    keras.utils.set_random_seed(hvd.rank())
    model = batch_norm_model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse")
    x, y = features.some_data(32, hvd.rank())
    x += hvd.rank()  # shards whose statistics differ
    same: list[bool] = []

    def all_equal() -> bool:
        flat = np.concatenate([np.ravel(s) for s in moving_statistics(model)])
        seen = hvd.allgather(flat[None]).numpy()
        return all(row.tobytes() == seen[0].tobytes() for row in seen)

    class Look(keras.callbacks.Callback):
        def on_test_begin(self, logs: Any = None) -> None:
            same.append(all_equal())

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            same.append(all_equal())

    seed = [s for s in model.variables if "seed" in s.path][0]
    callbacks = [Look(), hvd.callbacks.BroadcastGlobalVariablesCallback(0), Look()]
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks, validation_data=(x, y))
    assert same and all(same), same
    seeds = hvd.allgather(tf.cast(seed.value, tf.int64)[None]).numpy()
    assert hvd.size() == 1 or not (seeds[0] == seeds[1]).all(), "seeds must stay each rank's own"
    assert all_equal()

    model.train_on_batch(x, y)  # in a loop of one's own, it is a call
    before = moving_statistics(model)
    assert hvd.size() == 1 or not all_equal()
    changed = trepak.average_state(model)
    assert len(changed) == (2 if hvd.size() > 1 else 0) and all_equal()
    for mine, averaged in zip(before, moving_statistics(model), strict=True):
        expected = hvd.allreduce(mine).numpy()
        np.testing.assert_allclose(averaged, expected, rtol=1e-6)


@case
def local_weights_stay_local() -> Any:
    initial = keras.initializers.Constant(hvd.rank())
    layers = [keras.layers.Dense(3, kernel_initializer=initial, trainable=False) for _ in "ab"]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    x, y = features.some_data(16)
    local = layers[0].variables
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(hvd.size() - 1, "", local)
    model.fit(x, y, verbose=0, callbacks=[callback], validation_data=(x, y))
    np.testing.assert_array_equal(layers[0].kernel, np.full((6, 3), hvd.rank()))
    np.testing.assert_array_equal(layers[1].kernel, np.full((3, 3), hvd.size() - 1))


@case
def frozen_layers_keep_their_bits() -> Any:
    model = exact = batch_norm_model()
    exact.layers[0].trainable = False
    before = np.asarray(model.layers[0].kernel)
    root = hvd.broadcast(before, 0).numpy()
    model.layers[0].kernel.assign(root)
    trepak.average_state(model)
    assert np.asarray(model.layers[0].kernel).tobytes() == root.tobytes()


@case
def metrics_weigh_samples() -> Any:
    """Averaged logs equal those of one process that saw every rank's samples."""
    rows = 8 * (hvd.rank() + 1)
    x, y = features.some_data(rows, hvd.rank())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0))
    keras.utils.set_random_seed(4)
    model = features.small_model(optimizer, metrics=["mae"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    # One batch each, of different sizes: the rate is 0, so all see the same weights.
    history = model.fit(
        x, y, batch_size=rows, verbose=0, callbacks=callbacks, validation_data=(x, y)
    )
    everything = [features.some_data(8 * (r + 1), r) for r in range(hvd.size())]
    all_x, all_y = (np.concatenate(part) for part in zip(*everything, strict=True))
    loss, mae = model.evaluate(all_x, all_y, verbose=0)
    got = {name: values[0] for name, values in history.history.items()}
    expected = {"loss": loss, "mae": mae, "val_loss": loss, "val_mae": mae}
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=name)


@case
def validation_on_one_rank_only() -> Any:
    x, y = features.some_data(32)
    known = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    for data in (known, known.filter(lambda *_: True)):
        model = features.small_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
        callbacks = [
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        ]
        validation = (x, y) if hvd.rank() == 0 else None
        model.fit(data, epochs=2, verbose=0, callbacks=callbacks, validation_data=validation)
        features.assert_same_on_all_ranks(model)


class TwoNetworks(keras.Model):
    """As a GAN is often written: two networks, two optimizers, no call()."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = exactness.dense_model(), exactness.dense_model()

    def compile(self, first_optimizer: Any, second_optimizer: Any) -> None:
        super().compile()
        self.first_optimizer, self.second_optimizer = first_optimizer, second_optimizer

    def train_step(self, data: Any) -> Any:
        x, y = data
        for network, optimizer in (
            (self.first, self.first_optimizer),
            (self.second, self.second_optimizer),
        ):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(network(x, training=True) - y))
            variables = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


@case
def two_networks_with_a_train_step_of_their_own() -> Any:
    keras.utils.set_random_seed(hvd.rank())
    model = TwoNetworks()
    adam = keras.optimizers.Adam
    model.compile(hvd.DistributedOptimizer(adam(0.01)), hvd.DistributedOptimizer(adam(0.02)))
    x, y = features.some_data(32, hvd.rank())
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    features.assert_same_on_all_ranks(model)


LOAD_WITHOUT_TREPAK = """
import sys, numpy as np, keras
x = np.load(sys.argv[1])
for path in sys.argv[2:]:
    model = keras.saving.load_model(path)
    assert not any(name.startswith(("trepak", "horovod")) for name in sys.modules)
    assert type(model.optimizer).__module__.startswith("keras."), type(model.optimizer)
    np.save(path + ".npy", model.predict(x, verbose=0))
    print(type(model.optimizer).__name__, int(model.optimizer.iterations))
"""


def load_in_a_plain_process(x: Any, paths: list[str]) -> list[str]:
    np.save(OUT / "x.npy", x)
    # Without the launcher's variables: a plain process, not a rank.
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI", "PMIX", "HOROVOD"))}
    command = [sys.executable, "-c", LOAD_WITHOUT_TREPAK, str(OUT / "x.npy"), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=plain)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@case
def saves_as_a_plain_model() -> Any:
    """Loads without trepak, and with it resumes: the same steps as the model that went on."""
    x, y = features.some_data(32)
    answers = {}
    for optimizer, options in (
        (keras.optimizers.Adam(0.01), {}),
        (keras.optimizers.SGD(0.01, momentum=0.9), {"backward_passes_per_step": 2}),
        (keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)), {}),
    ):
        model = features.small_model(hvd.DistributedOptimizer(optimizer, **options))
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)
        path = str(OUT / f"{len(answers)}.keras")
        answers[path] = model.predict(x, verbose=0)
        if hvd.rank() == 0:
            model.save(path)
        hvd.barrier()
        loaded = hvd.load_model(path)
        resumed = [np.asarray(v) for v in loaded.optimizer.variables]
        for ours, theirs in zip(resumed, model.optimizer.variables, strict=True):
            np.testing.assert_array_equal(ours, np.asarray(theirs))
        if options:
            continue  # load_model() has no option for it: the steps ahead would differ
        for trained in (loaded, model):
            trained.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        for ours, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    if hvd.rank() > 0:
        return None
    said = load_in_a_plain_process(x, list(answers))
    for path, answer in answers.items():
        np.testing.assert_allclose(np.load(path + ".npy"), answer, rtol=1e-5, atol=1e-6)
    assert said == ["Adam 4", "SGD 4", "LossScaleOptimizer 4"], said
    return said


@case
def resume_where_only_rank_0_loads() -> Any:
    """Horovod's own example: rank 0 loads the checkpoint, the others build the model anew."""
    x, y = features.some_data(32)
    path = OUT / f"resume-{hvd.size()}.keras"
    if hvd.rank() == 0:
        saved = features.small_model(keras.optimizers.Adam(0.01))
        saved.fit(x, y, verbose=0)
        saved.save(path)
    hvd.barrier()
    keras.backend.clear_session()
    if hvd.rank() == 0:
        model = hvd.load_model(path)
    else:
        model = features.small_model(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    before = int(model.optimizer.iterations)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)
    features.assert_same_on_all_ranks(model)
    assert int(model.optimizer.iterations) == 5, before  # 1 in the checkpoint, 4 more on all


@case
def elastic_state() -> Any:
    model = features.small_model(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    model.set_weights([np.full(w.shape, float(hvd.rank() + 1)) for w in model.get_weights()])
    state = hvd.elastic.KerasState(model, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    state.sync()
    assert (state.batch, state.epoch) == (20, 10)
    for w in model.get_weights():
        np.testing.assert_array_equal(w, np.ones_like(w))
    state.batch = 21
    model.set_weights([w * 7 for w in model.get_weights()])
    state.restore()
    assert state.batch == 20 and float(model.get_weights()[0].max()) == 1.0
    model.set_weights([w * 7 for w in model.get_weights()])
    state.batch = 22
    state.save()
    state.restore()
    assert state.batch == 22 and float(model.get_weights()[0].max()) == 7.0
    variables = trepak.elastic.TensorFlowState([tf.Variable(float(hvd.rank()))])
    variables.sync()
    assert float(variables.variables[0]) == 0.0
