"""What a training step of Sven's three models takes, from bytes and FLOPs: nothing is measured.

A rank of the lab stands for one of the thesis' GPUs (Table 6.2: hosts of 8 A100 and four InfiniBand
NICs of 200 Gbit/s), and everything is slowed alike, its computing as well as its link.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from trepak.models.clicks import ClickStream, criteo_vocabularies

MODELS = ("deepfm", "wide_deep", "dcn")

# Per GPU. NVIDIA's data sheet of the A100 40 GB: FLOP/s in float32, bytes/s of its memory. A GPU
# reads host memory over PCIe 4.0 x16. Hosts share their NICs among 8 GPUs.
_FLOPS, _FAST_BANDWIDTH, _SLOW_BANDWIDTH = 19.5e12, 1555e9, 31.5e9
_NIC = 4 * 200e9 / 8 / 8  # bytes/s
_GPUS = 8  # of a host; NVLink sums their dense gradients, so that each NIC carries its share of one
# α: device memory to all memory, the host's 2 TB shared by its GPUs (section 6.3.4).
ALPHA = 40e9 / (40e9 + 2e12 / _GPUS)

_FLOAT, _ID = 4, 8  # bytes
BATCH, _DIMENSION, _NUMERICAL = 1024, 16, 13  # the thesis' batch; 0.5 B parameters of 33 M ids
# What passes memory: a look-up reads a row and writes it to be sent. An update of Adam reads the
# gradient, and reads and writes weights and two moments; the dense optimizer is the same.
_LOOK_UP_PASSES, _UPDATE_PASSES = 2, 7
_SCALE = 1.0  # of Criteo's vocabularies
_COUNTED = 8  # batches that ranks take of samples in turn


@dataclass(frozen=True)
class Shape:
    """A model as the arithmetic sees it.

    Attributes:
        widths: of the matrices' inputs and outputs, one pair for each dense layer.
        columns: floats that are looked up for an id.
    """

    widths: tuple[tuple[int, int], ...]
    columns: int

    @property
    def parameters(self) -> int:
        """Of the dense part."""
        return sum(inputs * outputs + outputs for inputs, outputs in self.widths)


def shape(model: str) -> Shape:
    """Returns the shape that a model of `trepak.models` has by default, of 26 features."""
    features = len(criteo_vocabularies())
    if model == "deepfm":  # numerical features have vectors, too
        return Shape(_chain((features + _NUMERICAL) * _DIMENSION, 400, 400, 400, 1), _DIMENSION + 1)
    inputs = features * _DIMENSION + _NUMERICAL
    if model == "wide_deep":
        return Shape(_chain(inputs, 1024, 512, 256, 1), _DIMENSION + 1)
    deep = _chain(inputs, 1024, 1024)
    return Shape((*deep, *((inputs, inputs),) * 6, (inputs + 1024, 1)), _DIMENSION)


def _chain(*widths: int) -> tuple[tuple[int, int], ...]:
    return tuple(zip(widths, widths[1:], strict=False))


@functools.cache
def stream() -> ClickStream:
    """Returns the clicks that all of the bench is about."""
    return ClickStream(criteo_vocabularies(_SCALE))


@dataclass(frozen=True)
class Popularity:
    """What a batch of a rank looks up, by the generator's popularity.

    Attributes:
        rows: distinct rows of a batch.
        hit_share: share of them that are among the α most popular of all rows.
    """

    rows: float
    hit_share: float


@functools.cache
def popularity(scale: float = _SCALE) -> Popularity:
    """Returns it: rows are counted in drawn batches, and hits follow from the power laws.

    A row of probability p is in a batch of B with the probability 1 - (1 - p)^B. That batches
    repeat ids of late changes how many rows they have, and hardly which.

    Args:
        scale: of Criteo's vocabularies.
    """
    clicks = ClickStream(criteo_vocabularies(scale))
    drawn = clicks.samples(np.arange(_COUNTED * BATCH)).ids.reshape(-1, BATCH, _COUNTED)
    rows = sum(len(np.unique(ids)) for feature in drawn for ids in feature.T) / _COUNTED
    by_row = np.concatenate(
        [clicks.popularity(name).probabilities() for name in clicks.vocabularies]
    )
    found = -np.expm1(BATCH * np.log1p(-np.minimum(by_row, 1 - 1e-12)))
    hottest = np.sort(found)[::-1][: round(ALPHA * len(found))]
    return Popularity(rows, float(hottest.sum() / found.sum()))


@dataclass(frozen=True)
class Step:
    """Stage times of a step on one rank, in seconds, and what they come to.

    Attributes:
        ids, rows, gradients: of the three alltoalls.
        allreduce: of the dense gradients.
        look_up, update: of the sparse part, SFP and SBP.
        forward, backward, optimizer: of the dense part, FP, BP and opt.
    """

    ids: float
    rows: float
    gradients: float
    allreduce: float
    look_up: float
    update: float
    forward: float
    backward: float
    optimizer: float

    @property
    def sequential(self) -> float:
        """Equation 6.1."""
        return self.ids + self.without_ids

    @property
    def without_ids(self) -> float:
        """Equation 6.1 with one stage: reading processes have sent the ids."""
        return self.rows + self.gradients + self.allreduce + self.alone

    @property
    def alone(self) -> float:
        """What one rank alone takes: all that it computes."""
        dense = self.forward + self.backward + self.optimizer
        return self.look_up + self.update + dense

    @property
    def pipelined(self) -> float:
        """Equation 6.2, with the alltoalls where the text has them.

        The gradients of the batch before travel beside SFP and FP, the rows of the next one beside
        BP, and the dense gradients beside SBP.
        """
        return (
            max(self.look_up + self.forward, self.gradients)
            + max(self.backward, self.rows)
            + max(self.allreduce, self.update)
            + self.optimizer
        )

    def slowed(self, times: float) -> Step:
        """Returns the step of a cluster that is so many times slower."""
        return Step(**{name: times * seconds for name, seconds in vars(self).items()})


def step(model: str, ranks: int, wanted: Popularity, hit_share: float | None = None) -> Step:
    """Returns the stage times of a step.

    Args:
        model: of MODELS.
        ranks: that rows are spread over, evenly.
        wanted: what each rank looks up.
        hit_share: of look-ups and updates in device memory; None: as `wanted` has it.
    """
    of, hits = shape(model), wanted.hit_share if hit_share is None else hit_share
    away = wanted.rows * (ranks - 1) / ranks
    row_bytes = wanted.rows * of.columns * _FLOAT
    moved = hits / _FAST_BANDWIDTH + (1 - hits) / _SLOW_BANDWIDTH  # s for a byte
    dense_flops = 2 * BATCH * sum(inputs * outputs for inputs, outputs in of.widths)
    return Step(
        ids=away * _ID / _NIC,
        rows=away * of.columns * _FLOAT / _NIC,
        gradients=away * of.columns * _FLOAT / _NIC,
        allreduce=2 * (ranks - 1) / ranks * allreduced_bytes(model) / _NIC,
        look_up=_LOOK_UP_PASSES * row_bytes * moved,
        update=_UPDATE_PASSES * row_bytes * moved,
        forward=dense_flops / _FLOPS,
        backward=2 * dense_flops / _FLOPS,
        optimizer=_UPDATE_PASSES * of.parameters * _FLOAT / _FAST_BANDWIDTH,
    )


def allreduced_bytes(model: str) -> int:
    """Returns the bytes of dense gradients that one NIC carries: an eighth of them."""
    return shape(model).parameters * _FLOAT // _GPUS


def link_rate(times: float) -> int:
    """Returns bits per second of a link, in a lab that is so many times slower."""
    return round(8 * _NIC / times)
