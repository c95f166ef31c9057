"""One rank of the paper's Figure 5: when do two parameters of two servers reach a worker?"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import trepak
import trepak.keras as hvd  # before TensorFlow: it keeps start-up noise off the terminal

# isort: split
import tensorflow as tf

from trepak.horovod_ext import parameter_server
from trepak.horovod_ext.parameter_server import ServerOptions
from trepak.horovod_ext.variables import make_known
from trepak.ops import gradient_exchange
from trepak.ops.variable_table import place_variable, set_thresholds
from trepak.scripts.bench.geryon_arms import END_HOST, GERYON

WORKER = 2  # the rank that waits; the others run a server each
_SLICE = 16 * 1024  # elements: a message that has begun to travel is not overtaken


def options_of(way: str) -> ServerOptions:
    """Returns whole variables on one server each, the less urgent one on rank 0's."""
    end_host = way == END_HOST
    return ServerOptions(
        servers=(0, 1),
        split=False,
        slice_elements=_SLICE,
        dscp=(0,) if end_host else (46, 0),
        by_layer=end_host,
    )


class Parameters:
    """Two variables of the same size, the less urgent first."""

    def __init__(self, elements: int) -> None:
        """Makes them known to the servers."""
        self._variables = [
            tf.Variable(tf.zeros(shape), name=name)
            for name, shape in (("dense", [1, elements]), ("conv", [1, 1, 1, elements]))
        ]
        for key, variable in enumerate(self._variables):
            make_known(key, variable)
            place_variable(key, layer=2 - key, fully_connected=key == 0)

    def push(self) -> None:
        """Pushes a gradient of each."""
        for key, variable in enumerate(self._variables):
            gradient_exchange.push_gradient(variable.handle, tf.ones_like(variable), key)
        handles = [variable.handle for variable in self._variables]
        gradient_exchange.commit_step(handles, range(len(handles)))

    def deliver(self) -> list[float]:
        """Waits for both; returns when each was there, by the monotonic clock."""
        with ThreadPoolExecutor(len(self._variables)) as pool:
            return list(pool.map(self._deliver, range(len(self._variables))))

    def _deliver(self, key: int) -> float:
        variable = self._variables[key]
        gradient_exchange.deliver_gradient(variable.handle, key, variable.dtype, variable.shape)
        return time.monotonic()


def measure(way: str, elements: int, rounds: int, settle_seconds: float) -> list[list[float]]:
    """Measures one way; a collective call.

    The worker pushes first, so that both sums are complete when the servers' ranks have pushed;
    both servers answer at the same time.

    Returns:
        By round, the seconds until the less urgent and the urgent one had come to this rank.
    """
    parameter_server.start(options_of(way))
    set_thresholds(None)
    parameters = Parameters(elements)
    outcomes = []
    for _ in range(rounds):
        if hvd.rank() == WORKER:
            parameters.push()
            time.sleep(settle_seconds)
        hvd.barrier()
        began = time.monotonic()
        if hvd.rank() != WORKER:
            parameters.push()
        outcomes.append([when - began for when in parameters.deliver()])
    parameter_server.stop()
    return outcomes


def main() -> None:
    """Measures both ways with the other ranks; rank 0 writes what the worker saw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--elements", type=int, required=True, help="of each parameter")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--settle", type=float, required=True, help="seconds that a push takes")
    options = parser.parse_args()
    hvd.init()
    seen = {
        way: measure(way, options.elements, options.rounds, options.settle)
        for way in (END_HOST, GERYON)
    }
    everybodys = trepak.allgather_object(seen)
    if hvd.rank() == 0:
        options.output.write_text(json.dumps(everybodys[WORKER]))
    hvd.shutdown()


if __name__ == "__main__":
    main()
