"""MetricAverageCallback against one process that evaluates the samples of all ranks."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from harness import case
from isolation import LOWER, PROCESS_SETS  # noqa: F401 (which are registered)

import trepak.keras as hvd
from trepak.tf_plugins.callbacks.metric_states import SUMMED_STATES

M = keras.metrics
average = hvd.callbacks.MetricAverageCallback


def rows(rank: int) -> int:
    return 6 + 14 * rank


def samples(kind: str, rank: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Returns a rank's x [n, 3], y and weights [n]; predictions are x, by `identity`."""
    rng = np.random.default_rng([rank, seed])
    n = rows(rank)
    x = rng.random((n, 3)).astype("float32") * 0.9 + 0.05
    x /= x.sum(1, keepdims=True)
    labels = rng.integers(0, 3, n)
    y = {
        "one_hot": np.eye(3)[labels],
        "sparse": labels[:, None],
        "several": rng.random((n, 3)) < 0.4,
        "numbers": x + 0.3 * rng.normal(size=(n, 3)) + rank,
    }[kind]
    return x, y.astype("float32"), rng.integers(1, 4, n).astype("float32")


def everyone(kind: str, seed: int = 0) -> list[Any]:
    parts = [samples(kind, rank, seed) for rank in range(hvd.size())]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def identity(metrics: Any, loss: str = "mse", eager: bool = True, **options: Any) -> Any:
    """A model whose predictions are its inputs, and stay so: its rate is 0."""
    layer = keras.layers.Dense(3, use_bias=False, kernel_initializer="identity")
    model = keras.Sequential([keras.Input((3,)), layer])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0))
    model.compile(optimizer, loss, metrics=metrics, run_eagerly=eager, **options)
    return model


def same(got: dict[str, Any], wanted: dict[str, Any], **tolerance: Any) -> None:
    tolerance = {"rtol": 2e-5, "atol": 1e-6} | tolerance
    assert set(got) == set(wanted), (sorted(got), sorted(wanted))
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, err_msg=name, **tolerance)


def last(history: Any) -> dict[str, Any]:
    return {name: values[-1] for name, values in history.history.items()}


def fit(model: Any, kind: str, validation: bool = True, **options: Any) -> dict[str, Any]:
    x, y, _ = samples(kind, hvd.rank())
    options = {"batch_size": rows(hvd.rank()), "callbacks": [average()]} | options
    data = samples(kind, hvd.rank(), 1)[:2] if validation else None
    return last(model.fit(x, y, verbose=0, validation_data=data, **options))


def in_one_process(model: Any, kind: str, validation: bool = True) -> dict[str, Any]:
    def alone(seed: int) -> dict[str, Any]:
        x, y, _ = everyone(kind, seed)
        return model.evaluate(x, y, batch_size=512, verbose=0, return_dict=True)

    found = alone(0)
    return found | {f"val_{n}": v for n, v in alone(1).items()} if validation else found


def zero_or_one(y_true: Any, y_pred: Any) -> Any:
    return tf.cast(y_pred[:, 0] > 0.4, tf.float32)


KINDS: dict[str, Any] = {
    "one_hot": lambda: [
        M.AUC(num_thresholds=50),
        M.AUC(curve="PR", multi_label=True, name="auc_labels"),
        M.AUC(from_logits=True, summation_method="minoring", name="auc_logits"),
        M.BinaryAccuracy(),
        M.BinaryCrossentropy(),
        M.CategoricalAccuracy(),
        M.CategoricalCrossentropy(),
        M.CategoricalHinge(),
        M.F1Score(),
        M.F1Score(average="macro", name="f1_macro"),
        M.FBetaScore(average="weighted", beta=2.0),
        M.FalseNegatives(thresholds=[0.3, 0.5]),
        M.FalsePositives(thresholds=0.3),
        M.KLDivergence(),
        M.OneHotIoU(num_classes=3, target_class_ids=[0, 2]),
        M.OneHotMeanIoU(num_classes=3),
        M.Precision(thresholds=[0.2, 0.4]),
        M.PrecisionAtRecall(0.5),
        M.Recall(top_k=2),
        M.RecallAtPrecision(0.4),
        M.SensitivityAtSpecificity(0.5),
        M.SpecificityAtSensitivity(0.5),
        M.TopKCategoricalAccuracy(k=2),
        M.TrueNegatives(thresholds=0.3),
        M.TruePositives(thresholds=0.3),
        zero_or_one,
        "mae",
    ],
    "sparse": lambda: [
        "accuracy",
        M.SparseCategoricalAccuracy(),
        M.SparseCategoricalCrossentropy(),
        M.SparseTopKCategoricalAccuracy(k=2),
        M.MeanIoU(num_classes=3, sparse_y_pred=False),
        M.IoU(num_classes=3, target_class_ids=[1], sparse_y_pred=False),
    ],
    "several": lambda: [M.BinaryIoU(threshold=0.3), M.Accuracy()],
    "numbers": lambda: [
        M.ConcordanceCorrelation(),
        M.CosineSimilarity(),
        M.Hinge(),
        M.LogCoshError(),
        M.MeanAbsoluteError(),
        M.MeanAbsolutePercentageError(),
        M.MeanMetricWrapper(zero_or_one, name="wrapped"),
        M.MeanSquaredError(),
        M.MeanSquaredLogarithmicError(),
        M.PearsonCorrelation(),
        M.Poisson(),
        M.R2Score(),
        M.R2Score(class_aggregation=None, name="r2_by_output"),
        M.R2Score(class_aggregation="variance_weighted_average", num_regressors=2, name="r2_adj"),
        M.RootMeanSquaredError(),
        M.SquaredHinge(),
    ],
}


