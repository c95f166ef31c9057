"""Gradients through parameter servers that the ranks run beside their training."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import parameter_server
from trepak.horovod_ext.parameter_server import ServerOptions
from trepak.horovod_ext.transport import Transport
from trepak.ops import geryon as map_table
from trepak.tf_plugins.transport.forward_order import places

_numbers = itertools.count()  # of parameters that were placed


def default_servers() -> ParameterServers:
    """Returns the servers of what needs some, where a user has asked for none."""
    return ParameterServers(dscp=ServerOptions().dscp)


class ParameterServers(Transport):
    """Sums gradients on servers that all ranks, or some, run; slice by slice, as they come.

    What a server answers is the averaged gradient, not the updated parameter: as many bytes, in the
    same order, and any Keras optimizer can apply it.
    """

    def __init__(
        self,
        slice_elements: int = 1024 * 1024,
        servers: Sequence[int] | None = None,
        split: bool = True,
        fixed_order: bool = False,
        dscp: Sequence[int] = (0,),
        pull_seed: int | None = None,
        by_layer: bool = False,
    ) -> None:
        """Makes the transport; nothing runs before the first step.

        Args:
            slice_elements: pieces of a variable with more elements are cut; 0 cuts nothing.
            servers: ranks that run a server; None is all of them.
            split: split every variable evenly over the servers; otherwise whole ones go round
                robin.
            fixed_order: sum in the order of ranks, so that the same gradients give the same bits.
            dscp: what marks the packets of each priority, 0 to 63, the highest first.
            pull_seed: ask for sums only when a step has pushed everything, in an order drawn with
                this seed, as TensorFlow's own parameter servers are asked.
            by_layer: what earlier layers need overtakes the rest in every rank's own queues, as in
                TicTac and P3; the network knows nothing of it.

        Raises:
            ValueError: options that are wrong.
        """
        self.options = ServerOptions(
            servers=None if servers is None else tuple(servers),
            split=split,
            slice_elements=slice_elements,
            fixed_order=fixed_order,
            dscp=tuple(dscp),
            pull_seed=pull_seed,
            by_layer=by_layer,
        )
        self._labels: dict[int, str] = {}
        self._placed: set[int] = set()

    def start(self) -> None:
        """Starts the servers; see `Transport.start`."""
        parameter_server.start(self.options)

    def carries(self, dtype: Any) -> bool:
        """Tells whether gradients of this dtype can be summed; see `Transport.carries`."""
        return dtype in (tf.float32, tf.float64)

    def register(self, key: int, variable: Any) -> None:
        """Makes a variable known to the servers; see `Transport.register`."""
        self._labels[key] = parameter_server.register(key, variable)

    def place(self, variables: Sequence[Any]) -> list[str]:
        """Records where variables stand in the network that is being traced; returns their labels.

        For parameters that are no gradients; those of gradients are placed when they are pushed.

        Args:
            variables: Keras or TensorFlow variables.
        """
        labels = []
        for place, variable in zip(places(variables), variables, strict=True):
            path = getattr(variable, "path", None) or variable.name
            labels.append(f"{path} ({next(_numbers)})")  # which no other has
            map_table.record_parameter(labels[-1], *place)
        return labels

    def push(
        self,
        keys: Sequence[int],
        variables: Sequence[Any],
        gradients: Sequence[Any],
        factor: float,
        average: bool,
    ) -> None:
        """Pushes one step's gradients; see `Transport.push`."""
        new = [key not in self._placed for key in keys]
        if any(new):
            for key, place in zip(keys, places(variables), strict=True):
                if key not in self._placed:
                    map_table.record_parameter(self._labels[key], *place)
            self._placed.update(keys)
        for key, variable, gradient in zip(keys, variables, gradients, strict=True):
            parameter_server.push(key, variable, gradient, factor, average)
        parameter_server.commit(keys, variables)

    def deliver(self, key: int, variable: Any) -> Any:
        """Returns a gradient's sum; see `Transport.deliver`."""
        return parameter_server.deliver(key, variable)

    def pending(self, keys: Sequence[int], variables: Sequence[Any]) -> Any:
        """Returns which gradients are to come; see `Transport.pending`."""
        return parameter_server.pending(keys, variables)
