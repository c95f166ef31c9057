"""What makes an optimizer what it is, as facts that ranks compare."""

from __future__ import annotations

import hashlib
import json
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import collectives
from trepak.horovod_ext.agreement import Fact
from trepak.horovod_ext.reduce_options import ReduceOptions
from trepak.horovod_ext.variables import describe

_REMEDY = "give all ranks the same optimizer, with the same options"
_RATE_REMEDY = (
    "what changes it in the midst of training must do so on all ranks: give all of them the "
    "callback (LearningRateScheduler, ReduceLROnPlateau, …), and put MetricAverageCallback before "
    "it, so that it sees the same numbers"
)
_WRAP_REMEDY = "wrap the optimizer with DistributedOptimizer on all ranks"
_CONFIGS_OWN = ("name", "registered_name", "shared_object_id", "build_config", "module")
_ATTRIBUTES_OWN = ("name", "built")


def facts_of(optimizer: Any, whose: str = "the optimizer") -> list[Fact]:
    """Returns an optimizer's class, hyperparameters, schedule, and how it is distributed.

    Args:
        optimizer: a Keras 3 optimizer, distributed or not. Names of objects are no facts: they may
            hold numbers that differ between ranks.
        whose: begins the names of the facts, which must differ between a model's optimizers.
    """
    facts = [Fact(f"{whose}'s class", _plain_class(optimizer), _REMEDY)]
    for name, value in _settings(optimizer):
        rate = name.rpartition(".")[2] == "learning_rate"
        facts.append(Fact(f"{whose}'s {name}", value, _RATE_REMEDY if rate else _REMEDY))
    distribution = getattr(optimizer, "_trepak", None)
    facts.append(Fact(f"whether {whose} is distributed", distribution is not None, _WRAP_REMEDY))
    if distribution is not None:
        for name, value in distribution_facts(*distribution.made_with).items():
            facts.append(Fact(f"{whose}'s {name}", value, "give all ranks the same options"))
    return facts


def distribution_facts(
    sync: Any, options: ReduceOptions, name: str, passes: int, mean: bool
) -> dict[str, Any]:
    """Returns what `Distribution` is made with, as JSON-able values by the names of its options."""
    return {
        "sync=": repr(sync),
        "transport=": repr(options.transport),
        "backward_passes_per_step": passes,
        "average_aggregated_gradients": mean,
        **_reduction_facts(options),
    }


def _reduction_facts(options: ReduceOptions) -> dict[str, Any]:
    groups = options.groups
    if groups is not None and not isinstance(groups, int):
        groups = [[describe(variable) for variable in group] for group in groups]
    return {
        "op": "Average" if options.op == collectives.Average else "Sum",
        "compression": _jsonable(options.compression),
        "sparse_as_dense": options.sparse_as_dense,
        "gradient_predivide_factor": options.gradient_predivide_factor,
        "groups": groups,
        "process_set": list(options.process_set.ranks or []),
        "scale_local_gradients": options.scale_local_gradients,
    }


def _plain_class(optimizer: Any) -> str:
    return type(optimizer).__name__


def _settings(optimizer: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what Keras would save of an optimizer, and its other attributes that are plain."""
    config = _config_of(optimizer)
    rate = getattr(optimizer, "_learning_rate", None)
    if callable(rate) and not isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        config["learning_rate"] = rate  # Keras would tell the file in which it was written, too
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        config.pop("inner_optimizer", None)
    attributes = {
        name: value
        for name, value in vars(optimizer).items()
        if not name.startswith("_") and isinstance(value, bool | int | float | str | None)
    }
    for name, value in {**attributes, **config}.items():
        if name not in _ATTRIBUTES_OWN and name not in _CONFIGS_OWN:
            yield from _flat(prefix + name, value)
    if inner is None:
        yield from _rate(optimizer, prefix)
    else:
        yield f"{prefix}inner optimizer's class", _plain_class(inner)
        yield from _settings(inner, f"{prefix}inner_optimizer.")


def _config_of(configured: Any) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of functions that can't be saved safely
            return dict(configured.get_config())
    except Exception:  # a class of a user's own that can't be saved trains all the same
        return {}


def _rate(optimizer: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yields what a schedule is, where Keras can't say it."""
    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        yield f"{prefix}schedule's class", type(schedule).__qualname__
        own = {k: v for k, v in vars(schedule).items() if k != "name" and not k.startswith("_")}
        yield from _flat(f"{prefix}schedule", own)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of nested settings, JSON-able, by their dotted names."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _CONFIGS_OWN:
                yield from _flat(f"{name}.{_key(key)}", inner)
    else:
        yield name, _jsonable(value)


def _jsonable(value: Any) -> Any:
    """Returns a value as JSON has it: arrays by their contents, other objects by their class."""
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 1 and 1.0 are the same
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, Mapping):
        return {_key(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, set | frozenset):
        # Its order is each process's own: strings hash otherwise in each.
        return sorted((_jsonable(one) for one in value), key=_text)
    if isinstance(value, list | tuple):
        return [_jsonable(one) for one in value]
    if isinstance(value, np.generic):
        return _jsonable(value.item())
    if tf.is_tensor(value) or isinstance(value, np.ndarray | keras.Variable):
        array = np.asarray(value)
        few = array.size <= 16 and array.dtype.kind in "biuf"
        return array.tolist() if few else hashlib.sha256(array.tobytes()).hexdigest()
    code = value if isinstance(value, types.CodeType) else getattr(value, "__code__", None)
    if isinstance(code, types.CodeType):
        constants = _text([_constant(one) for one in code.co_consts])
        told = hashlib.sha256(code.co_code + constants.encode()).hexdigest()[:16]
        return f"{getattr(value, '__qualname__', code.co_name)} {told}"
    if isinstance(value, bytes | complex | range | slice):
        return repr(value)
    if isinstance(value, type):
        return value.__qualname__
    return type(value).__qualname__


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _text(_jsonable(key))


def _constant(value: Any) -> Any:
    """Returns a constant of a function's code, JSON-able; told apart by its class, too."""
    return [type(value).__name__, _jsonable(value)]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