@case
def every_class_of_keras() -> Any:
    """In fit, for training and validation, and in evaluate."""
    tried = {"Mean", "Sum"}  # the loss is a Mean; Sum stands in a model's metrics, below
    for kind, make in KINDS.items():
        loss = "sparse_categorical_crossentropy" if kind == "sparse" else "mse"
        model = identity(make(), loss)
        got = fit(model, kind)
        wanted = in_one_process(model, kind)
        same(got, wanted)
        x, y, _ = samples(kind, hvd.rank(), 1)
        got = model.evaluate(x, y, 15, verbose=0, return_dict=True, callbacks=[average()])
        same(got, {n.removeprefix("val_"): v for n, v in wanted.items() if n.startswith("val_")})
        tried |= {type(metric).__name__ for metric in model._compile_metrics.metrics}
    assert tried == set(SUMMED_STATES), set(SUMMED_STATES) ^ tried


@case
def what_evaluate_returns_and_shows() -> Any:
    seen: list[dict[str, Any]] = []
    look = keras.callbacks.LambdaCallback()
    look.on_test_end = lambda logs: seen.append(dict(logs))
    model = identity([M.AUC(name="auc"), M.F1Score(name="f1")], steps_per_execution=2, eager=False)
    x, y, _ = samples("one_hot", hvd.rank())
    auc, f1 = model.get_compile_config() and model._compile_metrics._user_metrics
    mine = model.evaluate(x, y, 4, verbose=0)
    states = [np.array(v) for v in (*auc.variables, *f1.variables)]
    listed = model.evaluate(x, y, 4, verbose=0, callbacks=[average(), look])
    wanted = in_one_process(model, "one_hot", validation=False)
    assert len(listed) == len(mine) == 3
    for got, name in zip(listed, ("loss", "auc", "f1"), strict=True):
        np.testing.assert_allclose(got, wanted[name], rtol=1e-5)
        np.testing.assert_array_equal(seen[0][name], got)
    model.evaluate(x, y, 4, verbose=0, callbacks=[average()])
    for before, after in zip(states, (*auc.variables, *f1.variables), strict=True):
        np.testing.assert_array_equal(before, after)  # this rank's own, however often it is asked


@case
def ranks_with_other_metrics_or_none() -> Any:
    model = identity([M.AUC(name="auc"), *(["mae"] if hvd.rank() == 0 else [])])
    # One rank has built a model before: Keras numbers its next ones.
    numbered = identity([M.F1Score(), M.AUC() if hvd.rank() else (M.AUC(), M.AUC())[1]])
    wanted = in_one_process(identity([M.AUC(name="auc")]), "one_hot", validation=False)
    for one in (model, numbered):
        got = fit(one, "one_hot", validation=hvd.rank() == 0, epochs=2)
        auc = next(name for name in got if name.startswith("auc"))
        np.testing.assert_allclose(got[auc], wanted["auc"], rtol=1e-5)
        np.testing.assert_allclose(got["loss"], wanted["loss"], rtol=1e-5)
        if hvd.rank() == 0:  # the only one to validate: its own value
            x, y, _ = samples("one_hot", 0, 1)
            mine = one.evaluate(x, y, verbose=0, return_dict=True)
            np.testing.assert_allclose(got[f"val_{auc}"], mine[auc], rtol=1e-5)


