"""Gradients through Horovod's collectives that a training step does not wait for."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.horovod_ext import basics
from trepak.horovod_ext.gradient_transport import GradientTransport
from trepak.horovod_ext.variables import tf_variable
from trepak.ops.loader import call, load_horovod_driver

# A window is a collective, which costs the ranks some ms, so that it must not be too small; what is
# urgent waits for up to two of them, so that a step must have many. The numbers are a compromise:
# see docs/results/bsp.md.
_WINDOWS = 32  # of a step's gradients
_LEAST_WINDOW, _MOST_WINDOW = 1 << 20, 16 << 20  # bytes
_PIECES = 2  # of a window
_URGENT = 2 << 20  # bytes

_generation = 0  # of lanes: they end with Horovod
_transports: weakref.WeakSet[Collectives] = weakref.WeakSet()  # that have lanes


@dataclass(frozen=True)
class PieceRules:
    """How gradients travel; the same on all ranks.

    Attributes:
        piece_bytes: larger gradients are cut; a multiple of 8.
        window_bytes: of the pieces that are under way together.
        urgent_bytes: of the first layers' gradients, which travel as soon as they are pushed.
    """

    piece_bytes: int
    window_bytes: int
    urgent_bytes: int

    def divided(self, divisor: float) -> PieceRules:
        """Returns those of gradients that were divided by this, for emulated networks."""
        piece = max(8, round(self.piece_bytes / divisor / 8) * 8)
        window = max(8, round(self.window_bytes / divisor))
        return PieceRules(piece, window, round(self.urgent_bytes / divisor))


def rules_of(total_bytes: int) -> PieceRules:
    """Returns how gradients of so many bytes in all travel, the same on all ranks."""
    window = min(max(total_bytes // _WINDOWS, _LEAST_WINDOW), _MOST_WINDOW)
    return PieceRules(window // _PIECES // 8 * 8, window, min(_URGENT, window // 2))


class Collectives(GradientTransport):
    """Sums gradients piece by piece with Horovod's allreduce, first layers first.

    What `overlap(model)` uses where an optimizer has no transport. Only a window of pieces is in
    Horovod at a time, which all ranks choose alike: Horovod itself sends what it has in an order of
    its own.
    """

    def __init__(self, rules: Callable[[int], PieceRules] | None = None) -> None:
        """Makes the transport.

        Args:
            rules: tells how gradients of so many bytes in all travel; see `rules_of`.
        """
        self._rules = rules or rules_of
        self._lanes: list[dict[int, int]] = []  # by key, the bytes of a variable
        self._new: dict[int, int] = {}  # of variables that have no lane yet
        self._generation = _generation

    def start(self) -> None:
        """Opens the lanes again that ended with Horovod; see `GradientTransport.start`."""
        if self._generation != _generation:
            self._generation = _generation
            for lane in self._lanes:
                self._open(lane)

    def register(self, key: int, variable: Any) -> None:
        """Remembers a variable that has no lane yet; see `GradientTransport.register`."""
        value = tf_variable(variable)
        self._new[key] = value.dtype.size * value.shape.num_elements()

    def push(self, *args: Any, **kwargs: Any) -> None:
        """Pushes one step's gradients; see `GradientTransport.push`."""
        self._open_new()
        super().push(*args, **kwargs)

    def deliver(self, key: int, variable: Any) -> Any:
        """Returns a gradient's sum; see `GradientTransport.deliver`."""
        self._open_new()
        return super().deliver(key, variable)

    def pending(self, keys: Sequence[int], variables: Sequence[Any]) -> Any:
        """Returns which gradients are to come; see `GradientTransport.pending`."""
        self._open_new()
        return super().pending(keys, variables)

    def _open_new(self) -> None:
        """Gives the variables that were registered together a lane of their own."""
        if self._new:
            self._lanes.append(self._new)
            self._open(self._new)
            self._new = {}

    def _open(self, lane: dict[int, int]) -> None:
        _live_with_horovod()
        _transports.add(self)
        load_horovod_driver()
        call(
            "start_lane",
            lane=f"trepak_lane_{next(iter(lane))}",  # how its collectives' names begin
            me=f"rank {basics.rank()}",
            keys=[*lane],
            **dataclasses.asdict(self._rules(sum(lane.values()))),
        )


@functools.cache
def _live_with_horovod() -> None:
    basics.after_init(_begin)
    basics.before_shutdown(_end)
    atexit.register(_end)


def _begin() -> None:
    for transport in _transports:
        transport.start()


def _end() -> None:
    global _generation
    _generation += 1
    call("stop_lanes")
