"""Fela's partition: the paper's, at cuts that users name, and of models that can't be cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from trepak.models import zoo
from trepak.tf_plugins.fela import bins, profile
from trepak.tf_plugins.fela.graph import graph_of
from trepak.tf_plugins.fela.layer_shapes import is_weighted
from trepak.tf_plugins.fela.partition import Partition, partition

L = keras.layers


class Chosen(profile.Profile):
    """Thresholds by a layer's name, of which the first part counts: "t32_left" has 32."""

    def threshold(self, node: Any) -> int:
        return int(node.operation.name.split("_")[0].removeprefix("t"))


CHOSEN = Chosen("chosen")


def conv(name: str) -> Any:
    """A convolution; those of other thresholds are of other types."""
    threshold = name.split("_")[0].removeprefix("t")
    rate = int(threshold) if threshold.isdigit() else 1
    return L.Conv2D(4, 3, padding="same", dilation_rate=rate, name=name)


def weighted_names(parts: Partition) -> list[list[str]]:
    return [[n.operation.name for n in sub.nodes if is_weighted(n)] for sub in parts.sub_models]


def names_of(crossing: Any) -> list[str]:
    return [one.name for one in crossing]


def rows_of_googlenet(parts: Partition) -> list[set[int]]:
    """Which layers each sub-model has, as the table in GoogLeNet's paper counts them.

    It has two convolutions, of which the second has one of 1 × 1 before it, nine inception blocks
    of six convolutions each, and the fully connected layer.
    """

    def row(name: str) -> int:
        kind, number = name.split("_")
        if kind == "dense":
            return 12
        return 1 if number == "1" else 2 if number in ("2", "3") else 3 + (int(number) - 4) // 6

    return [{row(name) for name in names} for names in weighted_names(parts)]


def test_vgg19_as_in_the_paper() -> None:
    parts = partition(zoo.build("vgg19"), profile=profile.published("k40"))
    names = [[f"conv_{i}" for i in range(1, 17)], [f"dense_{i}" for i in range(1, 4)]]
    assert weighted_names(parts) == [names[0][:8], names[0][8:], names[1]]  # 1–8, 9–16, 17–19
    assert parts.thresholds == (16, 64, 2048)
    boundary = [out.shape for sub in parts.sub_models for out in sub.outputs]
    assert boundary == [(28, 28, 256), (7 * 7 * 512,), (1000,)]


@pytest.mark.parametrize("classes", [10, 1000])
def test_googlenet_as_in_the_paper(classes: int) -> None:
    model = zoo.build("googlenet", size=32, classes=classes)
    parts = partition(model, profile=profile.published("k40"))
    assert rows_of_googlenet(parts) == [{*range(1, 5)}, {*range(5, 10)}, {10, 11, 12}]
    assert [len(sub.outputs) for sub in parts.sub_models] == [1, 1, 1]
    again = partition(model, parts.cuts)  # as the other ranks make it
    assert weighted_names(again) == weighted_names(parts)
    assert again.thresholds is None


def test_published_profile_says_what_it_lacks() -> None:
    model = zoo.build("googlenet", size=32, width=0.25)
    with pytest.raises(ValueError, match="Tesla K40c has no threshold .*'conv_1'.* by name"):
        partition(model, profile=profile.published("k40"))


def residual(thresholds: list[str]) -> keras.Model:
    image = x = keras.Input((8, 8, 4))
    for number, name in enumerate(thresholds):
        y = L.ReLU()(conv(f"{name}_{number}a")(x))
        y = conv(f"{name}_{number}b")(y)
        x = L.Add(name=f"end{number}")([x, y])
    return keras.Model(image, x)


def test_blocks_are_not_cut_inside() -> None:
    parts = partition(residual(["t8", "t12", "t16", "t40", "t20"]), profile=CHOSEN)
    assert parts.cuts == ("end1", "end2")  # the last falls back to 40
    assert parts.thresholds == (12, 16, 40)
    assert partition(residual(["t8", "t40"]), profile=CHOSEN, bin_size=64).cuts == ()


def test_at_most_so_many_sub_models_join_those_that_are_closest() -> None:
    model = residual(["t2", "t20", "t40", "t160"])
    assert partition(model, 4, profile=CHOSEN).cuts == ("end0", "end1", "end2")
    assert partition(model, 3, profile=CHOSEN).cuts == ("end0", "end2")
    assert partition(model, 3, profile=CHOSEN).thresholds == (2, 40, 160)
    assert partition(model, 2, profile=CHOSEN).thresholds == (2, 160)
    assert partition(model, 1, profile=CHOSEN).cuts == ()


