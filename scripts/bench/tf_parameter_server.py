"""TensorFlow's own ParameterServerStrategy on an emulated network: one process of it.

With `--task` it is a worker and a parameter server, one of each on every host as in Geryon's paper;
without, the coordinator, which computes nothing. Workers don't wait for each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import trepak  # before TensorFlow: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import tensorflow as tf

from trepak.ops import emulated_compute
from trepak.scripts.bench import rank
from trepak.scripts.idle_watch import IdleWatch

_BACKWARD = 2.0  # times the forward pass
_WARM_STEPS = 2  # of each worker


def cluster_of(spec: dict[str, Any]) -> tf.train.ClusterSpec:
    """Returns the cluster: a worker and a server on each host, and the coordinator."""
    return tf.train.ClusterSpec(
        {
            "chief": [spec["chief"]],
            "worker": [f"{host}:{spec['ports'][0]}" for host in spec["hosts"]],
            "ps": [f"{host}:{spec['ports'][1]}" for host in spec["hosts"]],
        }
    )


def serve(spec: dict[str, Any], task: int) -> None:
    """Runs a worker and a server until the process is ended."""
    servers = [
        tf.distribute.Server(cluster_of(spec), job, task, protocol=spec["protocol"])
        for job in ("ps", "worker")
    ]
    servers[-1].join()


class Layer:
    """What a training step needs of one layer: its time, and its variables on the servers."""

    def __init__(self, layer: Any, batch: int, pieces: int) -> None:
        """Makes the variables, each in so many pieces; within a strategy's scope."""
        self.milliseconds = layer.milliseconds * batch
        self.variables = [
            tf.Variable(piece)
            for variable in layer.trainable_variables
            for piece in _pieces(variable, pieces)
        ]

    def forward(self, x: Any) -> tuple[Any, list[Any]]:
        """Returns x when the layer would have been computed, and the values that it needed."""
        values = [variable.read_value() for variable in self.variables]
        with tf.control_dependencies(values):
            return emulated_compute(x, self.milliseconds), values

    def backward(self, x: Any, values: list[Any]) -> Any:
        """Returns x when the gradients would have been computed; the servers apply them."""
        x = emulated_compute(x, _BACKWARD * self.milliseconds)
        mean = tf.reduce_mean(x)
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign_sub(1e-6 * value + 1e-3 * mean)
        return x


def _pieces(variable: Any, count: int) -> list[Any]:
    # A piece of a matrix stays a matrix: grpc+geryon tells fully connected layers by that.
    value = tf.convert_to_tensor(variable.value)
    size = int(value.shape[-1])
    bounds = [size * i // count for i in range(count + 1)]
    return [value[..., a:b] for a, b in zip(bounds, bounds[1:], strict=False) if b > a]


def resolver_of(spec: dict[str, Any]) -> Any:
    """Returns what tells the coordinator where its cluster is."""
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster_of(spec), task_type="chief", task_id=0, rpc_layer=spec["protocol"]
    )


def coordinate(spec: dict[str, Any]) -> list[dict[str, float]]:
    """Trains; returns seconds per step of a worker, by round, and shares of the CPU."""
    strategy = tf.distribute.ParameterServerStrategy(resolver_of(spec))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    job = spec["job"]
    model = job.network.build(job.shrink, job.stretch)
    with strategy.scope():
        layers = [
            Layer(layer, job.network.batch, spec["pieces"])
            for layer in model.layers
            if hasattr(layer, "milliseconds")
        ]

    @tf.function
    def step() -> Any:
        """Returns when it ended: a worker's clock is its host's."""
        x, needed = tf.zeros([1]), []
        for layer in layers:
            x, values = layer.forward(x)
            needed.append(values)
        for layer, values in zip(reversed(layers), reversed(needed), strict=True):
            x = layer.backward(x, values)
        with tf.control_dependencies([x]):
            return tf.timestamp()

    return timed_rounds(coordinator, step, len(spec["hosts"]), job.rounds, spec["steps"])


def timed_rounds(
    coordinator: Any, step: Callable[[], Any], workers: int, rounds: int, steps: int
) -> list[dict[str, float]]:
    """Returns seconds per step of a worker, by round, and shares of the CPU.

    Args:
        coordinator: a ClusterCoordinator.
        step: a tf.function that returns when it ended.
        workers: how many there are.
        rounds: how many are measured, after steps that are not.
        steps: of each worker in each round, more than two.
    """

    def ends(of_each: int) -> list[float]:
        scheduled = [coordinator.schedule(step) for _ in range(of_each * workers)]
        coordinator.join()
        return [float(end) for end in coordinator.fetch(scheduled)]

    ends(_WARM_STEPS)
    found = []
    for _ in range(rounds):
        idle = IdleWatch()
        seconds = step_seconds(ends(steps), workers)
        found.append({"step_s": seconds, **idle.shares()})
    return found


def step_seconds(ends: Sequence[float], workers: int) -> float:
    """Returns how long a worker takes for a step while all are at work.

    Args:
        ends: when each step ended, by any worker; more than two for each. Each worker's first is
            not counted, nor are the last ones, while which some have nothing to do any more.
        workers: how many there are.
    """
    counted = sorted(ends)[workers - 1 : len(ends) - workers]
    return workers * (counted[-1] - counted[0]) / (len(counted) - 1)


def main(coordinating: Callable[[dict[str, Any]], Any]) -> None:
    """Runs one process of the cluster.

    Args:
        coordinating: what the coordinator does: it takes the spec, and returns what it measured.
    """
    options = rank.options()
    trepak.register_server_protocol()
    if options.task is not None:
        serve(options.spec, options.task)
    else:
        options.output.write_text(json.dumps(coordinating(options.spec)))


if __name__ == "__main__":
    main(coordinate)
