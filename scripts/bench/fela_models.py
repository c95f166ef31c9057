"""Fela's two benchmarks as their layers, and how long a K40 takes for them (Figure 1).

A layer's time is `(batch + THRESHOLD_OVERHEAD * threshold) * seconds a sample`: a fixed part, in
which kernels start and weights are read, and a part for each sample. So throughput grows evenly
at first, bends, and has 95% of its maximum at the threshold batch size, which is where Figure 1's
curves are level. Below it costs less than with a straight line up to the threshold: the law favours
small batches, and so the baselines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from trepak.models import profiles

FLOAT = 4  # bytes
SATURATED = 0.95  # of the greatest throughput, at the threshold
THRESHOLD_OVERHEAD = 1 / SATURATED - 1  # of the threshold: the fixed part, in samples
BACKWARD = 2.0  # a product for the gradient of the input, and one for that of the weights

# Bytes of a K40, less those of the CUDA context and of cuDNN's workspaces.
MEMORY = 12e9 - 1e9
MOST_OF_A_MODEL = 32  # samples of a whole model that one has room for (footnote 3)
_MEMORY_BANDWIDTH = 288e9  # bytes a second of a K40
_UPDATE_PASSES = 5  # SGD reads gradient, momentum and weight, and writes the latter two
STATE_COPIES = 3  # weights, gradients, momenta
# Of the values that a layer computes, with and without its activation function: both are kept for
# the way back. So VGG-19 has room for 32 samples and not for 64, as footnote 3 found.
_KEPT_COPIES = 2

# Threshold batch sizes of VGG-19's convolutions by the width of their images. Section II-B and
# footnote 12 have 224, 112 and 14; by section IV-A 56 is in the former ones' bin, 28 in the last's.
VGG_THRESHOLDS = {224: 16, 112: 16, 56: 16, 28: 64, 14: 64}
FULLY_CONNECTED = 2048


@dataclass(frozen=True)
class Layer:
    """A layer.

    Attributes:
        operations: floating point operations of a sample, forward.
        parameters: how many.
        values: that it computes for a sample.
        output: values that it hands on for a sample, after pooling.
        threshold: samples with which a GPU is nearly as fast as it can be.
    """

    operations: float
    parameters: int
    values: int
    output: int
    threshold: int

    def seconds(self, batch: int) -> float:
        """Returns how long a K40 takes forward; backward takes `BACKWARD` times that."""
        samples = batch + THRESHOLD_OVERHEAD * self.threshold
        return 1e-3 * samples * _K40.milliseconds(self.operations)

    @property
    def kept(self) -> int:
        """Bytes of a sample that are kept until it goes backward."""
        pooled = self.output if self.output != self.values else 0
        return FLOAT * (_KEPT_COPIES * self.values + pooled)


_K40 = profiles.load("k40")


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
            layers.append(
                _conv(channels, filters, 3, size, VGG_THRESHOLDS[size], values // shrinks)
            )
            channels = filters
        size //= 2
    width = channels * size * size
    for units in (4096, 4096, 1000):
        layers.append(_dense(width, units))
        width = units
    return Network("VGG-19", FLOAT * 3 * 224 * 224, tuple(layers), (8, 16))


def _conv(channels: int, filters: int, window: int, size: int, threshold: int, out: int) -> Layer:
    weights = window * window * channels * filters
    values = filters * size * size
    return Layer(2.0 * weights * size * size, weights + filters, values, out, threshold)


def _dense(width: int, units: int) -> Layer:
    return Layer(2.0 * width * units, (width + 1) * units, units, units, FULLY_CONNECTED)


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
# Values that a layer computes for a sample, and its threshold, from VGG-19. Between two of them it
# is a power of the values: the paper's text has no thresholds of GoogLeNet.
_ANCHORS = ((4096, 2048.0), (512 * 14 * 14, 64.0), (512 * 28 * 28, 64.0), (256 * 56 * 56, 16.0))


def threshold_of(values: int) -> int:
    """Returns the threshold batch size of a convolution by the values that it computes."""
    for (few, high), (many, low) in zip(_ANCHORS, _ANCHORS[1:], strict=False):
        if values <= many:
            share = math.log(max(values, few) / few) / math.log(many / few)
            return round(high * (low / high) ** share)
    return round(_ANCHORS[-1][1])


def _googlenet() -> Network:
    """As usual at 32 × 32: one convolution before the blocks, which see 32², 16² and 8² places."""
    channels, size = 192, 32
    values = channels * size * size
    layers = [_conv(3, channels, 3, size, threshold_of(values), values)]
    for size, block in _BLOCKS:
        if size != 32 and len(layers) == 3:
            layers.append(Layer(0.0, 0, 0, channels * size * size, 1))  # max-pooling: layer 4
        one = _inception(channels, block, size)
        layers.append(one)
        channels = one.output // (size * size)
    for last, places in ((8, 4), (10, 64)):  # max-pooling after 4e, the mean after 5b
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
    return Layer(2.0 * weights * places, weights + sum(block), values, out, threshold_of(out))


NETWORKS = {"vgg19": _vgg19(), "googlenet": _googlenet()}
