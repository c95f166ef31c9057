"""Sven's models on TensorFlow's own parameter servers: one process of the cluster.

Embedding tables and dense weights lie on the servers, one on each worker's host. A worker reads
what its batch needs, computes, and has the servers apply its gradients; nobody waits for others.
What a GPU would compute is emulated as in `bench_sven_worker`.
"""

from __future__ import annotations

from typing import Any

from trepak.ops import emulated_compute  # before TensorFlow: it keeps start-up noise away

# isort: split
import numpy as np
import tensorflow as tf

from trepak.scripts.bench.sven_arithmetic import stream
from trepak.scripts.bench.sven_case import Case
from trepak.scripts.bench.tf_parameter_server import main, resolver_of, timed_rounds

_SHARD_ROWS = 1 << 20
_BATCHES = 8  # that are drawn; each worker takes one of them at random


def coordinate(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Trains; returns, by case, seconds per step of a worker, by round, and shares of the CPU."""
    strategy = tf.distribute.ParameterServerStrategy(resolver_of(spec))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = len(spec["hosts"])
    rows = []
    for case in spec["cases"]:
        step = _step(case, strategy, workers)
        for one in timed_rounds(coordinator, step, workers, spec["rounds"], case.steps):
            rows.append({"model": case.model, **one})
    return rows


def _step(case: Case, strategy: Any, servers: int) -> Any:
    """Returns a step of a worker, which returns when it ended.

    All features share one table, each of whose rows is one server's, and ids are merged before they
    are looked up: 26 tables of TensorFlow's own `Embedding` would cost an op for each and server.
    """
    ids = tf.constant(_batches(case))
    times, floats = case.times, case.allreduced_bytes // 4
    with strategy.scope():
        # Row numbers, folded: rows that nobody reads need no memory. Servers make the first values:
        # from the coordinator they would travel through the slow links.
        shards = [_zeros([_SHARD_ROWS, case.columns]) for _ in range(servers)]
        dense = [_zeros([floats // servers]) for _ in range(servers)]

    @tf.function
    def step() -> Any:
        batch = ids[tf.random.uniform([], maxval=_BATCHES, dtype=tf.int32)]
        unique, _ = tf.unique(batch)
        owner = tf.cast(unique % servers, tf.int32)
        wanted = tf.dynamic_partition((unique // servers) % _SHARD_ROWS, owner, servers)
        rows = [tf.gather(shard, of) for shard, of in zip(shards, wanted, strict=True)]
        values = [weights.read_value() for weights in dense]
        # A server's look-up takes its time where the rows are; a worker's stream stands for it.
        with tf.control_dependencies([*rows, *values]):
            x = emulated_compute(tf.zeros([1]), 1000 * times.look_up)
            x = emulated_compute(x, 1000 * (times.forward + times.backward))
        change = 1e-3 * tf.reduce_mean(x)
        with tf.control_dependencies([x]):
            updates = [
                shard.scatter_sub(tf.IndexedSlices(0.0 * row + change, of))
                for shard, of, row in zip(shards, wanted, rows, strict=True)
            ]
            updates += [
                weights.assign_sub(1e-6 * value + change)
                for weights, value in zip(dense, values, strict=True)
            ]
        with tf.control_dependencies([one for one in updates if one is not None]):
            x = emulated_compute(x, 1000 * (times.update + times.optimizer))
        with tf.control_dependencies([x]):
            return tf.timestamp()

    return step


def _zeros(shape: list[int]) -> Any:
    return tf.Variable(lambda: tf.zeros(shape))


def _batches(case: Case) -> Any:
    """Returns ids of drawn batches, each feature's behind those of the one before."""
    clicks = stream()
    firsts = np.cumsum([0, *clicks.vocabularies.values()])[:-1, None]
    drawn = clicks.samples(np.arange(_BATCHES * case.batch)).ids.astype(np.int64) + firsts
    by_batch = drawn.reshape(len(firsts), _BATCHES, case.batch)
    return by_batch.transpose(1, 0, 2).reshape(_BATCHES, -1)


if __name__ == "__main__":
    main(coordinate)
