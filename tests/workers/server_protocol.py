"""One task of a cluster that trains with TensorFlow's parameter servers.

    python tests/workers/server_protocol.py PROTOCOL JOB PORTS

JOB is chief, worker or ps; PORTS those of the three, in this order. The chief writes the losses,
the weights and the bytes that the flows have carried to $OUT/PROTOCOL.json.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trepak
from trepak.ops.loader import load

STEPS, FEATURES, HIDDEN = 10, 24, 16


def cluster(ports: list[str]) -> tf.train.ClusterSpec:
    jobs = ("chief", "worker", "ps")
    return tf.train.ClusterSpec(
        {job: [f"localhost:{port}"] for job, port in zip(jobs, ports, strict=True)}
    )


def train(resolver: Any) -> dict[str, Any]:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    rng = np.random.default_rng(1)
    with strategy.scope():
        hidden = tf.Variable(rng.normal(size=(FEATURES, HIDDEN)), dtype=tf.float32)
        bias = tf.Variable(tf.zeros([HIDDEN]))
        output = tf.Variable(rng.normal(size=(HIDDEN, 1)), dtype=tf.float32)
        named = tf.Variable("text travels by gRPC")
    variables = [hidden, bias, output]

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            predicted = tf.tanh(x @ hidden + bias) @ output
            loss = tf.reduce_mean(tf.square(predicted - y))
        for gradient, variable in zip(tape.gradient(loss, variables), variables, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss, tf.strings.length(named)

    losses = []
    for _ in range(STEPS):
        x = tf.constant(rng.normal(size=(8, FEATURES)), tf.float32)
        y = tf.constant(rng.normal(size=(8, 1)), tf.float32)
        outcome = coordinator.schedule(step, args=(x, y))
        coordinator.join()
        loss, length = outcome.fetch()
        losses.append(float(loss))
        assert int(length) == 20
    sent = {}
    for job in ("worker", "ps"):
        with tf.device(f"/job:{job}/task:0/device:CPU:0"):
            counted = load().trepak_call("server_protocol_bytes", "{}")
        sent[job] = json.loads(counted.numpy())
    return {"losses": losses, "weights": [v.numpy().tolist() for v in variables], "bytes": sent}


def main() -> None:
    protocol, job, *ports = sys.argv[1:]
    trepak.register_server_protocol()
    if job == "chief":
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster(ports), task_type="chief", task_id=0, rpc_layer=protocol
        )
        result = train(resolver)
        Path(os.environ["OUT"], f"{protocol}.json").write_text(json.dumps(result))
    else:
        tf.distribute.Server(cluster(ports), job, 0, protocol=protocol).join()


if __name__ == "__main__":
    main()
