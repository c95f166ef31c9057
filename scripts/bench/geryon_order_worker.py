"""One rank of the paper's Figure 5: when do two parameters of two servers reach a worker?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import trepak.keras as hvd  # before TensorFlow: it keeps start-up noise off the terminal

# isort: split
import tensorflow as tf

from trepak.horovod_ext import parameter_server
from trepak.horovod_ext.variables import make_known
from trepak.ops.loader import call
from trepak.scripts.bench import rank
from trepak.scripts.bench.exchanges import END_HOST, GERYON
from trepak.scripts.bench.geryon_order import WORKER
from trepak.tf_plugins.transport.parameter_servers import ParameterServers

_SLICE = 16 * 1024  # elements: a message that has begun to travel is not overtaken


class Servers(ParameterServers):
    """Whole variables on one server each, the less urgent one on rank 0's."""

    def __init__(self, method: str) -> None:
        """Makes the transport of one method."""
        end_host = method == END_HOST
        super().__init__(
            _SLICE,
            servers=(0, 1),
            split=False,
            dscp=(0,) if end_host else (46, 0),
            by_layer=end_host,
        )

    def place(self, keys: Sequence[int], variables: Sequence[Any]) -> None:
        """Has the first of two variables be the last layer's."""
        for key in keys:
            call("place_variable", key=key, layer=2 - key, fully_connected=key == 0)


class Parameters:
    """Two variables of the same size, the less urgent first."""

    def __init__(self, elements: int, servers: Servers) -> None:
        """Makes them known to the servers."""
        self._servers = servers
        self._variables = [
            tf.Variable(tf.zeros(shape), name=name)
            for name, shape in (("dense", [1, elements]), ("conv", [1, 1, 1, elements]))
        ]
        for key, variable in enumerate(self._variables):
            make_known(key, variable)

    def push(self) -> None:
        """Pushes a gradient of each."""
        gradients = [tf.ones_like(variable) for variable in self._variables]
        self._servers.push(range(2), self._variables, gradients, factor=1.0, average=False)

    def deliver(self) -> list[float]:
        """Waits for both; returns when each was there, by the monotonic clock."""
        with ThreadPoolExecutor(len(self._variables)) as pool:
            return list(pool.map(self._deliver, range(len(self._variables))))

    def _deliver(self, key: int) -> float:
        self._servers.deliver(key, self._variables[key])
        return time.monotonic()


def waits_of(method: str, elements: int, rounds: int, settle: float) -> list[list[float]]:
    """Measures one method; a collective call.

    The worker pushes first, so that both sums are complete when the servers' ranks have pushed;
    both servers answer at the same time.

    Returns:
        By round, the seconds until the less urgent and the urgent one had come to this rank.
    """
    servers = Servers(method)
    servers.start()
    call("set_thresholds", thresholds=None)
    parameters = Parameters(elements, servers)
    outcomes = []
    for _ in range(rounds):
        if hvd.rank() == WORKER:
            parameters.push()
            time.sleep(settle)  # seconds that a push takes
        hvd.barrier()
        began = time.monotonic()
        if hvd.rank() != WORKER:
            parameters.push()
        outcomes.append([when - began for when in parameters.deliver()])
    parameter_server.stop()
    return outcomes


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns what this rank saw by each method; see `waits_of`, whose arguments are the spec."""
    return {method: waits_of(method, **spec) for method in (END_HOST, GERYON)}


if __name__ == "__main__":
    rank.main(measure)
