"""What a training step of a model will take of memory and time, found by replays alone.

The step runs with small batches, in a process that has a `tracing_dymem`; see `Traces`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trepak.ops.loader import call
from trepak.tf_plugins.memory.model_step import batch_bytes, model_step
from trepak.tf_plugins.memory.replay import AMPLE, Machine, Replayed, Traces
from trepak.tf_plugins.memory.sizes import memory_share

BETA_PART = 32  # of a pool, as Dymem's own
RESERVE_PART = 8  # of what a step needs, without which Dymem swaps (ops/runtime/dymem/fit_gate.h)
_JITTER = 0.2  # of a layer's time
_SEEDS = 16
_FIRST_SLOWER = 12  # copies to memory that the system has yet to clear, in the first step
_WAITING = 3  # batches that fit's dataset has ready
_TRACED = (2, 3)
_PATIENCE = 10.0  # seconds for a step that is timed, at most
_TIMES = 4


@dataclass(frozen=True)
class InPool:
    """A step in a given pool.

    Attributes:
        pool_bytes: of the pool.
        fits: whether it trains there.
        failed_node: whose tensor finds no room, or "".
        failed_bytes: of that tensor.
        swaps: whether tensors leave.
        seconds: of the step; None if it does not fit.
    """

    pool_bytes: int
    fits: bool
    failed_node: str
    failed_bytes: int
    swaps: bool
    seconds: float | None


@dataclass(frozen=True)
class Way:
    """A step without swaps, or with Dymem's. Sizes are bytes, of a pool that is large enough.

    Attributes:
        policy: see `Dymem`.
        peak_live_bytes: of tensors that are there at once.
        peak_occupied_bytes: of the addresses in use, holes included.
        smallest_pool_bytes: the smallest pool that a replay without any jitter finds.
        swapped_bytes: that leave in a step.
        smallest: the step in that pool.
        given: the step in the pool that was asked about, if any.
    """

    policy: str
    peak_live_bytes: int
    peak_occupied_bytes: int
    smallest_pool_bytes: int
    swapped_bytes: int
    smallest: InPool
    given: InPool | None


@dataclass(frozen=True)
class Plan:
    """What is predicted of a step.

    Attributes:
        batch: samples of the step.
        timed: seconds of steps that were run, by batch.
        step_seconds: of the step without swaps: the line through `timed`.
        waiting_bytes: of batches that the dataset of `fit` has ready; part of all sizes.
        ways: without swaps, and with Dymem's.
        pool_bytes: the pool to give Dymem: what it occupies at most, with a margin.
        recommended: the step in that pool.
        left_alone: what of the graph Dymem does not see into, or "".
    """

    batch: int
    timed: dict[int, float]
    step_seconds: float
    waiting_bytes: int
    ways: tuple[Way, Way]
    pool_bytes: int
    recommended: InPool
    left_alone: str


class Planner:
    """A model's traces, and the machine whose time they take."""

    def __init__(self, model: Any, batch: int, machine: Machine) -> None:
        """Begins with a compiled model, which it trains with a few batches of zeros.

        Raises:
            ValueError: see `model_step`; or the steps of two batches differ.
            tf.errors.OpError: a step failed.
        """
        self._model, self._batch = model, batch
        self._waiting = _WAITING * batch_bytes(model, batch)
        self._traces = Traces()
        for traced in _TRACED:
            step = model_step(model, traced)
            step()
            self._latest = self._traces.add(step, traced)
        self._graph = call("dymem_statistics")["graphs"][-1:]
        if not self._graph or not self._graph[0]["layers"]:
            raise ValueError("Dymem finds no tensors in it that grow with the batch")
        self._machine = machine
        self.timed: dict[int, float] = {}

    def time(self) -> None:
        """Times steps at two batches: the larger one half, if patience and memory allow."""
        patient = int(_TRACED[-1] * _PATIENCE / self._latest)
        large = max(2, min(self._batch // 2, patient))
        while large > _TRACED[-1] and self._needed(large) > memory_share() // 2:
            large //= 2
        batches = (max(1, large // 4), large)
        steps = {batch: model_step(self._model, batch) for batch in batches}
        for step in steps.values():
            step()
        # In turns, so that others on the machine disturb both.
        rounds = [{batch: _seconds(step) for batch, step in steps.items()} for _ in range(_TIMES)]
        self.timed = {batch: min(one[batch] for one in rounds) for batch in batches}
        computed = self._traces.replay(self._batch, "none", self._machine).computed_seconds
        factor = computed / self.step_seconds
        self._machine = replace(
            self._machine,
            operations_per_second=self._machine.operations_per_second * factor,
            bytes_per_second=self._machine.bytes_per_second * factor,
        )

    @property
    def step_seconds(self) -> float:
        """Of the step, by what was timed; no less per sample than the larger of these steps."""
        (small, few), (large, many) = sorted(self.timed.items())
        slope = max(0.0, many - few) / (large - small)
        return max(few, many + slope * (self._batch - large))

    def _needed(self, batch: int) -> int:
        return self._traces.replay(batch, "none", self._machine).peak_occupied_bytes

    def plan(self, given_pool: int | None) -> Plan:
        """Returns what replays tell.

        Args:
            given_pool: bytes of a pool to tell about, too.
        """
        ways = (self._way("none", given_pool), self._way("dymem", given_pool))
        pool = self._with_margin()
        return Plan(
            self._batch,
            self.timed,
            self.step_seconds,
            self._waiting,
            ways,
            pool,
            self._in_pool("dymem", pool),
            self._graph[0]["left_alone"],
        )

    def _way(self, policy: str, given_pool: int | None) -> Way:
        ample = self._traces.replay(self._batch, policy, self._machine)
        smallest = self._traces.smallest_pool(self._batch, policy, self._machine)
        pool = smallest + self._waiting
        return Way(
            policy,
            ample.peak_live_bytes + self._waiting,
            ample.peak_occupied_bytes + self._waiting,
            pool,
            ample.swapped_bytes,
            self._in_pool(policy, pool, beta=0),
            None if given_pool is None else self._in_pool(policy, given_pool),
        )

    def _in_pool(self, policy: str, pool: int, beta: int | None = None) -> InPool:
        """Of a step in a pool; Dymem does not swap where the step fits with a reserve."""
        beta = pool // BETA_PART if beta is None else beta
        stays = self._replay("none", pool, beta, placement="gtbm")
        need = stays.peak_live_bytes + self._waiting
        if policy == "dymem" and stays.fits and need + need // RESERVE_PART <= pool - beta:
            found, swaps = stays, False
        else:
            found, swaps = self._replay(policy, pool, beta), policy != "none"
        seconds = found.seconds if found.fits else None
        return InPool(pool, found.fits, found.failed_node, found.failed_bytes, swaps, seconds)

    def _replay(self, policy: str, pool: int, beta: int, **options: Any) -> Replayed:
        room = max(1, pool - self._waiting)
        options = {"machine": self._machine, "pool": room, "beta": min(beta, room), **options}
        return self._traces.replay(self._batch, policy, **options)

    def _with_margin(self) -> int:
        """Returns what Dymem occupies at most, where memory is never short, and beta.

        So a pool finds its size, too (section 4.1.3.3). Layers take other times in each replay, so
        that copies end sooner or later, and gaps lie elsewhere; the smallest pool has no room for
        other gaps than its own. The first step's copies are slow, and have it wait.
        """
        jitters = [{"jitter": _JITTER, "seed": seed} for seed in range(_SEEDS)]
        steps = [self._replay("dymem", AMPLE, 0, **jitter) for jitter in jitters]
        pool = _and_beta(max(step.extent_bytes for step in steps) + self._waiting)
        slow = self._machine.link_bytes_per_second / _FIRST_SLOWER
        machines = (self._machine, replace(self._machine, link_bytes_per_second=slow))
        while not all(
            self._replay("dymem", pool, pool // BETA_PART, machine=machine, **jitter).fits
            for machine in machines
            for jitter in jitters
        ):
            pool = _and_beta(pool)
        return pool


def _and_beta(size: int) -> int:
    return size + size // (BETA_PART - 1)


def _seconds(step: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin
