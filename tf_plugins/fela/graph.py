"""The calls that a Keras model is made of; models that tokens can't train are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.models.functional import Functional

from trepak.tf_plugins.fela import sample_noise

# Their calls are collective: all ranks must make them at the same time, which tokens do not.
_COLLECTIVE = {
    "SyncBatchNormalization": "BatchNormalization, whose statistics are then those of a token",
    "DistributedEmbedding": "Embedding, or train with sync=trepak.BSP()",
}
# They call a layer in a loop, in which all turns would draw the same numbers.
_LOOPS = (keras.layers.Wrapper, keras.layers.RNN)


@dataclass(frozen=True, eq=False)
class Graph:
    """A model as the calls of its operations.

    Attributes:
        model: the user's, which is never changed.
        functional: Keras' graph of it: itself, or what a Sequential model runs.
        nodes: Keras' nodes, one for each call of an operation, in an order in which they can run:
            that of `model.layers`.
        inputs: the model's, flat.
        outputs: the model's, flat.
        noises: by id, each layer of the model that draws a number for each sample, and its place
            among them.
    """

    model: Any
    functional: Any
    nodes: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    noises: dict[int, tuple[Any, int]]


def graph_of(model: Any) -> Graph:
    """Returns a model's graph.

    Raises:
        TypeError: the model has a call of its own, so that there is no graph to cut.
        ValueError: it is not built, or a layer can't be trained by tokens; the message names it.
    """
    functional = _functional(model)
    for tensor in functional.inputs:
        if tensor.sparse or tensor.ragged:
            raise ValueError(
                f"input {tensor._keras_history.operation.name!r} is sparse or ragged, and tokens' "
                "samples are dense: make them so in the input pipeline."
            )
    places = {id(operation): i for i, operation in enumerate(functional.operations)}
    nodes = []
    for depth in sorted(functional._nodes_by_depth, reverse=True):
        at_depth = [node for node in functional._nodes_by_depth[depth] if not node.is_input]
        nodes += sorted(at_depth, key=lambda node: places[id(node.operation)])
    noises: list[Any] = []
    for operation in functional.operations:
        for layer, in_loop in layers_in(operation):
            if _draws_for_each_sample(layer, in_loop) and layer not in noises:
                noises.append(layer)
    return Graph(
        model,
        functional,
        tuple(nodes),
        tuple(functional.inputs),
        tuple(functional.outputs),
        {id(layer): (layer, place) for place, layer in enumerate(noises)},
    )


def layers_in(operation: Any, in_loop: bool = False) -> Iterator[tuple[Any, bool]]:
    """Yields an operation that is a layer and those in it, and whether one is called in a loop."""
    if isinstance(operation, keras.Layer):
        yield operation, in_loop
        loops = in_loop or isinstance(operation, _LOOPS)
        for layer in operation._flatten_layers(include_self=False, recursive=False):
            yield from layers_in(layer, loops)


def _functional(model: Any) -> Any:
    name = f"model {getattr(model, 'name', model)!r}"
    if isinstance(model, keras.Sequential):
        if model._functional is None:
            raise ValueError(
                f"{name} has no graph yet, which Fela cuts: begin it with a keras.Input, or call "
                "its build(input_shape)."
            )
        inner = model._functional
    else:
        inner = model
    own_call = getattr(type(model), "call", None) not in (Functional.call, keras.Sequential.call)
    if own_call or not isinstance(inner, Functional):
        raise TypeError(
            f"{name} of the class {type(model).__name__} has a call of its own: Fela cuts the "
            "graph of Functional and Sequential models. Make it with keras.Model(inputs, outputs) "
            "or keras.Sequential."
        )
    return inner


def _draws_for_each_sample(layer: Any, in_loop: bool) -> bool:
    """Says whether a layer's numbers are drawn by `sample_noise`.

    Raises:
        ValueError: a token can't train the layer.
    """
    name = f"layer {layer.name!r}"
    if getattr(layer, "stateful", False):
        raise ValueError(
            f"{name} keeps its state between batches (stateful=True), which tokens mix: make it "
            "with stateful=False."
        )
    kind = next((base.__name__ for base in type(layer).__mro__ if base.__name__ in _COLLECTIVE), "")
    if kind or getattr(layer, "synchronized", False):
        kind = kind or "SyncBatchNormalization"
        raise ValueError(
            f"{name} computes over all ranks at once ({kind}), and Fela's train at their own pace: "
            f"use {_COLLECTIVE[kind]}."
        )
    if not layer._seed_generators or _never_draws(layer):
        return False
    if in_loop or not sample_noise.is_known(layer):
        where = "in a layer that calls it in a loop" if in_loop else "in its own way"
        raise ValueError(
            f"{name} of the class {type(layer).__name__} draws random numbers {where}: they would "
            "depend on how samples are grouped into tokens. Use Dropout, SpatialDropout, "
            "GaussianDropout or GaussianNoise, called on a batch, or set its rate to 0; augment "
            "data in the input pipeline."
        )
    return True


def _never_draws(layer: Any) -> bool:
    """Says whether it is a recurrent cell without dropout, which has a generator all the same."""
    rates = [getattr(layer, name, None) for name in ("dropout", "recurrent_dropout")]
    return rates == [0, 0]
