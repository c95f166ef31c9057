"""Keras 3 variables and TensorFlow's, told apart and compared between ranks."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import default_variable_creator_v2

from trepak.horovod_ext import basics, exchange
from trepak.ops.loader import call


def tf_variable(variable: Any) -> Any:
    """Returns the TensorFlow variable behind a Keras variable; anything else as it is."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def make_known(number: int, variable: Any) -> None:
    """Makes a variable known to native code, for good.

    What ranks exchange of a narrower variable than float32 is float32.

    Args:
        number: its key, the same on all ranks.
        variable: a Keras or TensorFlow variable of floats.

    Raises:
        tf.errors.UnknownError: another one has that key.
    """
    value = tf_variable(variable)
    call(
        "add_variable",
        key=number,
        label=_path_of(variable),
        dtype="float64" if value.dtype == tf.float64 else "float32",
        elements=value.shape.num_elements(),
    )


def key(variable: Any) -> Any:
    """Returns what identifies a variable in a dict; the same for a Keras variable and its value.

    Tensors that a tape watches are made anew in every step: of them, dtype and shape are the key.
    """
    variable = tf_variable(variable)
    if isinstance(variable, tf.Variable):
        return variable.ref()
    return str(describe(variable))


@contextlib.contextmanager
def outside_graph() -> Iterator[None]:
    """Runs the block eagerly, also while a tf.function is traced; state that lasts is made here.

    A tf.function that is traced for the second time refuses all variables that are made inside of
    it, in `tf.init_scope` too: those made here are not its own.
    """
    with tf.init_scope(), tf.variable_creator_scope(_make_variable):
        yield


def _make_variable(next_creator: Any, **kwargs: Any) -> Any:
    return default_variable_creator_v2(None, **kwargs)


def describe(variable: Any, named: bool = True) -> list[Any]:
    """Returns a variable's layer and name, dtype and shape, as JSON-able values.

    Of the path only the last two parts are kept, without Keras' automatic numbers: a rank that
    loaded its model, or built another before, has `dense_3/kernel` where the others have
    `sequential/dense/kernel`.
    """
    parts = [re.sub(r"_\d+$", "", part) for part in _path_of(variable).split("/")[-2:]]
    dtype = tf.as_dtype(variable.dtype).name
    shape = tf.TensorShape(variable.shape)
    dimensions = None if shape.rank is None else shape.as_list()
    return ["/".join(parts) if named else "", dtype, dimensions]


def _path_of(variable: Any) -> str:
    path = getattr(variable, "path", None)
    if path is None and isinstance(variable, tf.Variable):
        path = variable.name.split(":")[0]
    return path or ""  # a tensor that a tape watches has no name


def text_of(variable: Any) -> str:
    """Returns how errors name a variable, by its path on this rank; None: that there is none."""
    if variable is None:
        return _text(None)
    return _text([_path_of(variable), *describe(variable)[1:]])


def _text(described: Sequence[Any] | None) -> str:
    if described is None:
        return "no such variable"
    path, dtype, shape, *kind = described
    text = f"{path!r} {dtype} {shape}" if path else f"a {dtype} {shape}"
    return " with ".join([text, *kind])


def _first_difference(ours: list[Any], theirs: list[Any]) -> tuple[int, Any, Any]:
    for index in range(max(len(ours), len(theirs))):
        mine = ours[index] if index < len(ours) else None
        other = theirs[index] if index < len(theirs) else None
        if mine != other:
            return index, mine, other
    raise AssertionError("the lists are equal")


def check_agreement(
    variables: Sequence[Any],
    what: str,
    process_set: basics.ProcessSet = basics.global_process_set,
    number: int = 0,
    unnamed: Sequence[Any] = (),
    kinds: Sequence[str] = (),
) -> int:
    """Checks that all ranks hold the same variables in the same order, and picks a common stream.

    A collective call. A hash of all names, dtypes and shapes is compared; only where it differs are
    the descriptions themselves exchanged.

    Args:
        variables: Keras or TensorFlow variables, in the order in which they will be reduced.
        what: what they are for, for the message.
        process_set: the ranks that must agree.
        number: this rank's proposal for a number that all ranks shall use; the highest is taken.
        unnamed: further variables, of which dtype and shape alone are compared (an optimizer's:
            their names hold the full paths of the model's).
        kinds: what else must be the same, one word or two per variable.

    Returns:
        The number that all ranks use.

    Raises:
        ValueError: on every rank, naming the first variable that differs, the ranks and the remedy.
    """
    described = [describe(variable) for variable in variables]
    described += [describe(variable, named=False) for variable in unnamed]
    for description, kind in zip(described, kinds, strict=False):
        description.append(kind)
    digest = hashlib.sha256(repr(described).encode()).hexdigest()
    facts = exchange.gather([digest, number], "variables", process_set)
    if all(fact[0] == digest for fact in facts):
        return max(fact[1] for fact in facts)

    everyone = exchange.gather(described, "variables that differ", process_set)
    ranks = list(process_set.ranks)
    odd = next(i for i, theirs in enumerate(everyone) if theirs != everyone[0])
    index, first, other = _first_difference(everyone[0], everyone[odd])
    raise ValueError(
        f"rank {ranks[odd]} and rank {ranks[0]} disagree about {what}: variable {index} is "
        f"{_text(other)} on rank {ranks[odd]} and {_text(first)} on rank {ranks[0]} "
        f"({len(everyone[odd])} and {len(everyone[0])} variables in all; this is rank "
        f"{basics.rank()}). Build the same model on every rank: the same layers, in the same "
        f"order, with the same names, shapes and dtypes, the same ones trainable, and the "
        f"same ones local (register_local_var, local_layers, local_variables)."
        f"{exchange.thread_hint()}"
    )
