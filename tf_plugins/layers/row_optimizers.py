"""Keras optimizers as what native code applies to the rows that a step touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

# By rule: the options that native code knows, and how many numbers it keeps for each weight.
_RULES: dict[type, tuple[str, tuple[str, ...], int]] = {
    keras.optimizers.SGD: ("sgd", (), 0),
    keras.optimizers.Adagrad: ("adagrad", ("initial_accumulator_value", "epsilon"), 1),
    keras.optimizers.Adam: ("adam", ("beta_1", "beta_2", "epsilon"), 2),
    keras.optimizers.Ftrl: (
        "ftrl",
        (
            "learning_rate_power",
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "l2_shrinkage_regularization_strength",
            "beta",
        ),
        2,
    ),
}
# Options of Keras' optimizers that change an update and that rows can't have, with their defaults.
_UNSUPPORTED = {
    "momentum": 0.0,
    "nesterov": False,
    "amsgrad": False,
    "weight_decay": None,
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}


def row_optimizer(table: str, optimizer: Any) -> Any:
    """Returns an optimizer of Keras that can be applied to rows: a new one, with the same options.

    Args:
        table: whose rows, for errors.
        optimizer: a Keras optimizer, or what names one.

    Raises:
        ValueError: it is none of SGD, Adagrad, Adam and FTRL, or has an option that rows can't
            have.
    """
    given = keras.optimizers.get(optimizer)
    if type(given) not in _RULES:
        names = ", ".join(rule.__name__ for rule in _RULES)
        raise ValueError(
            f"the table {table!r} has the optimizer {type(given).__name__}; rows of embeddings are "
            f"trained by one of {names}."
        )
    config = given.get_config()
    for option, default in _UNSUPPORTED.items():
        if (config.get(option) or default) != default:
            raise ValueError(
                f"the table {table!r} has the optimizer {type(given).__name__} with "
                f"{option}={config[option]!r}, which rows of embeddings can't have: leave it out."
            )
    return type(given).from_config(config)


def described(optimizer: Any) -> dict[str, Any]:
    """Returns what native code needs to know of an optimizer: its rule, and options that stay."""
    rule, options, _ = _RULES[type(optimizer)]
    return {"name": rule} | {option: float(getattr(optimizer, option)) for option in options}


def slots_of(optimizer: Any) -> int:
    """Returns how many numbers an optimizer keeps for each weight."""
    return _RULES[type(optimizer)][2]


def state_of(optimizer: Any) -> dict[str, Any]:
    """Returns what an optimizer knows beside its rows: updates, and its rate if it can be set."""
    rate = optimizer._learning_rate
    is_set = isinstance(rate, keras.Variable)
    return {
        "iterations": int(optimizer.iterations.numpy()),
        "learning_rate": float(rate.numpy()) if is_set else None,
    }


def set_state(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Sets what `state_of` has returned; a schedule stays what it is."""
    optimizer.iterations.assign(state["iterations"])
    if state["learning_rate"] is not None and isinstance(optimizer._learning_rate, keras.Variable):
        optimizer._learning_rate.assign(state["learning_rate"])


def rates(optimizers: Sequence[Any]) -> Any:
    """Returns the learning rates of the next update, a float32 tensor with one for each."""
    return tf.stack([tf.cast(one.learning_rate, tf.float32) for one in optimizers])


def count_update(optimizers: Sequence[Any]) -> None:
    """Counts an update, for schedules of learning rates; one that comes twice counts once."""
    for one in {id(one): one for one in optimizers}.values():
        one.iterations.assign_add(1)
