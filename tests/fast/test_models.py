"""The networks of `models/`: their published sizes, and their emulated twins."""

from __future__ import annotations

import math
import time
from typing import Any

import keras
import numpy as np
import psutil
import pytest
from undisturbed import undisturbed

from trepak.models import profiles, zoo
from trepak.models.emulation import Activation, EmulatedBuilder

# Trainable parameters, as published or as the well-known implementations have them.
PARAMETERS = {
    "alexnet": 62_378_344,
    "googlenet": 6_998_552,
    "inception_v4": 42_679_816,
    "lstm": 34_663_525,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "transformer": 35_299_330,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "yolo": 271_703_550,
}
# The share of the fully connected layers in percent, as Geryon's paper has it.
DENSE_SHARES = {"alexnet": 93.99, "vgg19": 86.06, "resnet50": 8.02, "yolo": 77.86}


class Sizes(EmulatedBuilder):
    """Notes the layers' sizes and makes no variables: a gigabyte of them takes its time."""

    def __init__(self, profile: str = "k40") -> None:
        super().__init__(profiles.load(profile))
        self.parameters: dict[str, int] = {}
        self.operations = 0.0

    def _layer(
        self,
        kind: str,
        x: Activation,
        shape: Any,
        operations: float,
        variables: Any,
        others: Any = (),
    ) -> Activation:
        self.parameters[self._named(kind)] = sum(math.prod(shape) for shape in variables)
        self.operations += operations
        return Activation(x.tensor, shape)


def sizes_of(name: str) -> Sizes:
    builder = Sizes()
    zoo.MODELS[name](builder)
    return builder


@pytest.mark.parametrize("name", zoo.MODELS)
def test_published_sizes(name: str) -> None:
    sizes = sizes_of(name).parameters
    total = sum(sizes.values())
    assert total == PARAMETERS[name]
    if name in DENSE_SHARES:
        dense = sum(size for layer, size in sizes.items() if layer.startswith("dense"))
        assert 100 * dense / total == pytest.approx(DENSE_SHARES[name], abs=0.005)


# One with every kind of layer each: convolutions with branches, shortcuts, sequences.
@pytest.mark.parametrize(
    ("name", "options"),
    [("googlenet", {}), ("resnet50", {}), ("transformer", {}), ("lstm", {"features": 32})],
)
def test_emulated_networks_have_the_variables_of_the_real_ones(
    name: str, options: dict[str, int]
) -> None:
    real, twin = zoo.build(name, **options), zoo.build(name, emulate="k40", **options)
    if not options:
        assert sum(math.prod(w.shape) for w in real.trainable_weights) == PARAMETERS[name]
    assert [tuple(w.shape) for w in twin.weights] == [tuple(w.shape) for w in real.weights]
    assert [w.trainable for w in twin.weights] == [w.trainable for w in real.weights]
    layers = [[layer.name for layer in model.layers if layer.weights] for model in (real, twin)]
    assert layers[0] == layers[1]


def test_real_networks_compute() -> None:
    for name, shape, dtype in (
        ("googlenet", (2, 224, 224, 3), "float32"),
        ("transformer", (2, 64), "int32"),
    ):
        output = zoo.build(name, classes=5)(np.ones(shape, dtype))
        assert output.shape == (2, 5)
        assert np.isfinite(np.asarray(output)).all()


@pytest.mark.parametrize("shrink", [10, 1000])
def test_shrink_keeps_the_skew(shrink: float) -> None:
    full = zoo.build("googlenet", emulate="k40")
    small = zoo.build("googlenet", emulate="k40", shrink=shrink)
    for ours, theirs in zip(small.weights, full.weights, strict=True):
        wanted = math.prod(theirs.shape) / shrink
        # Within 1%, or to the next whole element.
        assert abs(math.prod(ours.shape) - wanted) <= max(0.01 * wanted, 0.5, 1 - wanted)
    totals = [sum(math.prod(w.shape) for w in model.weights) for model in (small, full)]
    assert totals[0] == pytest.approx(totals[1] / shrink, rel=0.01)


