"""What Fela refuses, by name and with a remedy, before the first step; and one process alone."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import basics
from trepak.tf_plugins.fela.compiled import check_staleness, check_subset
from trepak.tf_plugins.fela.partition import partition_at
from trepak.tf_plugins.fela.training import _in_one_line

X, Y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


def network(model: Any = keras.Model) -> Any:
    inputs = keras.Input((4,))
    x = keras.layers.Dense(3, name="first")(inputs)
    return model(inputs, keras.layers.Dense(1)(x))


def with_two_outputs() -> Any:
    """Alike at each call; the outputs' names are not in the order of the alphabet."""
    keras.utils.set_random_seed(2)
    inputs = keras.Input((4,))
    x = keras.layers.Dense(3, activation="tanh", name="first")(inputs)
    return keras.Model(inputs, [keras.layers.Dense(1, name=name)(x) for name in "ba"])


def sgd(**options: Any) -> Any:
    return keras.optimizers.SGD(0.1, **options)


class OwnStep(keras.Model):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


@pytest.mark.parametrize(
    ("compiled", "message"),
    [
        ({"optimizer": sgd(), "loss": None}, "without a loss"),
        ({"optimizer": sgd(), "loss": keras.losses.MeanSquaredError("sum")}, "reduction='sum'"),
        ({"optimizer": sgd(), "loss": "mse", "steps_per_execution": 2}, "in blocks"),
        ({"optimizer": sgd(gradient_accumulation_steps=2), "loss": "mse"}, "larger batch_size"),
        (
            {"optimizer": lambda: hvd.DistributedOptimizer(sgd(), sync=trepak.LocalSGD(2))},
            "leave sync out",
        ),
        (
            {"optimizer": lambda: hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2)},
            "leave backward_passes_per_step out",
        ),
        (
            {
                "optimizer": lambda: hvd.DistributedOptimizer(
                    sgd(), compression=hvd.Compression.fp16
                )
            },
            "leave compression out",
        ),
    ],
)
def test_what_tokens_do_not_go_with(compiled: dict[str, Any], message: str) -> None:
    model = network()
    trepak.Fela(model, ["first"])
    if callable(make := compiled["optimizer"]):
        compiled = {"loss": "mse", **compiled, "optimizer": make()}
    with pytest.raises(ValueError, match=message):
        model.compile(**compiled)
        model.fit(X, Y, verbose=0)


def test_a_step_of_ones_own() -> None:
    model = network(OwnStep)
    trepak.Fela(model, ["first"])
    model.compile(sgd(), "mse")
    with pytest.raises(ValueError, match="train_step of its own"):
        model.fit(X, Y, verbose=0)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (sgd(global_clipnorm=1.0), "global_clipnorm"),
        (keras.optimizers.LossScaleOptimizer(sgd()), "LossScaleOptimizer"),
    ],
)
def test_what_does_not_go_with_a_subset(optimizer: Any, message: str) -> None:
    model = network()
    model.compile(optimizer, "mse")
    with pytest.raises(ValueError, match=message):
        check_subset(model)


def test_what_does_not_go_with_a_staleness() -> None:
    model = network()
    model.compile(keras.optimizers.LossScaleOptimizer(sgd()), "mse")
    with pytest.raises(ValueError, match="LossScaleOptimizer"):
        check_staleness(model, 1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(momentum=0.8)])
    model.compile(sgd(), "mse")
    check_staleness(model, 4)
    with pytest.raises(ValueError, match="has momentum 0.8.* is 0.833 at least"):
        check_staleness(model, 5)


