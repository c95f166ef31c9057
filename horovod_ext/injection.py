"""Makes this rank as uneven as its environment says: `trepak lab run` sets it, or the user."""

from __future__ import annotations

import dataclasses

from trepak.horovod_ext import config
from trepak.ops.injection import parse_slow
from trepak.ops.loader import call


def is_wanted() -> bool:
    """Tells whether this rank shall be slower than others, or be killed."""
    return (
        parse_slow(config.value("TREPAK_SLOW")) > 1
        or bool(config.value("TREPAK_DELAY"))
        or bool(config.value("TREPAK_KILL"))
    )


def apply(rank: int, size: int) -> None:
    """Hands the settings to the native library, where steps and emulated computing obey them.

    Args:
        rank: this process's.
        size: number of ranks.
    """
    if not is_wanted():
        return
    kill = config.value("TREPAK_KILL")
    delays = config.parse_delays(config.value("TREPAK_DELAY"))
    call(
        "configure_injection",
        slow=parse_slow(config.value("TREPAK_SLOW")),
        delays=[dataclasses.asdict(delay) for delay in delays],
        seed=int(config.value("TREPAK_SEED")),
        rank=rank,
        size=size,
        kill_step=int(kill) if kill else -1,
    )
