"""What a reader makes of the ranks' data: rounds of elements, one for each rank.

An element is flat, because a service's elements have one structure: whether the data has ended; the
components of the rank's batch; and by layer and call what all ranks ask this one for, and their
splits, as an alltoall of the ids would have brought them (thesis, section 6.1.2, "input
re-distribution").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trepak.ops.loader import call, load
from trepak.tf_plugins.data.ids_graph import IdsGraph


@dataclass(frozen=True)
class RoutedLayer:
    """A layer's tables, as routing needs them.

    Attributes:
        store: what `open_embeddings` takes, to open a store without rows.
        features: names.
        tables: numbers, by feature.
    """

    store: dict[str, Any]
    features: tuple[str, ...]
    tables: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """What a reader needs to know.

    Attributes:
        batches_of: of a rank and the number of ranks: the rank's batches.
        ids: what is looked up.
        layers: of the model.
        ranks: how many there are.
        reader: this one's number.
        readers: how many there are.
    """

    batches_of: Callable[[int, int], tf.data.Dataset]
    ids: IdsGraph
    layers: tuple[RoutedLayer, ...]
    ranks: int
    reader: int
    readers: int


def rounds(reading: Reading) -> tuple[tf.data.Dataset, list[Any]]:
    """Returns endless rounds, and by rank what its batches are (an element_spec).

    The rounds are those of an epoch, then one in which each rank is told that it has ended. It ends
    where the first rank has no more batches. Each reader makes each `readers`-th round.

    Raises:
        ValueError: the batches of ranks differ in structure or dtypes.
    """
    stores = [call("open_embeddings", **layer.store)["store"] for layer in reading.layers]
    batches = [reading.batches_of(rank, reading.ranks) for rank in range(reading.ranks)]
    for rank, dataset in enumerate(batches):
        _check_alike(rank, dataset.element_spec, batches[0].element_spec)

    def routed(*given: Any) -> tuple[tuple[Any, ...], ...]:
        components = [tf.nest.flatten(one, expand_composites=True) for one in given]
        asked = _asked(reading, stores, [reading.ids.ids_of(one) for one in components])
        return tuple(
            (tf.constant(False), *mine, *wanted)
            for mine, wanted in zip(components, asked, strict=True)
        )

    step = tf.data.Dataset.zip(tuple(batches)).shard(reading.readers, reading.reader)
    # Each waits in memory: a few are made ahead, whatever the ranks do.
    made = step.map(routed, num_parallel_calls=2, deterministic=True).prefetch(2)
    elements = made.flat_map(_one_by_one)
    end = tuple(map(_nothing, elements.element_spec))
    ends = tf.data.Dataset.from_tensors((tf.constant(True), *end[1:])).repeat(reading.ranks)
    endless = elements.concatenate(ends).repeat().with_options(_options())
    return endless, [dataset.element_spec for dataset in batches]


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    return options


def _check_alike(rank: int, spec: Any, first: Any) -> None:
    tf.nest.assert_same_structure(spec, first)
    for mine, other in zip(tf.nest.flatten(spec), tf.nest.flatten(first), strict=True):
        if getattr(mine, "dtype", None) != getattr(other, "dtype", None):
            raise ValueError(f"batches of rank {rank} have {mine}, those of rank 0 {other}.")


def _one_by_one(*elements: Any) -> tf.data.Dataset:
    found = tf.data.Dataset.from_tensors(elements[0])
    for element in elements[1:]:
        found = found.concatenate(tf.data.Dataset.from_tensors(element))
    return found


def _nothing(spec: tf.TensorSpec) -> Any:
    return tf.zeros([size or 0 for size in spec.shape] if spec.shape.rank else [], spec.dtype)


def _asked(
    reading: Reading, stores: Sequence[int], ids: Sequence[list[list[list[tuple[Any, Any]]]]]
) -> list[list[Any]]:
    """Returns by rank what it is asked for: of each layer's calls, requests and their splits."""
    asked: list[list[Any]] = [[] for _ in range(reading.ranks)]
    for number, layer in enumerate(reading.layers):
        for place in range(len(ids[0][number])):
            requests = [
                _routed(layer, stores[number], mine[number][place], rank)
                for rank, mine in enumerate(ids)
            ]
            for owner in range(reading.ranks):
                parts = [parts[owner] for parts in requests]
                sizes = [tf.size(part, tf.int64) for part in parts]
                asked[owner] += [tf.concat(parts, 0), tf.stack(sizes)]
    return asked


def _routed(
    layer: RoutedLayer, store: int, inputs: Sequence[tuple[Any, Any]], rank: int
) -> list[Any]:
    """Returns what one rank asks of each other one, without duplicates."""
    requests, splits, _, _ = load().trepak_embedding_route(
        [ids for ids, _ in inputs],
        [splits for _, splits in inputs],
        features=[f"{feature} of rank {rank}" for feature in layer.features],
        tables=layer.tables,
        store=store,
    )
    ranks = layer.store["ranks"]  # the last one is this process: it has no rows
    parts: list[Any] = tf.split(requests, tf.ensure_shape(splits, [ranks]), num=ranks)
    return parts[:-1]