@pytest.mark.parametrize("eager", [False, True])
def test_who_is_alone_is_not_ahead(eager: bool) -> None:
    """Its weights lack no update: those of each epoch are BSP's, and so are losses and state."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 4)).astype("float32"), rng.normal(size=(24, 1))
    trained = []
    for staleness in (0, 3):
        keras.utils.set_random_seed(2)
        model = keras.Sequential([keras.layers.BatchNormalization(), *network().layers[1:]])
        model.build((None, 4))
        fela = trepak.Fela(model, ["first"], threshold=2, staleness=staleness)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", run_eagerly=eager)
        told = model.fit(x, y, 6, 3, shuffle=False, verbose=0, validation_data=(x, y)).history
        assert fela.statistics()["stale_iterations"] == 0
        trained.append([*model.get_weights(), told["loss"], told["val_loss"]])
        fela.close()
    for one, other in zip(*trained, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_steps_by_themselves_have_their_own_losses_whatever_the_staleness() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 4)).astype("float32"), rng.normal(size=(24, 1))
    losses = []
    for staleness in (0, 3):
        keras.utils.set_random_seed(2)
        model = network()
        fela = trepak.Fela(model, ["first"], threshold=2, staleness=staleness)
        model.compile(sgd(), "mse")
        losses.append([model.train_on_batch(x[i : i + 6], y[i : i + 6]) for i in range(0, 24, 6)])
        fela.close()
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_a_subset_needs_a_dense_layer() -> None:
    inputs = keras.Input((4, 2))
    x = keras.layers.Conv1D(3, 2, name="first")(inputs)
    model = keras.Model(inputs, keras.layers.Conv1D(1, 2)(x))
    with pytest.raises(ValueError, match="Dense"):
        trepak.Fela(model, ["first"], subset=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1, 3, 2]}, "weights has 3 numbers"),
        ({"weights": [2, 2]}, "begin with 1"),
        ({"weights": [1, 0]}, "multiple"),
        ({"threshold": 0}, "at least 1 sample"),
        ({"subset": 0}, "at least 1 rank"),
        ({"subset": True}, "whole numbers"),
        ({"weights": 2}, "one for each sub-model"),
        ({"depth_first": "no"}, "depth_first is True or False, got 'no'"),
        ({"partition": None}, "a list of names"),
        ({"partition": True}, "a list of names"),
        ({"partition": 1.5}, "a list of names"),
        ({"threshold": 4.7}, "whole numbers"),
        ({"threshold": 2**32 + 1}, "at most"),
        ({"staleness": -1}, "0 to 64 iterations, got -1"),
        ({"staleness": 65}, "0 to 64 iterations"),
        ({"staleness": 1.0}, "whole numbers"),
        ({"staleness": 1, "subset": 1}, "does not go with a conditional subset"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        trepak.Fela(network(), **{"partition": ["first"]} | options)


def test_ranks_that_join_later_could_not_agree_on_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basics, "is_elastic", lambda: True)
    for options in ({}, {"partition": 2}, {"partition": ["first"], "profile": "profile.json"}):
        with pytest.raises(ValueError, match="give partition the names"):
            trepak.Fela(network(), **options)


def test_horovod_comes_first() -> None:
    hvd.shutdown()
    try:
        with pytest.raises(ValueError, match=r"use hvd.init\(\)"):
            trepak.Fela(network(), ["first"])
    finally:
        hvd.init()


def test_labels_are_needed_and_keep_their_shape() -> None:
    model = network()
    trepak.Fela(model, ["first"])
    model.compile(sgd(), "mse")
    with pytest.raises(ValueError, match="give y"):
        model.fit(X, verbose=0)
    model.train_on_batch(X, Y)
    with pytest.raises(ValueError, match="same dtypes and shapes"):
        model.train_on_batch(X, Y.astype("int32"))


@pytest.mark.parametrize("eager", [False, True])
def test_sample_weights_and_several_outputs(eager: bool) -> None:
    """Also with mixed precision, whose losses are scaled, and in a dictionary."""

    def make() -> Any:
        keras.utils.set_random_seed(2)
        inputs = {"a": keras.Input((4,), name="a"), "b": keras.Input((4,), name="b")}
        x = keras.layers.Dense(3, activation="tanh", name="first")(inputs["a"])
        x = keras.layers.Concatenate()([x, inputs["b"]])
        outputs = {"one": keras.layers.Dense(1)(x), "two": keras.layers.Dense(2)(x)}
        model = keras.Model(inputs, outputs)
        return model

    rng = np.random.default_rng(0)
    x = {name: rng.normal(size=(12, 4)).astype("float32") for name in "ab"}
    y = {"one": rng.normal(size=(12, 1)), "two": rng.normal(size=(12, 2))}
    weight = {name: rng.uniform(size=12) for name in y}
    models = [make(), make()]
    trepak.Fela(models[0], ["first"], threshold=3, weights=[1, 2])
    told = []
    for model in models:
        optimizer = keras.optimizers.LossScaleOptimizer(sgd())
        losses = {"one": "mse", "two": "mae"}
        model.compile(optimizer, losses, loss_weights={"one": 2.0, "two": 0.5}, run_eagerly=eager)
        told.append(model.fit(x, y, 6, 3, sample_weight=weight, shuffle=False, verbose=0).history)
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(told[0]["loss"], told[1]["loss"], rtol=1e-5)


def test_horovod_may_be_shut_down_between() -> None:
    model = network()
    fela = trepak.Fela(model, ["first"], threshold=3)
    model.compile(sgd(), "mse")
    model.fit(X, Y, verbose=0)
    hvd.shutdown()
    hvd.init()
    model.fit(X, Y, verbose=0)
    assert fela.statistics()["iterations"] == 1  # of the session that there is now
    fela.close()
    assert fela.statistics() == {}
    model.fit(X, Y, verbose=0)


def test_a_scale_that_overflows_comes_down() -> None:
    model = network()
    trepak.Fela(model, ["first"], threshold=3)
    optimizer = keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=2.0**127)
    model.compile(optimizer, "mse")
    before = model.get_weights()
    for _ in range(40):
        model.train_on_batch(X * 100, Y)
    assert float(optimizer.dynamic_scale) < 2.0**127
    assert any((one != other).any() for one, other in zip(before, model.get_weights(), strict=True))
    assert all(np.isfinite(one).all() for one in model.get_weights())


def test_layers_may_be_frozen_and_thawed() -> None:
    """What is frozen keeps its bits; what is compiled anew as trainable is trained."""
    model = network()
    trepak.Fela(model, ["first"], threshold=3)
    first = model.get_layer("first")
    first.trainable = False
    model.compile(sgd(), "mse")
    frozen, last = first.get_weights()[0], model.layers[-1].get_weights()[0]
    model.fit(X / 3, Y, epochs=5, verbose=0)
    assert (first.get_weights()[0] == frozen).all()
    assert (model.layers[-1].get_weights()[0] != last).any()
    first.trainable = True
    model.compile(sgd(), "mse")
    model.fit(X, Y, verbose=0)
    assert (first.get_weights()[0] != frozen).any()


def test_each_fit_draws_other_masks() -> None:
    inputs = keras.Input((64,))
    x = keras.layers.Dropout(0.5, name="first")(inputs)
    x = keras.layers.Dense(1, kernel_initializer="ones")(x)
    model = keras.Model(inputs, x)
    trepak.Fela(model, ["first"], threshold=3)
    model.compile(keras.optimizers.SGD(0.0), lambda y, output: output + y)
    x = np.ones((8, 64), "float32")
    losses = [model.fit(x, Y, verbose=0).history["loss"][0] for _ in range(3)]
    assert len(set(losses)) == 3, losses


def test_losses_of_outputs_with_masks() -> None:
    inputs = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True, name="first")(inputs)
    model = keras.Model(inputs, keras.layers.LSTM(3, return_sequences=True)(x))
    trepak.Fela(model, ["first"], threshold=3)
    model.compile(sgd(), "mse")
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(np.ones((8, 5)), np.ones((8, 5, 3)), verbose=0)


def test_losses_with_masks_of_their_own() -> None:
    model = network()
    trepak.Fela(model, ["first"], threshold=3)
    ignoring = keras.losses.SparseCategoricalCrossentropy(ignore_class=1, name="ignoring")
    model.compile(sgd(), ignoring)
    with pytest.raises(ValueError, match="the loss 'ignoring' of model .* has a mask"):
        model.fit(X, np.zeros(8), verbose=0)
    assert "call" not in vars(ignoring)


def test_a_model_too_small_for_the_cuts_of_another_rank() -> None:
    assert partition_at(network(), [0]).cuts == ("first",)
    with pytest.raises(ValueError, match="build the same model on all ranks"):
        partition_at(network(), [1])
    model = keras.Sequential([keras.Input((4,)), *map(keras.layers.Dense, (3, 2, 1))])
    trepak.Fela(model, [model.layers[1].name])
    model.pop()
    model.compile(sgd(), "mse")
    with pytest.raises(ValueError, match="call Fela when it has all its layers"):
        model.train_on_batch(X, Y)


def test_others_hear_of_an_error_without_its_stack() -> None:
    @tf.function
    def fail() -> None:
        raise ValueError("the reason,\n in two lines")

    with pytest.raises(ValueError, match="in user code") as caught:
        fail()
    assert _in_one_line(caught.value) == "ValueError: the reason, in two lines"
    assert _in_one_line(KeyboardInterrupt()) == "KeyboardInterrupt:"


def test_open_dimensions_are_refused_by_name() -> None:
    inputs = keras.Input((None, 4), name="words")
    x = keras.layers.Dense(3, name="first")(inputs)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(x))
    with pytest.raises(ValueError, match="words has the shape .*None, None, 4.* all dimensions"):
        trepak.Fela(model, ["first"])


def test_labels_and_sample_weights_may_have_another_structure_in_another_fit() -> None:
    rng = np.random.default_rng(3)
    x, b, a = rng.normal(size=(7, 4)), rng.normal(size=(7, 1)), rng.normal(size=(7, 1))
    weight = rng.uniform(size=7)
    plain, model = with_two_outputs(), with_two_outputs()
    trepak.Fela(model, ["first"], threshold=3)
    for one in (plain, model):
        one.compile(sgd(), ["mse", "mse"])
        for labels in ([b, a], {"a": a, "b": b}):
            for weights in (None, [weight, None], [None, weight]):
                if weights is None or isinstance(labels, list):
                    one.fit(x, labels, 7, sample_weight=weights, shuffle=False, verbose=0)
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_labels_in_another_order_are_not_taken_for_each_other() -> None:
    model, labels = with_two_outputs(), {"b": np.ones((8, 1)), "a": np.zeros((8, 1))}
    trepak.Fela(model, ["first"])
    model.compile(sgd(), "mse")
    model.train_on_batch(X, OrderedDict(labels))
    with pytest.raises(ValueError, match="in one order"):
        model.train_on_batch(X, labels)  # whose names are read in the order of the alphabet


def test_losses_of_each_output_where_tokens_differ_in_size() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(7, 4)), [rng.normal(size=(7, 1)) for _ in "ba"]
    told = []
    for model in (with_two_outputs(), with_two_outputs()):
        if not told:
            trepak.Fela(model, ["first"], threshold=3)
        model.compile(sgd(), "mse", metrics=["mae", "mae"])
        told.append(model.fit(x, y, 7, verbose=0).history)
    assert told[0].keys() == told[1].keys()
    for name, value in told[1].items():
        np.testing.assert_allclose(told[0][name], value, rtol=1e-5, err_msg=name)


def test_another_fela_takes_the_place_of_one() -> None:
    model = network()
    one = trepak.Fela(model, ["first"])
    model.compile(sgd(), "mse")
    model.fit(X, Y, verbose=0)
    trepak.Fela(model, ["first"], threshold=2)
    assert one.statistics() == {}
    model.fit(X, Y, verbose=0)
