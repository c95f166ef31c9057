"""The list of metrics whose states are summed, against the Keras that is installed."""

import inspect
from typing import Any

import keras
import numpy as np
import pytest

from trepak.tf_plugins.callbacks.metric_states import SUMMED_STATES, reductions

OPTIONS: dict[str, dict[str, Any]] = {
    "IoU": {"num_classes": 2, "target_class_ids": [0]},
    "MeanIoU": {"num_classes": 2},
    "MeanMetricWrapper": {"fn": keras.losses.mean_squared_error},
    "OneHotIoU": {"num_classes": 2, "target_class_ids": [0]},
    "OneHotMeanIoU": {"num_classes": 2},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
}


def test_every_class_that_keras_exports_is_judged() -> None:
    exported = inspect.getmembers(keras.metrics, inspect.isclass)
    names = {name for name, one in exported if issubclass(one, keras.metrics.Metric)}
    assert names - {"Metric"} == set(SUMMED_STATES)


@pytest.mark.parametrize("name", SUMMED_STATES)
def test_every_state_is_judged(name: str) -> None:
    """A state that a new version of Keras adds is not summed before somebody has looked at it."""
    metric = getattr(keras.metrics, name)(**OPTIONS.get(name, {}))
    y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], "float32")
    metric.update_state(y[:, 1:] if name.startswith("Sparse") else y, y)
    assert {variable.name for variable in metric.variables} == set(SUMMED_STATES[name])
    assert reductions(metric) == [(variable, "sum") for variable in metric.variables]


class Late(keras.metrics.Mean):
    """Adds a state that nobody has judged."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = self.add_variable((), "ones", name="factor")


class Smoothed(keras.metrics.RootMeanSquaredError):
    """Updates its state in a way of its own, and shows it in one that is not linear."""

    def update_state(self, *args: Any, **options: Any) -> None:
        self.total.assign(0.9 * self.total)


@pytest.mark.parametrize("cls", [Late, Smoothed])
def test_what_is_not_known_to_be_a_sum_is_not_summed(cls: type) -> None:
    assert reductions(cls()) is None


def test_a_declaration_is_taken_from_class_or_object() -> None:
    metric = Late()
    metric.reduce_over_ranks = {"total": "sum", "factor": "max"}
    assert reductions(metric) == [(metric.total, "sum"), (metric.factor, "max")]
    metric.reduce_over_ranks = {"no_such_state": "max"}
    with pytest.raises(ValueError, match="'mean'.*factor"):
        reductions(metric)