def test_stretch_multiplies_every_layers_time() -> None:
    plain = zoo.build("googlenet", emulate="k40", shrink=1000)
    slow = zoo.build("googlenet", emulate="k40", shrink=1000, stretch=2.5)
    times = [[getattr(layer, "milliseconds", 0) for layer in m.layers] for m in (slow, plain)]
    assert times[0] == pytest.approx([2.5 * one for one in times[1]])
    assert sum(times[1]) > 0


def test_activations_have_their_sizes_and_small_batches_are_slower() -> None:
    """And gradients go back through them."""
    options: dict[str, Any] = {"emulate": "k40", "shrink": 1000, "stretch": 0.01}
    model = zoo.build("vgg19", activations=True, saturates=True, **options)
    assert model.input_shape == (None, 151) and model.output_shape == (None, 1)
    assert model.get_layer("pool_3").output.shape == (None, 201)  # 28 · 28 · 256 / 1000
    dense, conv = model.get_layer("dense_1"), model.get_layer("conv_9")
    assert dense.overhead == pytest.approx(2048 * (1 / 0.95 - 1)) and dense.kind == "dense"
    assert conv.overhead == pytest.approx(64 * (1 / 0.95 - 1))
    before = [w.numpy().copy() for w in model.trainable_weights]
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    model.train_on_batch(np.ones((2, 151), "float32"), np.ones((2, 1), "float32"))
    for ours, theirs in zip(model.trainable_weights, before, strict=True):
        assert np.isfinite(ours.numpy()).all() and not np.array_equal(ours.numpy(), theirs)
    with pytest.raises(ValueError, match="no threshold batch size of 'conv' for a width of 7"):
        zoo.build("resnet50", saturates=True, **options)


def test_k40_is_calibrated_to_vgg19() -> None:
    forward = profiles.load("k40").milliseconds(sizes_of("vgg19").operations)
    assert 1000 / (3 * forward) == pytest.approx(36.9, rel=0.005)


@pytest.mark.parametrize(("profile", "rate"), [("v100", 384), ("h100", 2820)])
def test_profiles_give_the_rates_they_state(profile: str, rate: float) -> None:
    assert f"{rate:,} ResNet-50 images" in profiles.load(profile).source
    forward = profiles.load(profile).milliseconds(sizes_of("resnet50").operations)
    assert 1000 / (3 * forward) == pytest.approx(rate, rel=0.005)


def test_emulated_training_takes_the_accelerators_time_and_no_cpu() -> None:
    model = zoo.build("vgg16", emulate="k40", shrink=1000)
    before = [w.numpy().copy() for w in model.trainable_weights]
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    x, y = np.zeros((8, 1), "float32"), np.ones((8, 1), "float32")
    model.train_on_batch(x, y)
    expected = 8 * 3 * profiles.load("k40").milliseconds(sizes_of("vgg16").operations) / 1000
    process = psutil.Process()

    def step() -> tuple[float, float]:
        cpu, began = sum(process.cpu_times()[:2]), time.monotonic()
        model.train_on_batch(x, y)
        return time.monotonic() - began, sum(process.cpu_times()[:2]) - cpu

    took, cpu = undisturbed(step, lambda got: got[0] <= 1.05 * expected and got[1] < 0.3 * got[0])
    assert expected <= took <= 1.05 * expected
    assert cpu < 0.3 * took
    for ours, theirs in zip(model.trainable_weights, before, strict=True):
        assert not np.array_equal(ours.numpy(), theirs), f"{ours.path} has no gradient"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "vgg20"}, "there is no model 'vgg20'; there are: alexnet"),
        ({"name": "vgg16", "emulate": "tpu"}, "there is no profile 'tpu'; there are: h100"),
        ({"name": "vgg16", "shrink": 2}, "stretch, activations and saturates need emulate"),
        ({"name": "vgg16", "stretch": 2}, "shrink, stretch, activations and saturates need"),
        ({"name": "vgg16", "saturates": True}, "shrink, stretch, activations and saturates need"),
        ({"name": "vgg16", "emulate": "k40", "shrink": 0.5}, "at least 1, got 0.5"),
        ({"name": "vgg16", "emulate": "k40", "stretch": 0}, "above 0, got 0"),
    ],
)
def test_wrong_options_are_explained(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        zoo.build(**arguments)
