"""Which states of Keras metrics can be merged over the ranks, and how.

Keras can't tell: a metric's variables may hold sums, or a mean, or anything else. So Keras' own
classes stand in a list, and a class of one's own says it with an attribute:

    class Spread(keras.metrics.Metric):
        reduce_over_ranks = {"total": "sum", "largest": "max", "smallest": "min"}
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras.src.trainers.compile_utils import CompileMetrics

REDUCTIONS = ("sum", "max", "min")

_MEAN = ("total", "count")
_CONFUSION = ("true_positives", "false_positives", "true_negatives", "false_negatives")
_F_SCORE = ("true_positives", "false_positives", "false_negatives", "intermediate_weights")
_R2 = ("num_samples", "squared_sum", "sum", "residual", "count")

# By Keras' class, the states that it sums over batches: sums over ranks are then what one process
# would hold. Checked class by class with Keras 3.15; test_metric_states.py finds new ones.
SUMMED_STATES: dict[str, Sequence[str]] = {
    "Accuracy": _MEAN,
    "AUC": _CONFUSION,
    "BinaryAccuracy": _MEAN,
    "BinaryCrossentropy": _MEAN,
    "BinaryIoU": ("total_confusion_matrix",),
    "CategoricalAccuracy": _MEAN,
    "CategoricalCrossentropy": _MEAN,
    "CategoricalHinge": _MEAN,
    "ConcordanceCorrelation": _MEAN,
    "CosineSimilarity": _MEAN,
    "F1Score": _F_SCORE,
    "FalseNegatives": ("accumulator",),
    "FalsePositives": ("accumulator",),
    "FBetaScore": _F_SCORE,
    "Hinge": _MEAN,
    "IoU": ("total_confusion_matrix",),
    "KLDivergence": _MEAN,
    "LogCoshError": _MEAN,
    "Mean": _MEAN,
    "MeanAbsoluteError": _MEAN,
    "MeanAbsolutePercentageError": _MEAN,
    "MeanIoU": ("total_confusion_matrix",),
    "MeanMetricWrapper": _MEAN,
    "MeanSquaredError": _MEAN,
    "MeanSquaredLogarithmicError": _MEAN,
    "OneHotIoU": ("total_confusion_matrix",),
    "OneHotMeanIoU": ("total_confusion_matrix",),
    "PearsonCorrelation": _MEAN,
    "Poisson": _MEAN,
    "Precision": ("true_positives", "false_positives"),
    "PrecisionAtRecall": _CONFUSION,
    "R2Score": _R2,
    "Recall": ("true_positives", "false_negatives"),
    "RecallAtPrecision": _CONFUSION,
    "RootMeanSquaredError": _MEAN,
    "SensitivityAtSpecificity": _CONFUSION,
    "SparseCategoricalAccuracy": _MEAN,
    "SparseCategoricalCrossentropy": _MEAN,
    "SparseTopKCategoricalAccuracy": _MEAN,
    "SpecificityAtSensitivity": _CONFUSION,
    "SquaredHinge": _MEAN,
    "Sum": ("total",),
    "TopKCategoricalAccuracy": _MEAN,
    "TrueNegatives": ("accumulator",),
    "TruePositives": ("accumulator",),
}


@functools.cache
def _classes() -> dict[type, Sequence[str]]:
    found = {getattr(keras.metrics, name, None): names for name, names in SUMMED_STATES.items()}
    found.pop(None, None)  # of another version of Keras
    return found  # type: ignore[return-value]


def leaves(metrics: Any) -> Iterator[Any]:
    """Yields a model's metrics, the compiled ones in place of the object that holds them."""
    for metric in metrics:
        if isinstance(metric, CompileMetrics):
            yield from metric.metrics
        else:
            yield metric


def reductions(metric: Any) -> list[tuple[Any, str]] | None:
    """Tells how a metric's state is merged over the ranks.

    Args:
        metric: a Keras metric.

    Returns:
        Its variables, each with "sum", "max" or "min"; None where nobody has said how.

    Raises:
        ValueError: the class says it in words that have no meaning.
    """
    declared = getattr(metric, "reduce_over_ranks", None)
    if declared is not None:
        return _as_declared(metric, declared)
    parts = metric._metrics
    inside = {id(variable) for part in parts for variable in part.variables}
    own = [variable for variable in metric.variables if id(variable) not in inside]
    summed = _summed_states(type(metric))
    if summed is None and (own or not parts):
        return None
    if any(variable.name not in (summed or ()) for variable in own):
        return None
    found = [(variable, "sum") for variable in own]
    for part in parts:
        merged = reductions(part)
        if merged is None:
            return None
        found += merged
    return found


def _as_declared(metric: Any, declared: Any) -> list[tuple[Any, str]]:
    by_state = isinstance(declared, dict)
    words = list(declared.values()) if by_state else [declared]
    names = [variable.name for variable in metric.variables]
    unknown = [name for name in declared if name not in names] if by_state and names else []
    if unknown or any(word not in REDUCTIONS for word in words):
        raise ValueError(
            f"reduce_over_ranks of metric {metric.name!r} ({type(metric).__name__}) is "
            f"{declared!r}: it must be one of {', '.join(REDUCTIONS)}, or a dict from names of its "
            f"states ({', '.join(names)}) to these words."
        )
    if not by_state:
        return [(variable, declared) for variable in metric.variables]
    return [(v, declared[v.name]) for v in metric.variables if v.name in declared]


def _summed_states(cls: Any) -> Sequence[str] | None:
    """Returns the states that a class sums over batches, or None if it isn't known to.

    A subclass of Keras' classes counts if it updates its state as they do, or if it is a mean.
    """
    for base in cls.__mro__:
        if base not in _classes():
            continue
        mean = keras.metrics.Mean
        updates_alike = cls.update_state is base.update_state
        is_mean = issubclass(cls, mean) and cls.result is mean.result
        return _classes()[base] if updates_alike or is_mean else None
    return None
