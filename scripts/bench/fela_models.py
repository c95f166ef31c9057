"""Fela's two benchmarks as their layers, and how long a K40 takes for them (Figure 1).

A layer's time is the profile's (`trepak.models.profiles`): a layer has 95% of its greatest
throughput at the threshold batch size, which is where Figure 1's curves are level, and by which
thresholds are measured (`tf_plugins/fela/thresholds.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from trepak.models import profiles

FLOAT = 4  # bytes
BACKWARD = 2.0  # a product for the gradient of the input, and one for that of the weights

# Bytes of a K40, less those of the CUDA context and of cuDNN's workspaces: so much that a whole
# VGG-19 has room for 32 samples and not for 64, as footnote 3 found.
MEMORY = 12e9 - 1e9
MOST_OF_A_MODEL = 32  # samples of a whole model that one has room for (footnote 3)
_MEMORY_BANDWIDTH = 288e9  # bytes a second of a K40
_UPDATE_PASSES = 5  # SGD reads gradient, momentum and weight, and writes the latter two
STATE_COPIES = 3  # weights, gradients, momenta
# Of the values that a layer computes, with and without its activation function: both are kept for
# the way back.
_KEPT_COPIES = 2

_K40 = profiles.load("k40")


@dataclass(frozen=True)
class Layer:
    """A layer.

    Attributes:
        operations: floating point operations of a sample, forward.
        parameters: how many.
        values: that it computes for a sample.
        output: values that it hands on for a sample, after pooling.
        kind: "conv" or "dense".
        width: of the images that it sees, or values.
    """

    operations: float
    parameters: int
    values: int
    output: int
    kind: str
    width: int

    @cached_property
    def threshold(self) -> int:
        """Samples with which a GPU is nearly as fast as it can be."""
        return _K40.threshold(self.kind, self.width)

    def seconds(self, batch: int) -> float:
        """Returns how long a K40 takes forward; backward takes `BACKWARD` times that."""
        samples = batch + _K40.overhead(self.kind, self.width)
        return 1e-3 * samples * _K40.milliseconds(self.operations)

    @property
    def kept(self) -> int:
        """Bytes of a sample that are kept until it goes backward."""
        pooled = self.output if self.output != self.values else 0
        return FLOAT * (_KEPT_COPIES * self.values + pooled)


@dataclass(frozen=True)
class SubModel:
    """Layers that follow each other: what a token trains."""

    layers: tuple[Layer, ...]

    def forward(self, batch: int) -> float:
        """Returns the seconds that a K40 takes."""
        return sum(one.seconds(batch) for one in self.layers)

    def backward(self, batch: int) -> float:
        """Returns the seconds that a K40 takes."""
        return BACKWARD * self.forward(batch)

    @cached_property
    def bytes(self) -> int:
        """Of its parameters."""
        return FLOAT * sum(one.parameters for one in self.layers)

    @cached_property
    def kept(self) -> int:
        """Bytes of a sample that are kept until it goes backward."""
        return sum(one.kept for one in self.layers)

    @cached_property
    def working(self) -> int:
        """Bytes of a sample for the gradients of the largest layer's input and output."""
        return 2 * FLOAT * max(one.values for one in self.layers)

    @cached_property
    def output(self) -> int:
        """Bytes of a sample that it hands on."""
        return FLOAT * self.layers[-1].output

    @cached_property
    def threshold(self) -> int:
        """Samples with which all of it is nearly as fast as it can be."""
        return max(one.threshold for one in self.layers)

    @property
    def update(self) -> float:
        """Seconds of a step of SGD with momentum."""
        return _UPDATE_PASSES * self.bytes / _MEMORY_BANDWIDTH


