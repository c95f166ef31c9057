"""What a state with data hands on to other ranks: variables as bytes, and attributes as JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics

_ATTRIBUTES, _KINDS = "attributes", "kinds"


def packed(variables: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns values by name; those of variables are bytes, as NumPy itself has no bfloat16.

    Args:
        variables: TensorFlow variables.
        attributes: see `check_attributes`.

    Raises:
        ValueError: an attribute would not come back as it was; or a variable is of text.
    """
    check_attributes(attributes)
    text = [variable.name for variable in variables if variable.dtype == tf.string]
    if text:
        raise ValueError(f"a state with data= has variables of numbers, and {text[0]} is of text.")
    values = (np.frombuffer(v.numpy().tobytes(), np.uint8) for v in variables)
    named = {f"variable {number}": value for number, value in enumerate(values)}
    kinds = {_KINDS: np.asarray(json.dumps(_kinds_of(variables)))}
    return named | kinds | {_ATTRIBUTES: np.asarray(json.dumps(attributes))}


def unpacked(saved: Mapping[str, np.ndarray], variables: Sequence[Any]) -> dict[str, Any]:
    """Gives variables what `packed` has returned, on this rank or another; returns the attributes.

    Args:
        saved: the values by name.
        variables: as many as then, of the same dtypes and shapes.

    Raises:
        ValueError: they are others.
    """
    theirs, mine = json.loads(str(saved[_KINDS])), _kinds_of(variables)
    for number, (one, other) in enumerate(itertools.zip_longest(mine, theirs)):
        if one != other:
            raise ValueError(
                f"rank {_rank()}: the model, or its optimizer, is not that of the ranks that it "
                f"has joined: variable {number} is {one or 'missing'}, and theirs "
                f"{other or 'missing'}. Start the same script on all hosts."
            )
    for number, variable in enumerate(variables):
        values = np.frombuffer(saved[f"variable {number}"].tobytes(), variable.dtype.as_numpy_dtype)
        variable.assign(values.reshape(variable.shape))
    attributes: dict[str, Any] = json.loads(str(saved[_ATTRIBUTES]))
    return attributes


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Raises ValueError for those that a state with data can't have, or would not give back."""
    if "batch" in attributes:
        raise ValueError(
            "the data know which samples a pass has left: leave out batch=, and "
            "UpdateBatchStateCallback."
        )
    for name, value in attributes.items():
        if not _is_kept(value):
            raise ValueError(
                f"a state with data= keeps what JSON gives back as it was: numbers, text, lists, "
                f"and dicts by text. {name}= is {value!r:.200} (rank {_rank()})."
            )


def _kinds_of(variables: Sequence[Any]) -> list[str]:
    return [f"{variable.dtype.name} {variable.shape.as_list()}" for variable in variables]


def _is_kept(value: Any) -> bool:
    try:
        back = json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return False
    return bool(back == value) or repr(back) == repr(value)  # NaN is not equal to itself


def _rank() -> int:
    return basics.rank() if basics.is_initialized() else 0
