"""What must be alike on all ranks is compared; the first difference is an error on all of them.

A comparison is one small exchange: a hash of the facts, and one of the digests of all variables.
Only where these differ are the facts, or the values, looked at themselves.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics, collectives, exchange
from trepak.horovod_ext.broadcasting import broadcast_variables
from trepak.horovod_ext.variables import check_agreement, text_of, tf_variable
from trepak.ops.digest import digests

_ROUNDINGS_PER_STEP = 64  # of an element of a variable, momentum and the like included
_MOST_ROUNDING = 1e-3  # of a variable's largest element: what is more was no rounding


@dataclass(frozen=True)
class Fact:
    """Something that must be the same on all ranks.

    Attributes:
        name: what it is, for the message.
        value: anything `json.dumps` takes.
        remedy: what to do if ranks differ.
    """

    name: str
    value: Any
    remedy: str


@dataclass(frozen=True)
class Values:
    """Variables that must hold the same values on all ranks.

    Attributes:
        variables: Keras or TensorFlow variables, in the same order on all ranks.
        unnamed: further ones, whose names may differ between ranks (an optimizer's).
        cause: why they may differ and what to do, for the message: a sentence.
        steps: that they have gone since they were equal; each may round differently on unlike
            processors.
    """

    variables: Sequence[Any] = ()
    unnamed: Sequence[Any] = ()
    cause: str = ""
    steps: int = 0

    def all(self) -> list[Any]:
        """Returns all variables, in the order in which they are compared."""
        return [*self.variables, *self.unnamed]


def check_alike(
    facts: Sequence[Fact],
    values: Values,
    when: str,
    process_set: basics.ProcessSet = basics.global_process_set,
) -> None:
    """Checks that all ranks have the same facts and values; a collective call.

    Values that differ by no more than processors round are said once, on the set's first rank.

    Args:
        facts: each with a name of its own, in any order; the first that differs is told.
        values: the variables.
        when: e.g. "when training begins", the same on all ranks.
        process_set: the ranks that must be alike; others return at once.

    Raises:
        ValueError: on every rank, naming the first thing that differs, the ranks, the likely cause.
        HorovodInternalError: a rank has left the job.
        RuntimeError: the ranks are not at the same point of the program.
    """
    if not process_set.included() or process_set.size() == 1:
        return
    mine = [[fact.name, fact.value] for fact in facts]
    seen = digests([tf_variable(variable) for variable in values.all()])
    # Attributes and keys of dicts come in the order in which each rank has set them.
    hashes = [_hash(_ordered(sorted(mine, key=lambda one: one[0])).encode()), _hash(seen.tobytes())]
    everyone = exchange.gather(hashes, f"what must be alike {when}", process_set)
    if any(theirs[0] != hashes[0] for theirs in everyone):
        raise _different_facts(facts, mine, when, process_set)
    if any(theirs[1] != hashes[1] for theirs in everyone):
        _judge_values(values, seen, when, process_set)


def make_alike(values: Values, process_set: basics.ProcessSet) -> bool:
    """Gives all ranks the values of the set's first one, if they differ; a collective call.

    Returns:
        Whether they did.

    Raises:
        ValueError: the ranks have other variables.
        HorovodInternalError: a rank has left the job.
    """
    if not process_set.included() or process_set.size() == 1:
        return False
    seen = digests([tf_variable(variable) for variable in values.all()])
    everyone = exchange.gather(_hash(seen.tobytes()), "first values", process_set)
    if len(set(everyone)) == 1:
        return False
    check_agreement(values.variables, "what they train", process_set, unnamed=values.unnamed)
    broadcast_variables(values.all(), process_set.ranks[0], process_set)
    return True


def _ordered(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _different_facts(
    facts: Sequence[Fact], mine: list[Any], when: str, process_set: basics.ProcessSet
) -> ValueError:
    """Asks every rank for its facts; returns the error for the first that differs."""
    everyone = exchange.gather(mine, "facts that differ", process_set)
    ranks = list(process_set.ranks)
    remedies = {fact.name: fact.remedy for fact in facts}
    for name in dict.fromkeys(name for theirs in everyone for name, _ in theirs):
        told = [dict(theirs).get(name, "nothing") for theirs in everyone]
        texts = [_ordered(value) for value in told]
        odd = [index for index, text in enumerate(texts) if text != texts[0]]
        if odd:
            return ValueError(
                f"{name} is {told[odd[0]]} on {_text(ranks, odd)} and {told[0]} on rank {ranks[0]} "
                f"{when} (this is rank {basics.rank()}): "
                f"{remedies.get(name, 'give all ranks the same')}.{exchange.thread_hint()}"
            )
    raise AssertionError("the facts are equal")


def _text(ranks: Sequence[int], which: Sequence[int]) -> str:
    """Returns e.g. "rank 1" or "ranks 1, 3"."""
    named = [str(ranks[index]) for index in which]
    return f"rank{'s' * (len(named) > 1)} {', '.join(named)}"


def _judge_values(values: Values, seen: Any, when: str, process_set: basics.ProcessSet) -> None:
    """Raises ValueError for values that differ by more than rounding; warns of others."""
    variables = values.all()
    check_agreement(values.variables, "what they train", process_set, unnamed=values.unnamed)
    everyone = np.array(exchange.gather(seen.tolist(), "digests that differ", process_set), "u8")
    differing = np.flatnonzero((everyone != everyone[0]).any(axis=0)).tolist()
    mine = [_distance(variables[index], process_set) for index in differing]
    told = exchange.gather([values.steps, mine], "distances", process_set)
    steps = max(count for count, _ in told)
    ranks = list(process_set.ranks)
    farthest = 0.0
    for place, index in enumerate(differing):
        distances = [theirs[place][0] for _, theirs in told]
        largest = max(theirs[place][1] for _, theirs in told)
        variable = variables[index]
        odd = [i for i, one in enumerate(distances) if one > _rounding(variable, largest, steps)]
        if odd:
            raise ValueError(
                f"the values of variable {text_of(variable)} differ {when}: on "
                f"{_text(ranks, odd)} by up to {max(distances):.3g} from those on rank {ranks[0]}, "
                f"where the largest is {largest:.3g} ({len(differing)} of {len(variables)} "
                f"variables differ; this is rank {basics.rank()}). {values.cause}"
                f"{exchange.thread_hint()}"
            )
        farthest = max(farthest, max(distances))
    if farthest and basics.rank() == ranks[0]:
        _warn_of_rounding(text_of(variables[differing[0]]), farthest)


def _distance(variable: Any, process_set: basics.ProcessSet) -> tuple[float, float]:
    """Returns how far this rank's values are from those of the set's first one, and its largest."""
    with tf.init_scope(), tf.device("CPU:0"):
        dtype = tf.as_dtype(variable.dtype)
        value = tf.convert_to_tensor(tf_variable(variable))
        if dtype.is_complex:
            value = tf.stack([tf.math.real(value), tf.math.imag(value)])
        value = tf.cast(value, tf.int64 if dtype.is_integer or dtype.is_bool else tf.float64)
        first = collectives.broadcast(
            value, process_set.ranks[0], name="trepak_distance", process_set=process_set
        )
        ours, theirs = value.numpy(), first.numpy()
    # Infinities and NaN in the same places are alike.
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    apart = np.abs(np.where(same, 0, ours) - np.where(same, 0, theirs)).astype("float64")
    apart = np.where(np.isfinite(apart), apart, np.finfo("float64").max)
    finite = np.where(np.isfinite(theirs), theirs, 0)
    return float(apart.max(initial=0.0)), float(np.abs(finite).max(initial=0))


def _rounding(variable: Any, largest: float, steps: int) -> float:
    """Returns how far values may drift apart by rounding alone.

    All ranks apply the same bits, so each step adds its own roundings and amplifies none.
    """
    dtype = tf.as_dtype(variable.dtype)
    if dtype.is_integer or dtype.is_bool:
        return 0.0
    epsilon = float(np.finfo(dtype.as_numpy_dtype).eps) if dtype.size > 2 else 2.0**-7
    most = max(_MOST_ROUNDING, 4 * epsilon)
    return largest * min(_ROUNDINGS_PER_STEP * epsilon * max(1, steps), most)


_warned = False


def _warn_of_rounding(variable: str, distance: float) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"the ranks' values of {variable} and others differ by up to {distance:.3g}, which is "
            "within rounding: ranks on unlike processors round differently. They drift apart "
            "slowly; a broadcast_variables() now and then makes them equal again.",
            stacklevel=2,
        )
