"""The logs of `fit` and `evaluate` for the samples of all ranks together."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.tf_plugins.callbacks.metric_logs import over_ranks
from trepak.tf_plugins.callbacks.metric_readings import Reading, flat, in_float64, read
from trepak.tf_plugins.model import keras_hooks
from trepak.tf_plugins.model.distributed_models import flush, process_set_of
from trepak.tf_plugins.model.keras_hooks import READS, put_back

_VALIDATION = "val_"

# Python looks `model.fit` up before it makes the callbacks that are passed to it.
keras_hooks.install()


class MetricAverageCallback(keras.callbacks.Callback):
    """Gives the logs the values that one process over the data of all ranks would give.

    In `fit` it replaces the epoch's logs, those of validation among them; in `evaluate` also what
    is returned. All ranks of the set must call `fit` and `evaluate` with it; validation within
    `fit` may be on some ranks only. Put it before callbacks that read the logs: ReduceLROnPlateau,
    ModelCheckpoint, TensorBoard. (What `on_test_end` is given within `fit` is this rank's own.)

    States of metrics are merged over the ranks, and the results are those of the merged states:
    AUC, RMSE, R², F-scores and the like are no means of the ranks' values. That is done for the
    classes of `keras.metrics`, and for those that say how with a class attribute:

        class Largest(keras.metrics.Metric):
            reduce_over_ranks = "max"  # or "sum", "min", or a dict from states' names to these

    All else is averaged, each rank weighing as much as the samples (or the sum of sample weights)
    that its value comes from; rank 0 says so once for each metric.
    """

    def __init__(self, device: str = "", process_set: basics.ProcessSet | None = None) -> None:
        """Makes the callback.

        Args:
            device: accepted for Horovod scripts (the exchange is the host's).
            process_set: the ranks whose samples count together; by default those of the model's
                optimizer. Other ranks keep their own logs.
        """
        super().__init__()
        self._process_set = process_set
        self._in_fit = False
        self._shown: dict[str, Any] = {}
        self._said: set[str] = set()
        self._readings: collections.deque[Reading] = collections.deque(maxlen=8)

    def set_model(self, model: Any) -> None:
        """Notes the model; Keras calls it when `fit` or `evaluate` begins."""
        self._withdraw()
        super().set_model(model)
        self._in_fit = False
        self._shown = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins to watch where Keras reads the metrics."""
        self._withdraw()
        self._in_fit = True
        self._readings.clear()
        if self._takes_part():
            self._stand_in(self._note)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Replaces the logs; a collective call."""
        self._withdraw()
        # Before any exchange: ranks that still train may need this one's gradients.
        flush(self.model)
        if logs is None or not self._takes_part():
            return
        entries = flat(logs)
        train = {n: v for n, v in entries.items() if not n.startswith(_VALIDATION)}
        validation = {n.removeprefix(_VALIDATION): v for n, v in entries.items() if n not in train}
        readings = list(self._readings) or [Reading()]
        sections = {"train": (_closest(readings, train), train)}
        if validation:
            sections["val"] = (_closest(readings[::-1], validation), validation)
        found = over_ranks(self.model, sections, self._set(), self._said)
        self._shown = found["train"]
        self._shown |= {_VALIDATION + n: v for n, v in found.get("val", {}).items()}
        logs.update(self._shown)

    def on_train_end(self, logs: Any = None) -> None:
        """Shows the last epoch's logs here too."""
        self._withdraw()
        self._in_fit = False
        if logs:
            logs.update({name: value for name, value in self._shown.items() if name in logs})

    def on_test_begin(self, logs: Any = None) -> None:
        """Prepares to replace what `evaluate` returns."""
        if self._in_fit or not self._takes_part():
            return
        self._withdraw()
        flush(self.model)
        self._stand_in(self._replace)

    def _takes_part(self) -> bool:
        process_set = self._set()
        return basics.size() > 1 and process_set.included() and process_set.size() > 1

    def _set(self) -> basics.ProcessSet:
        return self._process_set or process_set_of(self.model)

    def _note(self, plain: Callable[[Any], Any], logs: Any) -> Any:
        self._readings.append(read(self.model))
        # Some results are the variable itself, which validation overwrites before they are shown.
        results = _unfolded(plain(logs)).items()
        variable = keras.Variable | tf.Variable
        return {n: in_float64(v) if isinstance(v, variable) else v for n, v in results}

    def _replace(self, plain: Callable[[Any], Any], logs: Any) -> Any:
        self._withdraw()
        results = plain(logs)
        section = (read(self.model), flat(results))
        found = over_ranks(self.model, {"test": section}, self._set(), self._said)["test"]
        return {**_unfolded(results), **found}

    # The model's own attribute shadows the method of its class, for as long as it is needed.

    def _stand_in(self, function: Callable[..., Any]) -> None:
        self._withdraw()
        own = self.model.__dict__  # Keras would track what is set as an attribute
        plain, before = getattr(self.model, READS), own.get(READS)
        own[READS] = _StandIn(self, function, plain, before)

    def _withdraw(self) -> None:
        """Takes away what this callback has put in the method's place, if it is on top."""
        there = None if self.model is None else vars(self.model).get(READS)
        if isinstance(there, _StandIn) and there.callback is self:
            put_back(self.model, there.before)


@dataclass(frozen=True)
class _StandIn:
    """What stands in for a model's method."""

    callback: MetricAverageCallback
    function: Callable[..., Any]
    plain: Callable[..., Any]  # what it stands in for
    before: Any  # the attribute of the model that it has taken the place of

    def __call__(self, *args: Any) -> Any:
        return self.function(self.plain, *args)


def _closest(readings: list[Reading], entries: dict[str, np.ndarray]) -> Reading:
    """Returns the first of the readings whose results the entries show best.

    A callback's own evaluation, between Keras' reading and the epoch's end, is one too.
    """
    shown = [sum(r.source(n, v) == n for n, v in entries.items()) for r in readings]
    return readings[shown.index(max(shown))]


def _unfolded(results: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in (results or {}).items():
        found |= _unfolded(value) if isinstance(value, dict) else {name: value}
    return found
