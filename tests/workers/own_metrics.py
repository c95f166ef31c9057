"""MetricAverageCallback with metrics, results and steps that are not Keras' own."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from harness import case
from metrics import M, average, fit, identity, in_one_process, rows, same, samples

import trepak.keras as hvd


class Extremes(M.Metric):
    """Its state can be merged, and says how."""

    reduce_over_ranks = {"largest": "max", "smallest": "min", "sum": "sum"}

    def __init__(self, name: str = "extremes") -> None:
        super().__init__(name=name)
        self.largest = self.add_variable((), "zeros", name="largest")
        self.smallest = self.add_variable((), "zeros", name="smallest")
        self.sum = self.add_variable((2,), "zeros", name="sum")
        self.scale = self.add_variable((), "ones", name="scale")

    def reset_state(self) -> None:
        self.largest.assign(-1e30)
        self.smallest.assign(1e30)
        self.sum.assign([0.0, 0.0])

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.largest.assign(tf.maximum(self.largest, tf.reduce_max(y_true)))
        self.smallest.assign(tf.minimum(self.smallest, tf.reduce_min(y_true)))
        self.sum.assign(self.sum + tf.reduce_sum(y_true[:, :2], 0))

    def result(self) -> Any:
        span = (self.largest - self.smallest) * self.scale
        return {"span": span, "sums": self.sum + 0.0}


class Squares(Extremes):
    """Does not say how its state is merged."""

    reduce_over_ranks = None

    def result(self) -> Any:
        return self.sum[0] ** 2


class Root(M.Mean):
    """Changes a mean's result only, not its state."""

    def result(self) -> Any:
        return super().result() ** 0.5


class Both(M.Metric):
    """Consists of two metrics."""

    def __init__(self) -> None:
        super().__init__(name="both")
        self.precision, self.recall = M.Precision(thresholds=0.3), M.Recall(thresholds=0.3)

    def update_state(self, *args: Any, **options: Any) -> None:
        self.precision.update_state(*args, **options)
        self.recall.update_state(*args, **options)

    def reset_state(self) -> None:
        self.precision.reset_state()
        self.recall.reset_state()

    def result(self) -> Any:
        return self.precision.result() * self.recall.result()


@case
def classes_of_ones_own() -> Any:
    model = identity([Extremes(), Squares(name="squares"), Both(), "mae"])
    callback, printed = average(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        got = fit(model, "one_hot", callbacks=[callback], epochs=3)
    wanted = in_one_process(model, "one_hot")
    each = [
        [rows(r), float(samples("one_hot", r, seed)[1][:, 0].sum() ** 2)]
        for seed in (0, 1)
        for r in range(hvd.size())
    ]
    half = len(each) // 2
    for name, part in (("squares", each[:half]), ("val_squares", each[half:])):
        wanted[name] = sum(n * v for n, v in part) / sum(n for n, _ in part)
    same(got, wanted)
    said = printed.getvalue()
    assert said.count("'squares'") == (hvd.rank() == 0 and hvd.size() > 1), said
    assert "extremes" not in said and "both" not in said
    Extremes.reduce_over_ranks = {"largest": "median"}
    try:
        fit(model, "one_hot")
    except ValueError as error:
        assert hvd.size() == 1 or "'extremes'" in str(error) and "max" in str(error)
    else:
        assert hvd.size() == 1, "a word without meaning was accepted"
    finally:
        Extremes.reduce_over_ranks = {"largest": "max", "smallest": "min", "sum": "sum"}


class OwnSteps(keras.Model):
    """Steps of its own: trackers under other names, numbers that are no metrics, an override."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(3, use_bias=False, kernel_initializer="identity")
        self.tracker, self.root = M.Mean(name="loss"), Root(name="root")
        self.area, self.total = M.AUC(name="any_name"), M.Sum(name="total")

    def call(self, x: Any) -> Any:
        return self.layer(x)

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker, self.root, self.area, self.total]

    def _logs(self, data: Any) -> dict[str, Any]:
        x, y = data
        predicted = self(x)
        errors = tf.reduce_mean((predicted - y) ** 2, -1)
        self.tracker.update_state(errors)
        self.root.update_state(errors)
        self.area.update_state(y, predicted)
        self.total.update_state(errors)
        shown = {"mean_error": self.tracker.result(), "area": self.area.result(), "rate": 1.0}
        batch = {"batch": tf.cast(tf.shape(x)[0], tf.float32)}
        return shown | batch | {"root": self.root.result(), "total": self.total.result()}

    def train_step(self, data: Any) -> Any:
        return self._logs(data)

    def test_step(self, data: Any) -> Any:
        return self._logs(data)


class Overriding(keras.Sequential):
    """Shows a number that is computed from two metrics, and a metric by another name."""

    def compute_metrics(self, *args: Any, **options: Any) -> Any:
        results = super().compute_metrics(*args, **options)
        return results | {"again": results["p"]}

    def get_metrics_result(self) -> Any:
        results = super().get_metrics_result()
        p, r = results["p"], results["r"]
        return results | {"f": 2 * p * r / (p + r + 1e-7)}


@case
def steps_and_results_of_ones_own() -> Any:
    model = OwnSteps()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), run_eagerly=True)
    got = fit(model, "one_hot")
    wanted = in_one_process(model, "one_hot")
    sizes = [rows(rank) for rank in range(hvd.size())]
    for name in ("batch", "val_batch"):  # no metric: an average of numbers, by samples
        wanted[name] = np.average(
            sizes if name == "batch" else [min(n, 32) for n in sizes], weights=sizes
        )
    same(got, wanted)

    layer = keras.layers.Dense(3, use_bias=False, kernel_initializer="identity")
    one = Overriding([keras.Input((3,)), layer])
    metrics = [M.Precision(name="p", thresholds=0.3), M.Recall(name="r", thresholds=0.3)]
    one.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)),
        "mse",
        metrics=metrics,
        run_eagerly=True,
    )
    got = fit(one, "one_hot", steps_per_epoch=1)
    same(got, in_one_process(one, "one_hot"))
    assert {"val_f", "val_again"} <= set(got)
