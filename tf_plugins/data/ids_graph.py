"""A graph from batches to ids, which a process without the model computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class IdsGraph:
    """A graph from batches to the ids that are looked up, for a process without the model.

    Attributes:
        graph: a serialized GraphDef.
        inputs: names of the tensors that the components of a batch are put in for.
        outputs: names of the results: by layer, call and feature the ids, then their splits.
        features: by layer and call, how many features there are.
    """

    graph: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    features: tuple[tuple[int, ...], ...]

    def ids_of(self, components: Sequence[Any]) -> list[list[list[tuple[Any, Any]]]]:
        """Returns ids and splits by layer, call and feature; to be called while tracing.

        Args:
            components: of a batch, flat.
        """
        definition = tf.compat.v1.GraphDef.FromString(self.graph)
        found = tf.graph_util.import_graph_def(
            definition,
            input_map=dict(zip(self.inputs, components, strict=True)),
            return_elements=list(self.outputs),
            name="",
        )
        pairs = iter(zip(found[::2], found[1::2], strict=True))
        return [[[next(pairs) for _ in range(n)] for n in calls] for calls in self.features]
