"""How Fela trains in virtual time, and what an iteration comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trepak.scripts.bench.fela_models import NETWORKS, Network, SubModel


@dataclass(frozen=True)
class Setting:
    """How Fela trains.

    Attributes:
        network: its name in `NETWORKS`.
        total: samples of an iteration, of all workers.
        weights: w_1 to w_M (section IV-B).
        subset: so many workers may train the last sub-model (CTD).
        workers: N.
        depth_first: ADS.
        hierarchical: HF.
        recompute: others may make activations anew that one holds.
    """

    network: str
    total: int
    weights: tuple[int, ...]
    subset: int
    workers: int = 8
    depth_first: bool = True
    hierarchical: bool = True
    recompute: bool = True

    @cached_property
    def model(self) -> Network:
        """The network."""
        return NETWORKS[self.network]

    @cached_property
    def rules(self) -> dict[str, Any]:
        """What the token server takes."""
        first = self.model.sub_models[0]
        last = [] if self.subset == self.workers else list(range(self.subset))
        each, rest = divmod(self.total, self.workers)
        return {
            "batches": [each + (worker < rest) for worker in range(self.workers)],
            "threshold": first.threshold,
            "weights": list(self.weights),
            "subsets": [*[[]] * (len(self.weights) - 1), last],
            "depth_first": self.depth_first,
            "hierarchical": self.hierarchical,
            "recompute": self.recompute,
        }

    def members(self, number: int) -> range:
        """Returns who may train a sub-model, from 1 on."""
        return range(self.subset if number == len(self.weights) else self.workers)


@dataclass(frozen=True)
class Work:
    """A token's time on a worker.

    Attributes:
        worker: who.
        token: its number.
        stage: as the token server counts: forward 1 to M, backward on.
        samples: how many.
        recomputes: whether it goes forward first.
        given: when the worker had it in hand.
        begin: when all inputs were there.
        end: when it was computed.
    """

    worker: int
    token: int
    stage: int
    samples: int
    recomputes: bool
    given: float
    begin: float
    end: float


@dataclass
class Outcome:
    """What an iteration has come to.

    Attributes:
        seconds: it took.
        work: tokens in the order in which they were done.
        reduced: by sub-model, from 1 on: when its tokens were done, and when it was reduced.
        most_memory: bytes of the worker that held the most.
        sent: bytes over all links.
        counters: of the token server.
        requests: that it was asked.
    """

    seconds: float
    work: list[Work]
    reduced: dict[int, tuple[float, float]]
    most_memory: float
    sent: float
    counters: dict[str, int]
    requests: int


def stage_seconds(
    sub_models: Sequence[SubModel], stage: int, samples: int, recomputes: bool = False
) -> float:
    """Returns how long a token takes to compute.

    Args:
        sub_models: SM-1 to SM-M.
        stage: of the token: 1 to M forward, of which the last one goes backward too, and on.
        samples: of the token.
        recomputes: whether the worker goes forward before it goes backward.
    """
    last = len(sub_models)
    one = sub_models[submodel_of(stage, last) - 1]
    forward = stage <= last or recomputes
    backward = stage >= last
    return forward * one.forward(samples) + backward * one.backward(samples)


def submodel_of(stage: int, last: int) -> int:
    """Returns which sub-model, from 1 on, the tokens of a stage train."""
    return stage if stage <= last else 2 * last - stage