@case
def several_outputs_and_weights() -> Any:
    inputs = keras.Input((3,))
    outputs = [keras.layers.Identity(name=name)(inputs) for name in "ab"]
    model = keras.Model(inputs, outputs)
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)),
        ["mse", "mae"],
        metrics=[[M.AUC(name="auc"), "mae"], [M.AUC(name="auc"), "mae"]],
        weighted_metrics=[["mse", M.Precision(name="p")], [M.Recall(name="r")]],
        run_eagerly=True,
    )

    def data(x: Any, y: Any, weights: Any) -> Any:
        return {"x": x, "y": [y, 1 - y], "sample_weight": [weights, weights**2]}

    mine = data(*samples("one_hot", hvd.rank()))
    options: dict[str, Any] = {"verbose": 0, "return_dict": True}
    got = model.evaluate(**mine, batch_size=4, callbacks=[average()], **options)
    wanted = model.evaluate(**data(*everyone("one_hot")), batch_size=512, **options)
    assert {"a_auc", "b_auc", "a_mse", "a_p", "b_r", "a_loss"} <= set(wanted), sorted(wanted)
    same(got, wanted)


@case
def other_states_and_dtypes() -> Any:
    if hvd.size() > 1:
        model = identity([M.AUC(num_thresholds=10 + hvd.rank(), name="area")])
        try:
            fit(model, "one_hot")
        except ValueError as error:
            assert "'area'" in str(error) and "rank 1" in str(error) and "[11]" in str(error)
        else:
            raise AssertionError("states of other shapes were merged")
    # Half the range of float16 on each rank: the ranks' sum has no value there.
    for dtype, tolerance in (("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-6)):
        large = M.Mean(name="large", dtype=dtype)
        model = identity(["mae"])
        model.large = large
        update = keras.callbacks.LambdaCallback()
        mine = 2.0 + hvd.rank()
        update.on_test_batch_end = lambda *_, m=large, v=mine, **__: m.update_state(v, 20000.0)
        x, y, _ = samples("one_hot", hvd.rank())
        got = model.evaluate(
            x, y, rows(hvd.rank()), verbose=0, return_dict=True, callbacks=[average(), update]
        )
        wanted = 2.0 + (hvd.size() - 1) / 2
        np.testing.assert_allclose(got["large"], wanted, rtol=tolerance)


@case
def counts_beyond_what_float32_counts() -> Any:
    """2^24 and 1 are summed in float64, and then rounded once."""
    model = identity(["mae"])
    model.count = M.Sum(name="count", dtype="float64")
    update = keras.callbacks.LambdaCallback()
    mine = 2.0**24 if hvd.rank() == 0 else 1.0
    update.on_test_batch_end = lambda *_, **__: model.count.update_state(mine)
    x, y, _ = samples("one_hot", hvd.rank())
    got = model.evaluate(x, y, 32, verbose=0, return_dict=True, callbacks=[average(), update])
    assert got["count"] == 2.0**24 + hvd.size() - 1, got


@case
def evaluations_between_do_not_disturb() -> Any:
    """A callback before ours evaluates for itself, on one rank."""
    model = identity([M.AUC(name="auc")])

    def evaluate(epoch: int, logs: Any) -> None:
        if hvd.rank() == 0:
            model.evaluate(*samples("one_hot", 0, 7)[:2], verbose=0)

    other = keras.callbacks.LambdaCallback(on_epoch_end=evaluate)
    ended: list[Any] = []
    after = keras.callbacks.LambdaCallback(on_train_end=lambda logs: ended.append(dict(logs)))
    got = fit(model, "one_hot", callbacks=[other, average(), after], epochs=2)
    wanted = in_one_process(model, "one_hot")
    same(got, wanted)
    same(ended[0], wanted)


@case
def a_process_set_counts_its_own_samples() -> Any:
    if hvd.size() == 1:
        return
    model = identity([M.AUC(name="auc")])
    got = fit(model, "one_hot", callbacks=[average(process_set=LOWER)])
    if LOWER.included():
        parts = [samples("one_hot", rank) for rank in LOWER.ranks]
    else:
        parts = [samples("one_hot", hvd.rank())]
    x, y, _ = (np.concatenate(part) for part in zip(*parts, strict=True))
    same(
        {n: v for n, v in got.items() if not n.startswith("val_")},
        model.evaluate(x, y, 512, verbose=0, return_dict=True),
    )
