"""Lanes: an optimizer's gradients through Horovod's collectives, in a step's background."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from trepak.ops.loader import call, load_horovod_driver

__all__ = ["PieceRules", "start_lane", "stop_lanes"]


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


def start_lane(
    name: str,
    me: str,
    keys: Sequence[int],
    rules: PieceRules,
) -> None:
    """Makes variables' gradients travel through Horovod's collectives.

    Args:
        name: its collectives' names begin with it; no other lane's do.
        me: how errors name this rank.
        keys: what `add_variable` was given, the first layers' first; the same on all ranks.
        rules: how they travel.

    Raises:
        ImportError: the library that drives Horovod has not been built, or not for this Horovod.
    """
    load_horovod_driver()
    call("start_lane", lane=name, me=me, keys=list(keys), **dataclasses.asdict(rules))


def stop_lanes() -> None:
    """Ends all lanes of this process; what waits fails."""
    call("stop_lanes")
