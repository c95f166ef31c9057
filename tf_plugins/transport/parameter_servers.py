"""Gradients through parameter servers that the ranks run beside their training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.horovod_ext import parameter_server
from trepak.horovod_ext.gradient_transport import GradientTransport
from trepak.horovod_ext.parameter_server import ServerOptions
from trepak.ops.loader import call
from trepak.tf_plugins.transport.forward_order import places


def default_servers() -> ParameterServers:
    """Returns the servers of what needs some, where a user has asked for none."""
    return ParameterServers(dscp=ServerOptions().dscp)


class ParameterServers(GradientTransport):
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
        self._pull_seed = pull_seed
        self._placed: set[int] = set()

    def start(self) -> None:
        """Starts the servers; see `GradientTransport.start`."""
        parameter_server.start(self.options)

    def register(self, key: int, variable: Any) -> None:
        """Does nothing; servers hear of a variable by its first gradient."""

    def place(self, keys: Sequence[int], variables: Sequence[Any]) -> None:
        """Records where variables stand in the network that is being traced, once for each.

        Args:
            keys: those of the variables.
            variables: Keras or TensorFlow variables.
        """
        if self._placed.issuperset(keys):
            return
        for key, (layer, fully_connected) in zip(keys, places(variables), strict=True):
            if key not in self._placed:
                call("place_variable", key=key, layer=layer, fully_connected=fully_connected)
        self._placed.update(keys)

    def push(
        self, keys: Sequence[int], variables: Sequence[Any], *args: Any, **kwargs: Any
    ) -> None:
        """Pushes one step's gradients; see `GradientTransport.push`."""
        self.place(keys, variables)
        super().push(keys, variables, *args, **kwargs)
