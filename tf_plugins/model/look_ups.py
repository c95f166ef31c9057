"""What a model looks up: of each of its distributed embeddings, the ids of each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from trepak.tf_plugins.data.ids_graph import IdsGraph
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding
from trepak.tf_plugins.layers.embedding_inputs import FeatureInput
from trepak.tf_plugins.layers.embedding_schedule import Collecting, scheduled

# Stateful ops that return the same wherever a graph runs. Others draw, count, or look at a clock.
_HARMLESS = {"StatefulPartitionedCall", "If", "While", "Case", "Assert", "Print", "PrintV2"}


def embedding_layers(model: Any) -> list[Any]:
    """Returns a model's `DistributedEmbedding` layers."""
    found = model._flatten_layers()
    return [layer for layer in found if isinstance(layer, DistributedEmbedding)]


def look_ups(model: Any, data: Any) -> list[list[Sequence[FeatureInput]]]:
    """Returns by layer, for each of its calls, the inputs by feature; to be called while tracing.

    Args:
        model: a Keras model.
        data: what its `train_step` takes.
    """
    layers = embedding_layers(model)
    collecting = [Collecting() for _ in layers]
    inputs = keras.utils.unpack_x_y_sample_weight(data)[0]
    with scheduled(layers, collecting):
        # What this computes beside the ids is not wanted, and TensorFlow leaves it out.
        model(inputs, training=False) if model._call_has_training_arg else model(inputs)
    model._clear_losses()
    return [one.inputs for one in collecting]


def ids_graph(model: Any, spec: Any) -> IdsGraph:
    """Traces what a model looks up.

    Args:
        model: a Keras model with such layers.
        spec: of a batch, which may be of any size in the first dimension.

    Raises:
        ValueError: the ids depend on the model's weights or tables, which other processes lack; or
            on what is not the same in each process, as on random numbers.
    """
    of_any_size = tf.nest.map_structure(_of_any_size, spec)
    features: list[tuple[int, ...]] = []

    def plain(*components: Any) -> list[Any]:
        data = tf.nest.pack_sequence_as(of_any_size, components, expand_composites=True)
        found = look_ups(model, data)
        features[:] = [tuple(len(call) for call in calls) for calls in found]
        inputs = [one for calls in found for call in calls for one in call]
        return [tf.identity(part) for one in inputs for part in (one.ids, one.splits)]

    flat = tf.nest.flatten(of_any_size, expand_composites=True)
    concrete = tf.function(plain, autograph=False).get_concrete_function(*flat)
    outputs = tuple(one.name for one in concrete.outputs)
    definition = _needed(concrete.graph.as_graph_def(), outputs)
    captured = {placeholder.op.name for _, placeholder in concrete.graph.captures}
    if any(node.name in captured for node in definition.node):
        raise ValueError(
            f"what the model {model.name!r} looks up depends on its own weights or tables of "
            "words, which the readers of its input don't have: make ids in the dataset."
        )
    varying = _varying(definition)
    if varying:
        raise ValueError(
            f"what the model {model.name!r} looks up would not be the same in its input's readers "
            f"as in a rank, because of {', '.join(varying)}: make such ids in the dataset."
        )
    names = tuple(one.name for one in concrete.inputs[: len(flat)])
    there = {node.name for node in definition.node}
    for tensor in concrete.inputs[: len(flat)]:  # one that is not needed is to be put in, too
        if tensor.op.name not in there:
            definition.node.append(tensor.op.node_def)
    return IdsGraph(definition.SerializeToString(), names, outputs, tuple(features))


def _of_any_size(spec: Any) -> Any:
    if isinstance(spec, tf.TensorSpec) and spec.shape.rank:
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
    return spec


def _needed(definition: Any, outputs: Sequence[str]) -> Any:
    """Returns a graph without the nodes that nothing of the outputs is computed from."""
    nodes = {node.name: node for node in definition.node}
    rest: list[str] = []
    names: set[str] = set()
    for name in {name.split(":")[0] for name in outputs}:
        # All that a function does must be over before it returns: that is not wanted.
        computed_from = [one for one in nodes[name].input if not one.startswith("^")]
        nodes[name].input[:] = computed_from
        rest.append(name)
    while rest:
        name = rest.pop()
        if name not in names:
            names.add(name)
            rest += [one.lstrip("^").split(":")[0] for one in nodes[name].input]
    needed = type(definition)(versions=definition.versions, library=definition.library)
    needed.node.extend(node for node in definition.node if node.name in names)
    return needed


def _varying(definition: Any) -> list[str]:
    """Returns the ops in a graph, and in what it calls, whose results are not its inputs' alone."""
    functions = {one.signature.name: one.node_def for one in definition.library.function}
    rest, called, found = list(definition.node), set[str](), set[str]()
    while rest:
        node = rest.pop()
        about = op_def_registry.get(node.op)
        if about is not None and about.is_stateful and node.op not in _HARMLESS:
            found.add(node.op)
        for value in node.attr.values():
            for name in {value.func.name, *(one.name for one in value.list.func)} - called:
                called.add(name)
                rest += functions.get(name, ())
    return sorted(found)