def test_a_long_stretch_of_branches_is_cut_with_several_tensors_crossing() -> None:
    """An encoder and a decoder with connections between, which no place leaves single."""
    image = x = keras.Input((8, 8, 4))
    skips = []
    for number in range(7):
        x = conv(f"t{8 if number < 4 else 40}_down{number}")(x)
        skips.append(x)
    for number, skip in enumerate(reversed(skips)):
        x = L.Add()([conv(f"t90_up{number}")(x), skip])
    parts = partition(keras.Model(image, x), profile=CHOSEN)
    assert [len(names) for names in weighted_names(parts)] == [4, 3, 7]
    assert [len(sub.outputs) for sub in parts.sub_models] == [4, 7, 1]
    assert parts.thresholds == (8, 40, 90)


def test_inputs_that_wait_and_early_outputs_make_no_block() -> None:
    image, late = keras.Input((8, 8, 4)), keras.Input((4,), name="late")
    early = conv("t8_a")(image)
    x = conv("t40_b")(conv("t8_c")(early))
    x = L.GlobalAveragePooling2D()(x)
    out = L.Dense(3, name="t90_d")(L.Concatenate(name="joined")([x, late]))
    parts = partition(keras.Model([image, late], [early, out]), profile=CHOSEN)
    assert weighted_names(parts) == [["t8_a", "t8_c"], ["t40_b"], ["t90_d"]]
    assert names_of(parts.sub_models[0].outputs) == ["late", "t8_a", "t8_c"]
    assert names_of(parts.sub_models[1].outputs) == ["t8_a", "joined"]


def test_automatic_cuts_keep_together_what_shares_state() -> None:
    image = keras.Input((8, 8, 4))
    shared = conv("t8_shared")
    x = shared(conv("t40_b")(conv("t8_a")(shared(image))))
    parts = partition(keras.Model(image, conv("t90_c")(x)), profile=CHOSEN)
    assert weighted_names(parts) == [["t8_shared", "t8_a", "t40_b", "t8_shared"], ["t90_c"]]


def test_fully_connected_layers_that_follow_each_other_are_one_type() -> None:
    model = keras.Sequential([keras.Input((8,)), L.Dense(9, name="t500_a"), L.ReLU()])
    for name in ("t70_b", "t20_c"):
        model.add(L.Dense(9 if name == "t70_b" else 2, name=name))
    parts = partition(model, profile=CHOSEN)
    assert parts.thresholds == (500,)  # of the one of middle size
    assert [s.threshold for s in bins.layers(graph_of(model), CHOSEN)] == [500, 500, 500]


def test_what_crosses_a_cut() -> None:
    image = keras.Input((8, 8, 3), name="image")
    first = conv("first")(image)
    second = conv("second")(first)
    third = conv("third")(second)
    out = L.Concatenate(name="all")([image, first, third])
    model = keras.Model(image, [out, first, out])
    parts = partition(model, ["second", "first"])
    assert parts.cuts == ("first", "second")
    assert [names_of(sub.inputs) for sub in parts.sub_models] == [
        ["image"],
        ["image", "first"],
        ["image", "first", "second"],
    ]
    assert names_of(parts.sub_models[-1].outputs) == ["all", "first", "all"]
    crossing = parts.sub_models[1].outputs[2]
    assert (crossing.dtype, crossing.shape) == ("float32", (8, 8, 4))
    assert crossing is parts.sub_models[2].inputs[2]


def test_each_variable_is_in_one_sub_model() -> None:
    model = keras.Sequential(
        [keras.Input((6,)), L.Dense(4), L.BatchNormalization(), L.Dropout(0.5)]
    )
    model.add(L.Dense(3, trainable=False))
    parts = partition(model, [model.layers[0].name, model.layers[2].name])
    trainable = [v for sub in parts.sub_models for v in sub.trainable]
    state = [v for sub in parts.sub_models for v in sub.state]
    assert [*map(id, trainable)] == [*map(id, model.trainable_variables)]
    assert {*map(id, state)} == {*map(id, model.non_trainable_variables)}
    assert [len(sub.state) for sub in parts.sub_models] == [0, 3, 2]
    assert [layer for sub in parts.sub_models for layer in sub.layers] == model.layers


def test_the_model_is_not_changed() -> None:
    model = residual(["t8", "t40"])
    before = model.get_config()
    nodes = [(len(layer._inbound_nodes), len(layer._outbound_nodes)) for layer in model.layers]
    parts = partition(model, profile=CHOSEN)
    values: list[Any] = [np.ones((2, 8, 8, 4), "float32")]
    for sub in parts.sub_models:
        values = sub.forward(sub.trainable, sub.state, values).outputs
    assert nodes == [(len(la._inbound_nodes), len(la._outbound_nodes)) for la in model.layers]
    assert model.get_config() == before


class OwnModel(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = L.Dense(2)

    def call(self, x: Any) -> Any:
        return self.dense(x)


class OwnCall(keras.Model):
    def call(self, x: Any, **options: Any) -> Any:
        return 2 * super().call(x, **options)


class Tied(keras.layers.Layer):
    def __init__(self, other: Any, **options: Any) -> None:
        super().__init__(**options)
        self.other_kernel = other.kernel

    def call(self, x: Any) -> Any:
        return keras.ops.matmul(x, keras.ops.transpose(self.other_kernel))


def chain(*layers: Any, shape: Any = (6, 4), **options: Any) -> keras.Model:
    x = inputs = keras.Input(shape, **options)
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, x)


