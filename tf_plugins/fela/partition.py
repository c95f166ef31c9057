"""The offline partition of a model into sub-models (Section IV-A)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.models.functional import unpack_singleton

from trepak.tf_plugins.fela import bins
from trepak.tf_plugins.fela.cuts import crossing, crossings, with_masks
from trepak.tf_plugins.fela.graph import Graph, graph_of
from trepak.tf_plugins.fela.profile import Profile, of_this_machine
from trepak.tf_plugins.fela.submodel import SubModel


@dataclass(frozen=True, eq=False)
class Partition:
    """A model in sub-models, in its layer order.

    Attributes:
        graph: of the user's model.
        sub_models: SM-1 to SM-M; what one's `outputs` are is what the next one's `inputs` are.
        places: of the nodes after which it is cut, M − 1 of them. Given to `partition_at`, they
            make the same partition of the same model on any rank, whatever Keras calls its layers.
        cuts: names of these layers.
        thresholds: the threshold batch size of each sub-model, in samples; None where the user has
            given the cuts without a profile.
    """

    graph: Graph
    sub_models: tuple[SubModel, ...]
    places: tuple[int, ...]
    cuts: tuple[str, ...]
    thresholds: tuple[int, ...] | None

    def flat(self, x: Any) -> list[Any]:
        """Returns what the model is called with as what the first sub-model takes.

        Args:
            x: tensors or arrays in the structure of the model's inputs.

        Raises:
            ValueError: they have another structure, or other shapes.
        """
        return list(self.graph.functional._standardize_inputs(x))

    def packed(self, outputs: Sequence[Any]) -> Any:
        """Returns what the last sub-model has computed as what the model returns."""
        structure = self.graph.functional._outputs_struct
        packed = keras.tree.pack_sequence_as(structure, list(outputs))
        return unpack_singleton(packed)


def partition(
    model: Any,
    cuts: str | int | Sequence[str] = "auto",
    bin_size: int = 16,
    profile: Profile | None = None,
) -> Partition:
    """Cuts a model.

    Machines measure different thresholds: of a job's ranks one should make the automatic cuts, and
    the others take its `places`.

    Args:
        model: a Functional or Sequential Keras model; it is not changed.
        cuts: names of the layers after which to cut; "auto" for the bin-partitioned method, as
            `trepak.tf_plugins.fela.bins` says; or a number, for the same with so many sub-models
            at most.
        bin_size: of the bins of threshold batch sizes, in samples.
        profile: has the thresholds; by default this machine's, which measures what is missing.

    Raises:
        TypeError: the model has a call of its own.
        ValueError: a layer can't be trained by tokens, or is in two sub-models; there is no layer
            of a name; a tensor that crosses has no open batch; a threshold is missing.
    """
    if bin_size < 1:
        raise ValueError(f"bin_size is at least 1 sample, got {bin_size}.")
    graph = graph_of(model)
    if cuts == "auto" or type(cuts) is int:
        if type(cuts) is int and cuts < 1:
            raise ValueError(f"cuts, as a number of sub-models, is at least 1, got {cuts}.")
        at_most = cuts if type(cuts) is int else None
        profile = of_this_machine() if profile is None else profile
        stretches = bins.stretches_in_bins(graph, profile, bin_size, at_most)
        places = [stretch.begin - 1 for stretch in stretches[1:]]
    else:
        places = _places_after(graph, cuts)
    thresholds = None if profile is None else _thresholds(graph, places, profile)
    return _made(graph, places, thresholds)


def partition_at(
    model: Any, places: Sequence[int], thresholds: Sequence[int] | None = None
) -> Partition:
    """Cuts a model as it, or another rank's, was cut before.

    Its layers may be trainable now, or frozen, that were not.

    Args:
        model: see `partition`.
        places: of the partition before.
        thresholds: of the partition before.

    Raises:
        ValueError: see `partition`.
    """
    graph = graph_of(model)
    last = len(graph.nodes) - 1
    if any(place >= last for place in places):
        raise ValueError(
            f"model {model.name!r} calls {last + 1} layers here, too few to be cut after number "
            f"{max(places) + 1}, as it was before, or on rank 0: build the same model on all "
            "ranks, and call Fela when it has all its layers."
        )
    return _made(graph, places, thresholds)


def _made(graph: Graph, places: Sequence[int], thresholds: Sequence[int] | None) -> Partition:
    sub_models = _sub_models(graph, places)
    _check_that_state_is_in_one(sub_models)
    return Partition(
        graph,
        sub_models,
        tuple(places),
        tuple(graph.nodes[place].operation.name for place in places),
        None if thresholds is None else tuple(thresholds),
    )


def _thresholds(graph: Graph, places: Sequence[int], profile: Profile) -> tuple[int, ...]:
    """Returns the largest threshold of the layers up to each sub-model's end."""
    layers = bins.layers(graph, profile)
    ends = [*(place + 1 for place in places), len(graph.nodes)]
    return tuple(max(one.threshold for one in layers if one.begin < end) for end in ends)


def _places_after(graph: Graph, cuts: Any) -> list[int]:
    """Returns the nodes after which to cut, ascending: the last call of each named layer."""
    if isinstance(cuts, str) or not isinstance(cuts, Sequence):
        raise ValueError(f'cuts is "auto", a number, or a list of names of layers; got {cuts!r}.')
    last = {node.operation.name: place for place, node in enumerate(graph.nodes)}
    for name in cuts:
        if name not in last:
            raise ValueError(
                f"model {graph.model.name!r} calls no layer {name!r} to cut after; it calls: "
                f"{', '.join(last)}."
            )
        if last[name] == len(graph.nodes) - 1:
            raise ValueError(
                f"there is nothing to cut after layer {name!r}, the last one of model "
                f"{graph.model.name!r}: leave it out of cuts."
            )
    return sorted({last[name] for name in cuts})


def _sub_models(graph: Graph, places: Sequence[int]) -> tuple[SubModel, ...]:
    crossing_at = crossings(graph)
    borders = [
        [crossing(tensor) for tensor in graph.inputs],
        *(with_masks(crossing_at[place]) for place in places),
        [crossing(tensor) for tensor in graph.outputs],
    ]
    begins = [0, *(place + 1 for place in places)]
    ends = [*begins[1:], len(graph.nodes)]
    return tuple(
        SubModel(
            graph.nodes[begin:end],
            borders[i],
            borders[i + 1],
            graph.noises,
            is_last=end == len(graph.nodes),
        )
        for i, (begin, end) in enumerate(zip(begins, ends, strict=True))
    )


def _check_that_state_is_in_one(sub_models: Sequence[SubModel]) -> None:
    owners: dict[int, tuple[int, Any]] = {}
    for number, sub_model in enumerate(sub_models, 1):
        for layer in sub_model.layers:
            for variable in layer.variables:
                owner, other = owners.setdefault(id(variable), (number, layer))
                if owner != number:
                    raise ValueError(
                        f"layer {layer.name!r} of sub-model {number} and layer {other.name!r} of "
                        f"sub-model {owner} share state across cuts, the variable "
                        f"{variable.path!r}: give cuts, names of layers, that keep them together."
                    )
