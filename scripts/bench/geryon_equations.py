"""How long an iteration takes by the performance model of Geryon's paper (section II.C).

The symbols are the paper's: forward, backward, push and pull of layer l are its tau_f^l, tau_b^l,
tau_g^l and tau_p^l.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_BITS = 32  # of a parameter
_BACKWARD = 2.0  # times the forward pass


@dataclass(frozen=True)
class LayerTimes:
    """One layer's times, in seconds.

    Attributes:
        forward: to compute its forward pass.
        backward: to compute its backward pass.
        transfers: to send the gradient of each of its variables, or to fetch the parameter.
    """

    forward: float
    backward: float
    transfers: tuple[float, ...]


def layer_times(
    model: Any, batch: int, bits_per_second: float, workers: int | None = None
) -> list[LayerTimes]:
    """Returns the times of an emulated network's layers, in forward order (equation 6).

    Args:
        model: made by `zoo.build(…, emulate=…)`; what its variables were shrunk by counts.
        batch: samples per worker.
        bits_per_second: B, of a worker's link in one direction.
        workers: n, of which each holds one server: (n - 1) / n of all bits cross a link. None has
            all of them cross it, as in the paper.
    """
    share = 1.0 if workers is None else (workers - 1) / workers
    per_element = _BITS * share / bits_per_second
    return [
        LayerTimes(
            forward=layer.milliseconds * batch / 1000,
            backward=_BACKWARD * layer.milliseconds * batch / 1000,
            transfers=tuple(math.prod(v.shape) * per_element for v in layer.trainable_variables),
        )
        for layer in model.layers
        if hasattr(layer, "milliseconds")
    ]


class Transfer(NamedTuple):
    """One variable's way, up or down.

    Attributes:
        layer: number of its layer, from 0 on.
        variable: its number in the network, from 0 on.
        seconds: of `LayerTimes.transfers`.
    """

    layer: int
    variable: int
    seconds: float


Order = Sequence[Transfer]


def in_order(layers: Sequence[LayerTimes]) -> Order:
    """Returns the transfers of all layers, the first layer's first."""
    flat = [(number, t) for number, layer in enumerate(layers) for t in layer.transfers]
    return [Transfer(layer, variable, t) for variable, (layer, t) in enumerate(flat)]


def in_reverse(layers: Sequence[LayerTimes]) -> Order:
    """Returns the transfers of all layers, the last layer's first."""
    return list(reversed(in_order(layers)))


def at_random(layers: Sequence[LayerTimes], generator: random.Random) -> Order:
    """Returns the transfers in a random order, as TensorFlow pulls."""
    order = list(in_order(layers))
    generator.shuffle(order)
    return order


def iteration_seconds(layers: Sequence[LayerTimes], pulls: Order, servers: int = 1) -> float:
    """Returns the time of one iteration, tau_iter (equations 1 to 5).

    Parameters are pulled in the given order from the iteration's begin on; gradients are pushed
    from the last layer to the first. (Equation 4 prints t_ff^L + tau_g^L for the last layer's push;
    a gradient can only leave when it is computed, so its base case here is t_b^L + tau_g^L.)

    Args:
        layers: of the network.
        pulls: all transfers, in the order in which parameters are asked for.
        servers: 1 where every variable is split evenly, so that all links do the same. Otherwise
            each variable is whole on one of so many, round robin, whose link carries it for all
            workers, so many times as long, while the others' carry theirs.
    """
    arrived = [0.0] * len(layers)
    links = [0.0] * servers
    for transfer in pulls:  # equation 1
        link = transfer.variable % servers
        links[link] += servers * transfer.seconds
        arrived[transfer.layer] = max(arrived[transfer.layer], links[link])
    computed = 0.0
    for number, layer in enumerate(layers):  # equation 2
        computed = max(computed, arrived[number]) + layer.forward
    links = [computed] * servers
    transfers = list(in_order(layers))
    for number in reversed(range(len(layers))):  # equations 3 and 4
        computed += layers[number].backward
        while transfers and transfers[-1].layer == number:
            transfer = transfers.pop()
            link = transfer.variable % servers
            links[link] = max(links[link], computed) + servers * transfer.seconds
    return max(*links, computed)  # equation 5


def compute_seconds(layers: Sequence[LayerTimes]) -> float:
    """Returns how long an iteration takes where nothing is transferred."""
    return sum(layer.forward + layer.backward for layer in layers)


def transfer_seconds(layers: Sequence[LayerTimes]) -> float:
    """Returns how long pushing or pulling everything takes, each."""
    return sum(sum(layer.transfers) for layer in layers)


def limit_seconds(layers: Sequence[LayerTimes]) -> float:
    """Returns what no schedule can beat: computing, or both transfers on one link.

    A link carries a worker's pushes and its server's answers in the same direction.
    """
    return max(compute_seconds(layers), 2 * transfer_seconds(layers))


def tail_seconds(layers: Sequence[LayerTimes]) -> float:
    """Returns how long an iteration takes that applies gradients when all of them are reduced.

    Each gradient is reduced as soon as backward has made it, so that what backward does not cover
    is the tail. A ring carries a gradient twice on each link, as pushes and answers do.
    """
    computed = sum(layer.forward for layer in layers)
    link = 0.0
    for layer in reversed(layers):
        computed += layer.backward
        link = max(link, computed) + 2 * sum(layer.transfers)
    return link


def potential_speedup(layers: Sequence[LayerTimes]) -> float:
    """Returns how much faster transfers in order are than in reverse (Figure 4b)."""
    reverse = iteration_seconds(layers, in_reverse(layers))
    return reverse / iteration_seconds(layers, in_order(layers))
