"""Runs a traced training step again on a clock of its own: other batches, pools and policies.

A step is traced in a process whose `Dymem` was made by `tracing_dymem`: it runs in Dymem's order,
nothing leaves memory, and each allocation is written down. Sizes are lines in the batch, so that
two traces tell those of any other.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trepak.ops.loader import call
from trepak.tf_plugins.memory.dymem import Dymem

PLACEMENTS = {"none": "best_fit", "vdnn": "best_fit", "superneurons": "best_fit", "dymem": "gtbm"}
AMPLE = 1 << 44  # bytes: no step needs as many
_NARROW = 256  # a smallest pool is sought to this part of itself
_STEP, _FAILURES = 64, 24  # then by steps of such a part, until so many have failed


@dataclass(frozen=True)
class Machine:
    """What a replay's clock runs by.

    Attributes:
        operations_per_second: of floating-point numbers.
        bytes_per_second: of memory; a node takes the longer of both (a roofline).
        link_bytes_per_second: in each direction, to where swapped tensors lie.
    """

    operations_per_second: float
    bytes_per_second: float
    link_bytes_per_second: float


@dataclass(frozen=True)
class Pass:
    """A forward or a backward pass, in seconds.

    Attributes:
        seconds: from its begin to its end.
        computed_seconds: the sum of all nodes' times.
        copied_seconds: the sum of all copies' times.
        bound_seconds: no schedule of the same order is faster, whatever memory it has.
    """

    seconds: float
    computed_seconds: float
    copied_seconds: float
    bound_seconds: float


@dataclass(frozen=True)
class Replayed:
    """What a replay found; sizes in bytes.

    Attributes:
        fits: whether every tensor found room; if not, the step ended at `failed_node`.
        failed_node: whose tensor found no room.
        failed_bytes: of it.
        peak_live_bytes: of tensors that were there at once.
        peak_occupied_bytes: of the addresses in use, holes included.
        extent_bytes: a pool of this size would do, too.
        shortages: how often beta was needed.
        waits: how often an allocation waited for a copy to end.
        evictions: how often a tensor that came back left again, unread.
        swapped_bytes: that left.
        fragmentation: equation 4.1 for each request, on average.
        forward: the forward pass.
        backward: the backward pass.
        curve: of each node in its order, the highest live and occupied bytes.
    """

    fits: bool
    failed_node: str
    failed_bytes: int
    peak_live_bytes: int
    peak_occupied_bytes: int
    extent_bytes: int
    shortages: int
    waits: int
    evictions: int
    swapped_bytes: int
    fragmentation: float
    forward: Pass
    backward: Pass
    curve: list[list[int]]

    @property
    def seconds(self) -> float:
        """Of the step."""
        return self.forward.seconds + self.backward.seconds

    @property
    def computed_seconds(self) -> float:
        """Of the step, if it never waited."""
        return self.forward.computed_seconds + self.backward.computed_seconds

    @property
    def copied_seconds(self) -> float:
        """Of all copies, one after the other."""
        return self.forward.copied_seconds + self.backward.copied_seconds

    @property
    def bound_seconds(self) -> float:
        """No schedule of the same order is faster."""
        return self.forward.bound_seconds + self.backward.bound_seconds


def tracing_dymem(pool: int | str = "256GiB") -> Dymem:
    """Makes this process's Dymem one that traces; like it, before TensorFlow takes memory.

    TensorFlow's executor has one thread then, so that every trace has the same order.
    """
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    return Dymem(pool, 1, policy="dymem", _traces=True)


class Traces:
    """Steps that were traced at two batches, and what they tell of others."""

    def __init__(self) -> None:
        """Begins without any."""
        self.batches: list[int] = []

    def add(self, step: Callable[[], Any], batch: int) -> float:
        """Traces a step that ran before, so that all its variables exist. Returns its seconds."""
        call("dymem_begin_trace")
        begin = time.perf_counter()
        step()
        seconds = time.perf_counter() - begin
        call("dymem_end_trace", batch=batch)
        self.batches = sorted({*self.batches, batch})
        return seconds

    def replay(
        self,
        batch: int,
        policy: str,
        machine: Machine,
        *,
        pool: int = AMPLE,
        beta: int = 0,
        placement: str | None = None,
        overlaps: bool = True,
        jitter: float = 0.0,
        seed: int = 0,
    ) -> Replayed:
        """Runs the step with another batch, in another pool.

        Args:
            batch: samples of the step.
            policy: see `Dymem`.
            machine: its clock.
            pool: bytes, beta included.
            beta: bytes that are kept back until the rest is not enough.
            placement: see `Dymem`.
            overlaps: whether copies run beside the computation.
            jitter: a node takes its time times 1 ± up to this part.
            seed: of the jitter.
        """
        told = call(
            "dymem_replay",
            batch=batch,
            small=self.batches[0],
            large=self.batches[1],
            policy=policy,
            placement=placement or PLACEMENTS[policy],
            pool=pool,
            beta=beta,
            overlaps=overlaps,
            jitter=jitter,
            seed=seed,
            **dataclasses.asdict(machine),
        )
        forward, backward = Pass(**told.pop("forward")), Pass(**told.pop("backward"))
        return Replayed(forward=forward, backward=backward, **told)

    def smallest_pool(self, batch: int, policy: str, machine: Machine, **options: Any) -> int:
        """Returns the bytes of the smallest pool in which the step runs, waits included.

        A pool may fail that is larger than one that does, since a step places its tensors otherwise
        in it. So a search by halves is followed by one in small steps, until many have failed.
        """

        def fits(pool: int) -> bool:
            return self.replay(batch, policy, machine, pool=pool, **options).fits

        high = self.replay(batch, policy, machine, **options).extent_bytes
        while not fits(high):
            high += high // 8
        low = 0
        while high - low > high // _NARROW:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        pool, failed = high, 0
        while failed < _FAILURES:
            pool -= pool // _STEP
            high, failed = (pool, 0) if fits(pool) else (high, failed + 1)
        return high

    def largest_batch(self, pool: int, policy: str, machine: Machine, **options: Any) -> int:
        """Returns the largest batch that trains in a pool; 0 if none does."""
        low, high = 0, 1
        while self.replay(high, policy, machine, pool=pool, **options).fits:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.replay(middle, policy, machine, pool=pool, **options).fits
            low, high = (middle, high) if fits else (low, middle)
        return low
