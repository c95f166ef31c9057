"""What Horovod scripts do around their training: start again, .h5 files, TensorFlow 1's graphs."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from features import assert_same_on_all_ranks
from harness import CASES, case

import trepak
import trepak.keras as hvd

RATE = 0.1


def data(rank: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(rank)
    return rng.normal(size=(8, 3)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")


def train(**options: Any) -> Any:
    """Takes one step of gradient descent on a linear model; returns its weights, which were 0."""
    layer = keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)
    model = keras.Sequential([keras.Input((3,)), layer])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE), **options)
    model.compile(optimizer, "mse", jit_compile=False)
    x, y = data(hvd.rank())
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[broadcast])
    assert_same_on_all_ranks(model)
    return layer.kernel.numpy()


def one_step() -> Any:
    """Returns what `train` must: the mean of the ranks' gradients, by NumPy."""
    parts = [data(rank) for rank in range(hvd.size())]
    return np.mean([RATE * 2 / 8 * x.T @ y for x, y in parts], axis=0)


def restart_for_others() -> None:
    """Starts Horovod as the job did: with the process sets of all its workers."""
    wanted = [getattr(sys.modules[name], "PROCESS_SETS", ()) for name in CASES]
    static = list(dict.fromkeys(one for sets in wanted if sets != "dynamic" for one in sets))
    hvd.shutdown()
    hvd.init(process_sets="dynamic" if "dynamic" in wanted else static)


@case
def variables_are_broadcast_in_a_graph() -> Any:
    """Also on one rank: TensorFlow 1 programs run what is returned."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for kind, is_resource in (("resource", True), ("ref", False)):
            first = np.float32([hvd.rank(), 5])
            variable = tf.compat.v1.get_variable(kind, initializer=first, use_resource=is_resource)
            for way in (
                lambda v: trepak.broadcast_variables([v], 0),
                lambda v: trepak.broadcast_variables([v], 0, inplace=True),
                lambda v: trepak.broadcast_([v], 0, name="received"),
            ):
                session.run(variable.initializer)
                session.run(way(variable))
                np.testing.assert_array_equal(session.run(variable), [0, 5])
        session.run(trepak.broadcast_variables([], 0))
        session.run(hvd.broadcast_global_variables(0))


@case
def h5_files_keep_the_optimizer() -> Any:
    """Keras 3 itself loads it without what it knows of the variables."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    loss = keras.losses.MeanSquaredError()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss)
    x, y = data(hvd.rank())
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(x, y, epochs=3, verbose=0, callbacks=[broadcast])
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.h5")
        loaded = hvd.load_model(f"{folder}/model.h5")
    saved = model.optimizer.variables
    assert len(loaded.optimizer.variables) == len(saved) == 2 + 2 * 4
    for mine, other in zip(loaded.optimizer.variables, saved, strict=True):
        np.testing.assert_array_equal(mine, other)
    for one in (model, loaded):
        one.fit(x, y, verbose=0, shuffle=False, callbacks=[broadcast])
    for mine, other in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(mine, other)


@case
def init_follows_shutdown() -> Any:
    size, rank = hvd.size(), hvd.rank()
    mine = hvd.ProcessSet([rank])
    rounds: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"transport": trepak.Geryon()}),
        ({"process_sets": [hvd.ProcessSet([r]) if r != rank else mine for r in range(size)]}, {}),
        ({"comm": list(range(size))}, {"sync": trepak.RNA()}),
    ]
    for arguments, options in rounds if size > 1 else [({}, {})] * 2:
        hvd.shutdown()
        assert not hvd.is_initialized()
        hvd.init(**arguments)
        assert (hvd.size(), hvd.rank()) == (size, rank)
        total = trepak.allreduce(tf.constant(rank + 1.0), op=trepak.Sum)
        assert float(total) == size * (size + 1) / 2
        if "process_sets" in arguments:
            alone = trepak.allreduce(tf.constant(rank + 1.0), op=trepak.Sum, process_set=mine)
            assert float(alone) == rank + 1
        weights = train(**options)
        if "sync" not in options:  # whose rounds need not have the gradients of all
            np.testing.assert_allclose(weights, one_step(), rtol=1e-5)
    restart_for_others()


@case
def a_part_of_the_ranks_then_all() -> Any:
    """MPI alone has `comm=`. Horovod itself went on with the ranks that it was given before."""
    if not hvd.mpi_enabled():
        return
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    for comm in ([rank], None, MPI.COMM_WORLD, MPI.COMM_SELF, None):
        hvd.shutdown()
        hvd.init(comm=comm)
        alone = comm == [rank] or comm == MPI.COMM_SELF
        assert hvd.size() == (1 if alone else MPI.COMM_WORLD.Get_size()), comm
        assert float(trepak.allreduce(tf.constant(1.0), op=trepak.Sum)) == hvd.size()
    restart_for_others()