@dataclass(frozen=True)
class Network:
    """A network in the paper's sub-models.

    Attributes:
        name: for people.
        sample: bytes of one.
        layers: in their order.
        cuts: numbers of the layers, from 1 on, after which it is cut (section IV-A).
    """

    name: str
    sample: int
    layers: tuple[Layer, ...]
    cuts: tuple[int, ...]

    @cached_property
    def sub_models(self) -> tuple[SubModel, ...]:
        """SM-1 to SM-M."""
        edges = [0, *self.cuts, len(self.layers)]
        return tuple(
            SubModel(self.layers[begin:end]) for begin, end in zip(edges, edges[1:], strict=False)
        )

    @cached_property
    def whole(self) -> SubModel:
        """All layers together."""
        return SubModel(self.layers)


def _vgg19() -> Network:
    layers, channels, size = [], 3, 224
    for filters, count in zip((64, 128, 256, 512, 512), (2, 2, 4, 4, 4), strict=True):
        for place in range(count):
            values = filters * size * size
            shrinks = 4 if place == count - 1 else 1  # it is pooled
            layers.append(_conv(channels, filters, 3, size, values // shrinks))
            channels = filters
        size //= 2
    width = channels * size * size
    for units in (4096, 4096, 1000):
        layers.append(_dense(width, units))
        width = units
    return Network("VGG-19", FLOAT * 3 * 224 * 224, tuple(layers), (8, 16))


def _conv(channels: int, filters: int, window: int, size: int, out: int) -> Layer:
    weights = window * window * channels * filters
    values = filters * size * size
    operations = 2.0 * weights * size * size
    return Layer(operations, weights + filters, values, out, "conv", size)


def _dense(width: int, units: int) -> Layer:
    return Layer(2.0 * width * units, (width + 1) * units, units, units, "dense", width)


# As in `trepak.models.googlenet`: 1×1; 1×1 before 3×3, 3×3; 1×1 before 5×5, 5×5; 1×1 after pooling.
_BLOCKS: Sequence[tuple[int, tuple[int, ...]]] = (
    (32, (64, 96, 128, 16, 32, 32)),
    (32, (128, 128, 192, 32, 96, 64)),
    (16, (192, 96, 208, 16, 48, 64)),
    (16, (160, 112, 224, 24, 64, 64)),
    (16, (128, 128, 256, 24, 64, 64)),
    (16, (112, 144, 288, 32, 64, 64)),
    (16, (256, 160, 320, 32, 128, 128)),
    (8, (256, 160, 320, 32, 128, 128)),
    (8, (384, 192, 384, 48, 128, 128)),
)


def _googlenet() -> Network:
    """As `trepak.models.googlenet` is for small images: no stride before the block 4a."""
    size = 32
    first = _conv(3, 64, 3, size, 64 * size * size)
    second = _conv(64, 192, 3, size, 192 * size * size)
    before = _conv(64, 64, 1, size, 64 * size * size)
    second = Layer(
        second.operations + before.operations,
        second.parameters + before.parameters,
        second.values + before.values,
        second.output,
        second.kind,
        second.width,
    )
    layers, channels = [first, second], 192
    for size, block in _BLOCKS:
        one = _inception(channels, block, size)
        layers.append(one)
        channels = one.output // (size * size)
    for last, places in ((3, 4), (8, 4), (10, 64)):  # max-pooling after 3b and 4e, a mean after 5b
        layers[last] = replace(layers[last], output=layers[last].output // places)
    layers.append(_dense(channels, 10))
    return Network("GoogLeNet", FLOAT * 3 * 32 * 32, tuple(layers), (4, 9))


def _inception(channels: int, block: Sequence[int], size: int) -> Layer:
    one, before3, three, before5, five, after_pool = block
    weights = channels * (one + before3 + before5 + after_pool)
    weights += 9 * before3 * three + 25 * before5 * five
    places = size * size
    out = places * (one + three + five + after_pool)
    values = places * sum(block) + channels * places  # with what is pooled inside
    return Layer(2.0 * weights * places, weights + sum(block), values, out, "conv", size)


NETWORKS = {"vgg19": _vgg19(), "googlenet": _googlenet()}
