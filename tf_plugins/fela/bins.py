"""The bin-partitioned method: cuts where the threshold batch size changes (Section IV-A).

The paper gives each of VGG-19's 19 layers a threshold, and puts layers that follow each other, with
thresholds in one bin of 16, into one sub-model. What it leaves open is filled in here so that its
partitions come out:

- Layers without a kernel (activations, pooling, normalization, merges) belong to the one before.
- Layers of one class, window and output are of one type, and so are fully connected layers that
  follow each other: the paper counts 6 types in VGG-19. A type is measured by its layer of middle
  size, in VGG-19 by those that the paper names.
- What lies between two places where only one tensor crosses is one layer, such as an inception or
  residual block, and has the threshold of the layer in it that computes most. So a cut that would
  fall into a block moves to one of its ends. Where more than 12 layers with kernels lie between,
  it is no block: a cut may fall between any of them, and several tensors cross it. Inputs that
  wait and outputs that are done do not count as crossing.
- A threshold below one before it counts as that one: deeper layers get larger batches (Section
  IV-B, w_{i+1} ≥ w_i), and they have their best throughput with a larger batch, too.
- No cut separates calls of one layer, or of layers that share a variable.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trepak.tf_plugins.fela.cuts import crossings
from trepak.tf_plugins.fela.graph import Graph
from trepak.tf_plugins.fela.layer_shapes import (
    is_fully_connected,
    is_weighted,
    multiplications,
    parameters,
    shape_type,
)
from trepak.tf_plugins.fela.profile import Profile

_LARGEST_BLOCK = 12  # layers with kernels: as many as the largest of Inception-v4's has, and some


@dataclass(frozen=True)
class Stretch:
    """Nodes that stay together, and their threshold batch size.

    Attributes:
        begin: place of the first node.
        threshold: samples.
    """

    begin: int
    threshold: int


def stretches_in_bins(
    graph: Graph, profile: Profile, bin_size: int, at_most: int | None = None
) -> list[Stretch]:
    """Returns what becomes a sub-model each.

    Args:
        graph: the model's.
        profile: has the thresholds.
        bin_size: of the bins [0, bin_size), [bin_size, 2·bin_size), …
        at_most: so many: neighbours are joined whose thresholds are closest in proportion.

    Raises:
        ValueError: no layer has a kernel.
    """
    found: list[Stretch] = []
    for one in layers(graph, profile):
        if found and one.threshold <= found[-1].threshold:
            continue
        if found and one.threshold // bin_size == found[-1].threshold // bin_size:
            found[-1] = Stretch(found[-1].begin, one.threshold)
        else:
            found.append(one)
    while at_most is not None and len(found) > at_most:
        steps = [b.threshold / a.threshold for a, b in itertools.pairwise(found)]
        i = steps.index(min(steps))
        found[i : i + 2] = [Stretch(found[i].begin, found[i + 1].threshold)]
    return found


def layers(graph: Graph, profile: Profile) -> list[Stretch]:
    """Returns the layers in the paper's sense: what no cut of the method divides.

    Raises:
        ValueError: no layer has a kernel.
    """
    measured = _measured(graph)
    allowed = _allowed(graph)
    simple = [place for place in _simple(graph) if place in allowed]
    begins = [0, *(place + 1 for place in simple)]
    ends = [*begins[1:], len(graph.nodes)]
    found: list[Stretch] = []
    for begin, end in zip(begins, ends, strict=True):
        weighted = [place for place in range(begin, end) if place in measured]
        if len(weighted) > _LARGEST_BLOCK:
            first = [begin, *(one for one in weighted[1:] if one - 1 in allowed)]
            pieces = list(zip(first, [*first[1:], end], strict=True))
        else:
            pieces = [(begin, end)] if weighted else []
        for first_node, last in pieces:
            inside = [place for place in weighted if first_node <= place < last]
            heaviest = max(inside, key=lambda place: multiplications(graph.nodes[place]))
            found.append(Stretch(first_node if found else 0, profile.threshold(measured[heaviest])))
    return found


def _measured(graph: Graph) -> dict[int, Any]:
    """Returns, by the place of each node with a kernel, the node that its type is measured by."""
    types: dict[str, list[int]] = {}
    runs = 0
    for place, node in enumerate(graph.nodes):
        if is_weighted(node):
            fully_connected = is_fully_connected(node)
            runs += not fully_connected
            key = f"fully connected after {runs}" if fully_connected else shape_type(node)
            types.setdefault(key, []).append(place)
    if not types:
        raise ValueError(
            f"no layer of model {graph.model.name!r} has a kernel, so that there is no threshold "
            "batch size to cut by: give cuts by name."
        )
    found: dict[int, Any] = {}
    for places in types.values():
        middle = sorted(places, key=lambda place: parameters(graph.nodes[place]))[len(places) // 2]
        found |= dict.fromkeys(places, graph.nodes[middle])
    return found


def _simple(graph: Graph) -> Sequence[int]:
    """Returns the places where one tensor crosses, beside inputs that wait and outputs done."""
    ends = {id(tensor) for tensor in (*graph.inputs, *graph.outputs)}
    counts = [sum(id(one) not in ends for one in crossing) for crossing in crossings(graph)]
    return [place for place, count in enumerate(counts[:-1]) if count <= 1]


def _allowed(graph: Graph) -> set[int]:
    """Returns the places where no state is shared across, and that a layer's name tells."""
    span: dict[Any, list[int]] = {}
    last_call = {}
    for place, node in enumerate(graph.nodes):
        last_call[id(node.operation)] = place
        for variable in getattr(node.operation, "variables", ()):
            span.setdefault(id(variable), []).append(place)
    shared = {place for places in span.values() for place in range(places[0], places[-1])}
    return set(last_call.values()) - shared - {len(graph.nodes) - 1}
