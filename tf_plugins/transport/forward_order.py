"""Where variables stand in a network, read from the graph that is being traced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from trepak.horovod_ext.variables import tf_variable

_MATRIX = 2  # dimensions of a fully connected layer's kernel
# Ops that take a variable's handle for other reasons than to compute with its value.
_NO_READERS = ("If", "Trepak", "Assign", "Resource")


class Place(NamedTuple):
    """Where a variable stands.

    Attributes:
        layer: position of its layer in forward order, from 1 on (the paper's l).
        fully_connected: its layer multiplies by a matrix.
    """

    layer: int
    fully_connected: bool


def places(variables: Sequence[Any]) -> list[Place]:
    """Returns the places of variables in the network, by what reads them first.

    Variables of a layer share a place. Called after the gradients are traced; where nothing is
    being traced, the order of the variables counts as forward order.

    Args:
        variables: Keras or TensorFlow variables.
    """
    reads = _first_reads(variables)
    layers: dict[Any, list[int]] = {}
    for index, variable in enumerate(variables):
        layers.setdefault(_layer_of(variable, index), []).append(index)
    order = sorted(layers.values(), key=lambda members: min(reads[i] for i in members))
    found = [Place(1, False)] * len(variables)
    for number, members in enumerate(order, start=1):
        connected = any(len(variables[i].shape) == _MATRIX for i in members)
        for i in members:
            found[i] = Place(number, connected)
    return found


def _layer_of(variable: Any, index: int) -> Any:
    path = str(getattr(variable, "path", None) or getattr(variable, "name", ""))
    parent, slash, _ = path.rpartition("/")
    return parent if slash else index


def _first_reads(variables: Sequence[Any]) -> list[tuple[float, int]]:
    """Returns sort keys: which op of the graph reads a variable first, then the list's order."""
    numbers = max(
        ([_first_reader(graph, variable) for variable in variables] for graph in _graphs()),
        key=lambda found: sum(number < math.inf for number in found),
        default=[math.inf] * len(variables),
    )
    return [(number, index) for index, number in enumerate(numbers)]


def _graphs() -> Iterator[Any]:
    """Yields the function graph that is being traced and those around it, if any."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while hasattr(graph, "captures"):
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _first_reader(graph: Any, variable: Any) -> float:
    """Returns the number of the first op in a graph that reads a variable; inf if none does."""
    handle = getattr(tf_variable(variable), "handle", None)
    captured = next((inner for outer, inner in graph.captures if outer is handle), None)
    readers = () if captured is None else captured.consumers()
    return min(
        (
            operation._id
            for operation in readers
            if operation.type == "ResourceGather" or not operation.type.startswith(_NO_READERS)
        ),
        default=math.inf,
    )
