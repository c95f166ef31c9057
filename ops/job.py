"""What native engines need to know of the job that they run in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """A process's place in its job; but for `rank` and `host`, the same on all ranks.

    Attributes:
        rank: this process's.
        size: number of ranks.
        host: an address of this machine that the other ranks can reach.
        secret: 32 bytes that only this job knows.
        deadline_seconds: of every wait.
        encrypt: what its flows carry is secret, too.
    """

    rank: int
    size: int
    host: str
    secret: bytes = field(repr=False)
    deadline_seconds: float
    encrypt: bool = False

    def arguments(self) -> dict[str, Any]:
        """Returns what all ops that start an engine take of it."""
        import tensorflow as tf

        return {
            "secret": tf.constant(self.secret),
            "rank": self.rank,
            "size": self.size,
            "host": self.host,
            "deadline_milliseconds": round(1000 * self.deadline_seconds),
            "encrypt": self.encrypt,
        }
