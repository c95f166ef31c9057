"""What a rank's metrics held when Keras read their results, and their merging over the ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics, collectives
from trepak.tf_plugins.callbacks.metric_states import leaves, reductions

_OPS = {"sum": collectives.Sum, "max": collectives.Max, "min": collectives.Min}
_NEUTRAL = {"sum": 0.0, "max": -np.inf, "min": np.inf}


@dataclass
class State:
    """A variable of a metric.

    Attributes:
        variable: the Keras variable.
        reduction: "sum", "max" or "min".
        value: what it held, in float64.
    """

    variable: Any
    reduction: str
    value: np.ndarray

    def described(self) -> list[Any]:
        """Returns what must be the same on all ranks, as JSON-able values."""
        return [self.variable.name, self.reduction, list(self.value.shape)]


@dataclass
class Reading:
    """The metrics of a model at one time.

    Attributes:
        results: by entry of the logs, the result on this rank, in float64.
        states: by metric that can be merged, its class and its states.
        samples: by metric that is a mean, the samples (or sample weights) behind it.
        unmerged: by metric that can't be merged, its class.
    """

    results: dict[str, np.ndarray] = field(default_factory=dict)
    states: dict[str, tuple[str, list[State]]] = field(default_factory=dict)
    samples: dict[str, float] = field(default_factory=dict)
    unmerged: dict[str, str] = field(default_factory=dict)

    def source(self, name: str, value: Any) -> str | None:
        """Returns the result that a log entry shows: of its name, else one of its value."""
        for candidate in (name, *self.results):
            result = self.results.get(candidate)
            if result is not None and _is_close(result, value):
                return candidate
        return None

    def weight(self, *names: str | None) -> float:
        """Returns the samples behind an entry: of the first name that has any, or of the loss."""
        known = (self.samples[name] for name in names if name in self.samples)
        return next(known, self.samples.get("loss", 0.0))

    def described(self) -> dict[str, Any]:
        """Returns which states there are, as JSON-able values."""
        states = {
            name: [cls, [state.described() for state in held]]
            for name, (cls, held) in self.states.items()
        }
        return {"results": list(self.results), "metrics": states}


def read(model: Any) -> Reading:
    """Reads a model's metrics.

    Raises:
        ValueError: a metric's `reduce_over_ranks` has no meaning, or its state is no numbers.
    """
    reading = Reading(results=flat(model.get_metrics_result()))
    for name, metric in _named(model):
        if isinstance(metric, keras.metrics.Mean):
            reading.samples[name] = float(metric.count)
        merged = reductions(metric)
        if merged is None:
            reading.unmerged[name] = type(metric).__name__
        else:
            states = [State(v, how, _value(metric, v)) for v, how in merged]
            reading.states[name] = (type(metric).__name__, states)
    return reading


def _named(model: Any) -> list[tuple[str, Any]]:
    """Returns the metrics by name; of those that share one the second is "name:1"."""
    found: dict[int, tuple[str, Any]] = {}
    seen: dict[str, int] = {}
    for metric in leaves(model.metrics):
        if id(metric) not in found:
            number = seen[metric.name] = seen.get(metric.name, -1) + 1
            found[id(metric)] = (f"{metric.name}:{number}" if number else metric.name, metric)
    return list(found.values())


def _value(metric: Any, variable: Any) -> np.ndarray:
    dtype = tf.as_dtype(variable.dtype)
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise ValueError(
            f"state {variable.name!r} of metric {metric.name!r} is {dtype.name}: only real numbers "
            "can be merged over the ranks. Leave reduce_over_ranks off its class."
        )
    return in_float64(variable)


def flat(results: Any) -> dict[str, np.ndarray]:
    """Returns the numbers and arrays of numbers among results or logs, in float64.

    Results that are dicts are unfolded, as Keras unfolds them into logs.
    """
    found: dict[str, np.ndarray] = {}
    for name, value in (results or {}).items():
        if isinstance(value, dict):
            found |= flat(value)
            continue
        try:
            found[name] = in_float64(value)
        except (AttributeError, TypeError, ValueError, tf.errors.OpError):  # no number
            continue
    return found


def in_float64(value: Any) -> np.ndarray:
    """Returns a copy of a number, tensor or variable; NumPy has no bfloat16."""
    if tf.is_tensor(value) or isinstance(value, keras.Variable | tf.Variable):
        value = tf.cast(value, tf.float64).numpy()
    return np.array(value, np.float64)


def _is_close(one: np.ndarray, other: Any) -> bool:
    other = np.asarray(other)
    return one.shape == other.shape and np.allclose(one, other, 1e-5, 1e-9, equal_nan=True)


def common_names(by_rank: Sequence[Iterable[str]]) -> list[dict[str, str]]:
    """Maps each rank's names to names that all of them share.

    Keras numbers the names of metrics: a rank that has built another model before has `auc_1` where
    the others have `auc`. Where the lists are alike but for such numbers they are matched by
    position, else by name.
    """
    lists = [list(names) for names in by_rank]
    plain = [[re.sub(r"_\d+\b", "", name) for name in names] for names in lists]
    if all(names == plain[0] for names in plain):
        return [dict(zip(names, lists[0], strict=True)) for names in lists]
    return [{name: name for name in names} for names in lists]


def layout(described: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, list[Any]]:
    """Returns the states that the ranks hold together, by common name of the metric.

    Args:
        described: for each rank that has a reading, its number and `Reading.described()`.

    Raises:
        ValueError: a metric has another class, other states or other shapes on some ranks.
    """
    found: dict[str, list[Any]] = {}
    holders: dict[str, int] = {}
    names = common_names([facts["metrics"] for _, facts in described])
    for (rank, facts), common in zip(described, names, strict=True):
        for name, held in facts["metrics"].items():
            shared = common[name]
            if not held[1] and shared in found:
                continue  # made at the first batch, which this rank has not had
            first = found.setdefault(shared, held)
            if not first[1]:
                first = found[shared] = held
                holders[shared] = rank
            if first != held:
                raise ValueError(
                    f"metric {name!r} is {_text(held)} on rank {rank} and {_text(first)} on rank "
                    f"{holders[shared]} (this is rank {basics.rank()}): such states can't be "
                    "merged. Give it the same class and options on all ranks."
                )
            holders.setdefault(shared, rank)
    return found


def _text(held: list[Any]) -> str:
    cls, states = held
    return f"{cls} with " + ", ".join(f"{name} {shape} ({how})" for name, how, shape in states)


def merge(
    layouts: dict[str, dict[str, list[Any]]],
    mine: dict[str, dict[str, list[State]]],
    process_set: basics.ProcessSet,
) -> dict[str, dict[str, list[np.ndarray]]]:
    """Merges states over the ranks; a collective call, in float64 and on the host.

    Args:
        layouts: by section ("train", "val"), what `layout` gave.
        mine: this rank's states, by section and common name of the metric.
        process_set: the ranks that take part.

    Returns:
        The merged values, like `layouts`.
    """
    parts: dict[str, list[np.ndarray]] = {how: [] for how in _OPS}
    places: list[tuple[str, str, str, list[int]]] = []
    for section, metrics in layouts.items():
        for name, (_, states) in metrics.items():
            nothing: list[State | None] = [None] * len(states)
            held = mine.get(section, {}).get(name) or nothing
            for state, (_, how, shape) in zip(held, states, strict=True):
                neutral = np.full(shape, _NEUTRAL[how])
                parts[how].append(neutral if state is None else state.value)
                places.append((section, name, how, shape))
    reduced = {how: iter(_reduced(values, how, process_set)) for how, values in parts.items()}
    merged: dict[str, dict[str, list[np.ndarray]]] = {
        section: {name: [] for name in metrics} for section, metrics in layouts.items()
    }
    for section, name, how, shape in places:
        merged[section][name].append(next(reduced[how]).reshape(shape))
    return merged


def _reduced(
    values: list[np.ndarray], how: str, process_set: basics.ProcessSet
) -> list[np.ndarray]:
    if not values:
        return []
    buffer = np.concatenate([value.ravel() for value in values])
    with tf.device("CPU:0"):
        tensor = tf.constant(buffer, tf.float64)
        name = f"trepak_metrics_{how}"
        total = collectives.allreduce(tensor, op=_OPS[how], name=name, process_set=process_set)
    return np.split(total.numpy(), np.cumsum([value.size for value in values])[:-1])


def results_of(
    model: Any, merged: dict[str, list[tuple[State, np.ndarray]]]
) -> tuple[dict[str, Any], list[str]]:
    """Returns a model's results for merged states, without a change of the states themselves.

    Args:
        model: the Keras model.
        merged: by metric, its states and their merged values.

    Returns:
        By entry of the logs, its result; None where it depends on a metric that is not merged. And
        the metrics whose merged states their dtypes can't hold, which are not merged either.
    """
    values = {
        name: [(state.variable, _cast(value, state.variable)) for state, value in states]
        for name, states in merged.items()
    }
    fitting = {name for name, held in values.items() if all(v is not None for _, v in held)}
    others = [metric for name, metric in _named(model) if name not in fitting]
    mapping = [pair for name in fitting for pair in values[name]]
    originals = {id(metric): vars(metric).get("result") for metric in others}
    try:
        # NaN goes through whatever is computed from them, also in get_metrics_result() overridden.
        for metric in others:
            vars(metric)["result"] = _without_value(metric.result)
        with keras.StatelessScope(mapping):
            results = flat(model.get_metrics_result())
    finally:
        for metric in others:
            vars(metric).pop("result", None)
            if originals[id(metric)] is not None:
                vars(metric)["result"] = originals[id(metric)]
    known = {n: None if others and np.isnan(v).any() else v for n, v in results.items()}
    return known, [name for name in values if name not in fitting]


def _without_value(result: Any) -> Any:
    def nothing() -> Any:
        return keras.tree.map_structure(lambda value: in_float64(value) * np.nan, result())

    return nothing


def _cast(value: np.ndarray, variable: Any) -> Any:
    """Returns a value as a tensor of the variable's dtype; None if it is too large for that."""
    dtype = tf.as_dtype(variable.dtype)
    if dtype.is_integer and not (
        np.isfinite(value).all() and (value >= dtype.min).all() and (value <= dtype.max).all()
    ):
        return None
    tensor = tf.cast(tf.constant(value, tf.float64), dtype)
    if dtype.is_floating and (np.isfinite(value) & ~np.isfinite(tf.cast(tensor, tf.float64))).any():
        return None
    return tensor
