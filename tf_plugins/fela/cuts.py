"""Where a graph may be cut, and what crosses there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keras.src.backend import get_keras_mask

from trepak.tf_plugins.fela.graph import Graph


@dataclass(frozen=True, eq=False)
class Crossing:
    """A tensor that crosses a cut.

    Attributes:
        tensor: the Keras tensor.
        name: of the layer that makes it, or "the mask of" it.
        dtype: its name.
        shape: without the batch.
    """

    tensor: Any
    name: str
    dtype: str
    shape: tuple[int, ...]


def crossings(graph: Graph) -> list[list[Any]]:
    """Returns the Keras tensors that cross each place, by the node that it follows.

    They stand in the order in which they are made. A tensor crosses every place between the node
    that makes it and the last one that reads it: also a model's input, and an output made early.
    """
    last_reader = {id(tensor): len(graph.nodes) for tensor in graph.outputs}
    for place, node in reversed(list(enumerate(graph.nodes))):
        for tensor in node.input_tensors:
            last_reader.setdefault(id(tensor), place)
    alive = list(graph.inputs)
    found = []
    for place, node in enumerate(graph.nodes):
        alive = [one for one in [*alive, *node.outputs] if last_reader.get(id(one), -1) > place]
        found.append(alive)
    return found


def crossing(tensor: Any) -> Crossing:
    """Returns what crosses a cut for a Keras tensor.

    Raises:
        ValueError: a batch of it can't be put together of tokens' outputs.
    """
    return _described(tensor, _name(tensor))


def with_masks(tensors: Sequence[Any]) -> list[Crossing]:
    """Returns what crosses a cut for Keras tensors: these, and then their masks, each once.

    Raises:
        ValueError: see `crossing`.
    """
    found = {id(tensor): crossing(tensor) for tensor in tensors}
    for tensor in tensors:
        mask = get_keras_mask(tensor)
        if mask is not None:  # a tensor of the graph too, where a layer takes it as an argument
            found.setdefault(id(mask), _described(mask, f"the mask of {_name(tensor)}"))
    return list(found.values())


def _name(tensor: Any) -> str:
    return str(tensor._keras_history.operation.name)


def _described(tensor: Any, name: str) -> Crossing:
    if not tensor.shape or tensor.shape[0] is not None:
        raise ValueError(
            f"{name} has the shape {tuple(tensor.shape)}, whose first dimension is not an open "
            "batch: tokens have batches of several sizes. Make a keras.Input without batch_size, "
            "and cut where each sample has its own values."
        )
    if None in tensor.shape[1:]:
        raise ValueError(
            f"{name} has the shape {tuple(tensor.shape)}, in which more than the batch is open: "
            "tokens put samples of several ranks together, which must be alike. Give keras.Input "
            "all dimensions, and pad or cut samples to them."
        )
    return Crossing(tensor, name, str(tensor.dtype), tuple(tensor.shape[1:]))