def two_calls() -> keras.Model:
    shared = L.Dense(4, name="shared")
    return chain(shared, L.Dense(4, name="between"), shared)


def tied() -> keras.Model:
    dense = L.Dense(4, name="dense")
    dense.build((None, 6, 4))
    return chain(dense, L.ReLU(name="between"), Tied(dense, name="tied"))


def sequential(*layers: Any) -> Callable[[], keras.Model]:
    return lambda: chain(*layers)


def own_call() -> keras.Model:
    x = keras.Input((4,))
    return OwnCall(x, L.Dense(2)(x))


UNFIT: dict[str, tuple[Callable[[], Any], list[str], type[Exception], str]] = {
    "subclass": (OwnModel, [], TypeError, "OwnModel has a call of its own.*keras.Model\\("),
    "call overridden": (own_call, [], TypeError, "OwnCall has a call of its own"),
    "no model": (lambda: L.Dense(2), [], TypeError, "Dense has a call of its own"),
    "not built": (
        lambda: keras.Sequential([L.Dense(2)]),
        [],
        ValueError,
        "has no graph yet.*keras.Input",
    ),
    "stateful": (
        lambda: chain(L.GRU(3, stateful=True, name="rnn"), batch_size=2),
        [],
        ValueError,
        "'rnn' keeps its state between batches .*stateful=False",
    ),
    "stateful inside": (
        lambda: chain(L.Bidirectional(L.GRU(3, stateful=True, name="rnn")), batch_size=2),
        [],
        ValueError,
        "keeps its state",
    ),
    "over all ranks": (
        lambda: chain(L.BatchNormalization(synchronized=True, name="bn")),
        [],
        ValueError,
        "'bn' computes over all ranks .*use BatchNormalization",
    ),
    "random": (
        lambda: chain(L.RandomFlip(name="flip"), shape=(8, 8, 3)),
        [],
        ValueError,
        "'flip' of the class RandomFlip draws random numbers in its own way.*pipeline",
    ),
    "random in a cell": (
        sequential(L.LSTM(3, dropout=0.5, name="rnn")),
        [],
        ValueError,
        "of the class LSTMCell draws random numbers in a layer that calls it in a loop",
    ),
    "dropout in a loop": (
        sequential(L.TimeDistributed(L.Dropout(0.5, name="inner"))),
        [],
        ValueError,
        "'inner' of the class Dropout .* in a layer that calls it in a loop",
    ),
    "two calls": (
        two_calls,
        ["between"],
        ValueError,
        "'shared' of sub-model 2 and layer 'shared' of sub-model 1 share state .*keep them",
    ),
    "a variable of another layer": (
        tied,
        ["between"],
        ValueError,
        "'tied' of sub-model 2 and layer 'dense' of sub-model 1 share state .*'dense/kernel'",
    ),
    "unknown": (two_calls, ["nothing"], ValueError, "calls no layer 'nothing'.*shared, between"),
    "last": (two_calls, ["shared"], ValueError, "nothing to cut after layer 'shared'"),
    "batch size": (
        lambda: chain(L.Dense(2, name="dense"), batch_size=8),
        [],
        ValueError,
        "shape \\(8, 6, 4\\).*without batch_size",
    ),
    "sparse": (
        lambda: chain(L.Dense(2), shape=(4,), sparse=True, name="words"),
        [],
        ValueError,
        "'words' is sparse",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_unfit_models_are_refused_by_name(case: str) -> None:
    make, cuts, error, message = UNFIT[case]
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        partition(make(), cuts)


def test_what_crosses_has_a_batch() -> None:
    x = keras.Input((4,), name="x")
    scale = keras.ops.mean(L.Dense(1, name="one")(x))
    model = keras.Model(x, L.Dense(2)(x * scale))
    name = scale._keras_history.operation.name
    with pytest.raises(ValueError, match=rf"{name} has the shape \(\).* own values"):
        partition(model, [name])
    partition(model, ["one"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuts": "dense"}, "cuts is \"auto\", a number, or a list .*got 'dense'"),
        ({"cuts": 0}, "at least 1, got 0"),
        ({"bin_size": 0}, "bin_size is at least 1 sample, got 0"),
        ({"cuts": "auto"}, "no layer .* has a kernel.*by name"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partition(chain(L.ReLU(), L.BatchNormalization()), profile=CHOSEN, **options)


def test_recurrent_layers_without_dropout_are_fit() -> None:
    model = chain(L.LSTM(3, return_sequences=True), L.GRU(2, name="rnn"), L.Dense(2))
    assert len(partition(model, ["rnn"]).sub_models) == 2
