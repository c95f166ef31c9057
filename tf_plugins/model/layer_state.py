"""What layers hold outside of variables: vocabularies, bins, and what Normalization has made ready.

Keras keeps these as Python values, tables and constants, which no broadcast of variables reaches.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import keras
import numpy as np
from keras.src.layers.preprocessing.index_lookup import IndexLookup

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.agreement import Fact

_TOLD = 3  # elements that an error shows


def layer_facts(model: Any) -> list[Fact]:
    """Returns a fact for each layer of a model that holds state outside of variables."""
    facts = []
    texts = [
        one
        for one in model._flatten_layers(include_self=False)
        if isinstance(one, keras.layers.TextVectorization)
    ]
    users = {id(text._lookup_layer): text for text in texts}  # the layer that its user has made
    for number, layer in enumerate(_layers_with_state(model)):
        state = _state_of(layer)
        user = users.get(id(layer), layer)
        remedy = (
            f"adapt layer {user.name!r} to the same data on every rank, or have "
            "BroadcastGlobalVariablesCallback give all of them the root's"
        )
        # By number: Keras' own names of layers may differ between ranks.
        name = f"what {type(user).__name__} {number} holds"
        facts.append(Fact(name, _told(layer, state), remedy))
    return facts


def broadcast_layer_state(model: Any, root_rank: int, process_set: basics.ProcessSet) -> bool:
    """Gives all ranks the root's state of layers; a collective call.

    Args:
        model: with the same layers on all ranks.
        root_rank: whose state is copied.
        process_set: the ranks that take part.

    Returns:
        Whether this rank's has changed, so that functions traced before hold the old one.

    Raises:
        ValueError: a layer can't take the root's state; names the layer and the rank.
    """
    layers = _layers_with_state(model)
    states = [_state_of(layer) for layer in layers]
    hashes = [_hash(json.dumps(state).encode()) for state in states]
    everyone = exchange.gather(hashes, "state of layers", process_set)
    if all(theirs == everyone[0] for theirs in everyone):
        return False
    is_root = basics.rank() == root_rank
    gathered = exchange.gather(states if is_root else None, "the root's layers", process_set)
    roots = gathered[list(process_set.ranks).index(root_rank)]
    if len(roots) != len(layers):
        return False  # other layers: the comparison names them
    changed = False
    for layer, mine, state in zip(layers, states, roots, strict=True):
        if mine != state:
            _set_state(layer, state)
            changed = True
    return changed


def finalize(model: Any) -> bool:
    """Has Normalization layers take their variables' values, which were just set.

    Returns:
        Whether that has changed them, so that functions traced before hold what was.
    """
    layers = _layers_with_state(model)
    before = [_state_of(layer) for layer in layers]
    for layer in layers:
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()
    return before != [_state_of(layer) for layer in layers]


def _layers_with_state(model: Any) -> list[Any]:
    kinds = (IndexLookup, keras.layers.Discretization, keras.layers.Normalization)
    return [one for one in model._flatten_layers(include_self=False) if isinstance(one, kinds)]


def _state_of(layer: Any) -> dict[str, Any]:
    """Returns a layer's state, as JSON has it."""
    if isinstance(layer, keras.layers.Normalization):
        # What adapt() finds is in variables, from which finalize() makes these.
        ready = (layer.mean, layer.variance) if layer.built else ()
        return {"mean and variance": [np.asarray(one, "float64").tolist() for one in ready]}
    if isinstance(layer, keras.layers.Discretization):
        bins = layer.bin_boundaries
        return {"bins": None if bins is None else [float(one) for one in bins]}
    vocabulary = layer.get_vocabulary(include_special_tokens=False)
    state: dict[str, Any] = {"vocabulary": [_plain(token) for token in vocabulary]}
    weights = getattr(layer, "idf_weights", None)
    if weights is not None:
        first = layer._token_start_index()
        state["idf"] = np.asarray(weights)[first : first + len(vocabulary)].tolist()
    return state


def _plain(token: Any) -> Any:
    return int(token) if isinstance(token, np.integer | int) else str(token)


def _set_state(layer: Any, state: dict[str, Any]) -> None:
    try:
        if "bins" in state:
            layer.bin_boundaries = state["bins"]
        elif state.get("vocabulary"):
            layer.set_vocabulary(state["vocabulary"], *filter(None, [state.get("idf")]))
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"layer {layer.name!r} of rank {basics.rank()} can't take the root's state: {error} "
            "Adapt it to the same data on every rank before the model is called."
        ) from error


def _told(layer: Any, state: dict[str, Any]) -> str:
    """Returns a state's size, its first elements and its hash."""
    elements = next(iter(state.values())) or ()
    if isinstance(layer, keras.layers.Discretization):
        size = f"{len(elements)} bins"
    elif isinstance(layer, IndexLookup):
        size = f"{layer.vocabulary_size()} tokens"
    else:
        size, elements = "a mean and a variance", np.ravel(elements).tolist()
    first = ", ".join(json.dumps(element) for element in elements[:_TOLD])
    more = ", …" if len(elements) > _TOLD else ""
    return f"{size} ({first}{more}; hash {_hash(json.dumps(state).encode())})"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
