"""Moves chunks between ranks, between two iterations (Chicle, sections 3 and 4.4).

A chunk's block of memory is what travels: over UCX where ranks share a host, so that nothing but
the transfer copies it, else over flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from trepak.horovod_ext import sessions
from trepak.ops.loader import call

_BULK = (0,)  # DSCP: nobody waits for one chunk more than for the others


class Outgoing(NamedTuple):
    """A chunk that this rank gives.

    Attributes:
        chunk: the number by which native code knows it, not its id.
        rank: that gets it; may be this one, if it has several tasks.
        task: of that rank, which gets it.
    """

    chunk: int
    rank: int
    task: int


class Expected(NamedTuple):
    """A chunk that this rank gets.

    Attributes:
        id: of the chunk.
        rank: that has it; may be this one.
        task: of this rank, which gets it.
    """

    id: int
    rank: int
    task: int


class Arrived(NamedTuple):
    """A chunk that this rank has got.

    Attributes:
        id: of the chunk.
        task: of this rank, which gets it.
        chunk: the number by which native code knows it; whoever has this drops it.
    """

    id: int
    task: int
    chunk: int


class ChunkMover:
    """Moves chunks between the ranks of a job. Its session opens with the first move.

    When a move fails nothing is lost: what this rank was to give is still its own, and what had
    arrived is in `take_arrived`. A chunk may then be at both ends, equal. The next move, on all
    ranks, opens a session anew, also where other ranks are in the job than before.
    """

    def __init__(self, transport: str = "auto") -> None:
        """Makes one that opens nothing yet.

        Args:
            transport: what carries chunks, the same on all ranks: flows; ucx, over what UCX_TLS
                names; auto: UCX between ranks of one host, flows between others.
        """
        self._transport = transport
        self._session: int | None = None
        self._arrived: list[Arrived] = []

    def move(self, outgoing: Sequence[Outgoing], expected: Sequence[Expected]) -> list[Arrived]:
        """Gives chunks and gets others; a collective call, which waits for the ranks it moves with.

        Of each chunk that is verified at its receiver, the giver hears before the call returns; it
        then drops the chunk. Until then nobody writes to chunks.

        Args:
            outgoing: what this rank gives.
            expected: what it gets: what others name as theirs to give to it, and no more.

        Returns:
            What it has got, in the order of ids.

        Raises:
            HorovodInternalError: a rank has died or left, or the ranks make different moves; the
                error names the chunk and the rank. Raised on all ranks that move with that one.
            tf.errors.InvalidArgumentError: the transport is none of these.
        """
        told = call(
            "chicle_move",
            session=self._opened(),
            outgoing=[one._asdict() for one in outgoing],
            expected=[one._asdict() for one in expected],
        )
        arrived = [Arrived(**one) for one in told["arrived"]]
        if told["failure"] is None:
            return arrived
        self._arrived += arrived
        self.close()
        raise tf.errors.UnknownError(None, None, told["failure"])

    def take_arrived(self) -> list[Arrived]:
        """Returns what had arrived of moves that failed, once: it is the caller's then."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted since the session was opened; nothing before.

        moves: that are over.
        chunks_sent, bytes_sent: chunks that went to other ranks, and bytes of their blocks.
        bytes_sent_over_ucx: of these, bytes that went over UCX; the others went over flows.
        chunks_received, bytes_received: the same of what came.
        bytes_copied: of what came, bytes that began where no chunk may: flows bring blocks of up to
            4 MiB so.
        waiting_seconds: seconds that moves took.
        """
        return {} if self._session is None else sessions.statistics("chicle", self._session)

    def close(self) -> None:
        """Ends the session; call it on all ranks, when none moves any more."""
        if self._session is not None:
            sessions.close_session(self._session)
            self._session = None

    def _opened(self) -> int:
        if self._session is None or not sessions.is_open(self._session):
            options = {"transport": self._transport}
            self._session = sessions.open_session("chicle", options, _BULK)
        return self._session
