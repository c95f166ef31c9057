"""A worker's place in Fela's token-based scheduling: tokens, and the chunks they read and make.

The token server is on rank 0; chunks go from worker to worker over flows.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trepak.horovod_ext import sessions
from trepak.ops.loader import call, load

_SYSTEM = "fela"


class ChunkKind(enum.IntEnum):
    """What a chunk is, as native code numbers it."""

    SAMPLES = 0
    LABELS = 1
    OUTPUT = 2
    GRADIENT = 3


class Input(NamedTuple):
    """A chunk that a token reads.

    Attributes:
        kind: a `ChunkKind`.
        token: which token's.
        holder: the rank that has it.
        samples: in it.
    """

    kind: int
    token: int
    holder: int
    samples: int


@dataclass(frozen=True)
class Token:
    """What a worker is to train.

    Attributes:
        number: of the token.
        stage: 1 to M: forward through that sub-model, the last one backward at once; M + 1 to
            2M - 1: backward through sub-models M - 1 to 1.
        samples: in its batch.
        recomputes: whether it goes backward through activations that another worker has, and that
            are to be made anew.
        inputs: the chunks that it reads.
        sample_ids: int64, (samples,): each sample's number in the batch of all ranks.
        iteration: its age.
    """

    number: int
    stage: int
    samples: int
    recomputes: bool
    inputs: tuple[Input, ...]
    sample_ids: Any
    iteration: int = 0

    def of(self, kind: ChunkKind) -> list[Input]:
        """Returns the chunks of one kind that it reads."""
        return [one for one in self.inputs if one.kind == kind]


class Trained(NamedTuple):
    """All tokens of a sub-model are done: its gradients can be reduced.

    Attributes:
        sub_model: its number, from 1 on.
        iteration: whose tokens.
    """

    sub_model: int
    iteration: int = 0


class Over(NamedTuple):
    """An iteration is over.

    Attributes:
        samples: of all ranks.
        loss: the sum over them.
        iteration: which one.
    """

    samples: int
    loss: float
    iteration: int = 0


class Ahead(NamedTuple):
    """There is no token now, and this worker may begin its next iteration (SSP)."""


Event = Token | Trained | Over | Ahead  # what the token server says


class Part(NamedTuple):
    """A T-1 token of this rank's samples.

    Attributes:
        token: its number.
        first: its first sample's number in the batch of all ranks.
        samples: in it.
    """

    token: int
    first: int
    samples: int


class FelaWorker:
    """This rank, as the token server knows it. Its session opens when it is made.

    It ends with `close`, or when nobody has this any more.
    """

    def __init__(self, rules: Mapping[str, Any], transport: str = "auto") -> None:
        """Opens the session; a collective call.

        Args:
            rules: see FelaRules in ops/runtime/fela/fela_plan.h; the same on all ranks.
            transport: what carries chunks: flows, ucx or auto.

        Raises:
            tf.errors.InvalidArgumentError: the rules can't be followed; says why.
        """
        self._session = sessions.open_session(_SYSTEM, {"rules": rules, "transport": transport})
        sessions.close_with(self, self._session)

    @property
    def is_open(self) -> bool:
        """Whether it can still be asked."""
        return sessions.is_open(self._session)

    def prepare(self, samples: int) -> tuple[int, list[Part]]:
        """Goes to the next iteration; chunks of those that are over are dropped.

        Args:
            samples: of this rank.

        Returns:
            Its number, and the T-1 tokens whose samples and labels this rank puts.
        """
        told = call("fela_prepare", session=self._session, samples=samples)
        return told["iteration"], [Part(*one) for one in told["parts"]]

    def begin(self, samples: int) -> None:
        """Says that this rank's samples are put: others may train them from now on."""
        call("fela_begin", session=self._session, samples=samples)

    def request(self) -> None:
        """Asks for the first token of the iteration."""
        call("fela_request", session=self._session)

    def finish(self) -> None:
        """Asks for a token of those that are left: this rank waits until its iteration is over."""
        call("fela_finish", session=self._session)

    def report(self, token: int, loss: float = 0.0) -> None:
        """Says that a token is trained and what it has made is put, and asks for the next one.

        Args:
            token: its number.
            loss: the sum over its samples, of a token of the last sub-model.
        """
        call("fela_report", session=self._session, token=token, loss=loss)

    def next(self) -> Event:
        """Waits for what the token server says next.

        Raises:
            HorovodInternalError: a rank has died, left, or kept the others waiting too long.
        """
        told = call("fela_next", session=self._session)
        if told["token"] is not None:
            return _token(told["token"])
        if told["trained"] is not None:
            return Trained(told["trained"], told["iteration"])
        if told["over"] is not None:
            return Over(**told["over"], iteration=told["iteration"])
        return Ahead()

    def give_up(self, why: str) -> None:
        """Says that this rank can't train on: the others' calls fail, and say why."""
        call("fela_give_up", session=self._session, why=why)

    def check(self) -> None:
        """Returns if all ranks train on, as far as this one has heard.

        Raises:
            HorovodInternalError: one has failed; says why.
        """
        call("fela_check", session=self._session)

    def put(
        self, iteration: int, kind: ChunkKind, rows: Mapping[int, int], tensors: Sequence[Any]
    ) -> None:
        """Keeps chunks that this worker has made, for whoever needs them.

        Args:
            iteration: one that is not over.
            kind: of the chunks.
            rows: by token, how many rows of each tensor are its chunk, in their order.
            tensors: whose first dimension is the batch; they must not change any more.
        """
        names = [(iteration, token, kind) for token in rows]
        load().trepak_fela_put(
            np.array(names, np.int64).reshape(-1, 3),
            np.array(list(rows.values()), np.int64),
            list(tensors),
            session=self._session,
        )

    def take(
        self, iteration: int, wanted: Sequence[Input], specs: Sequence[tf.TensorSpec]
    ) -> list[Any]:
        """Waits for chunks of one kind; returns their tensors, each with the rows of all of them.

        Args:
            iteration: one that is not over.
            wanted: the chunks, in the order of their rows.
            specs: of each tensor: its dtype, and its shape without the batch.

        Raises:
            HorovodInternalError: a chunk did not come; names its holder.
        """
        names = [(iteration, one.token, one.kind, one.holder) for one in wanted]
        taken = load().trepak_fela_take(
            np.array(names, np.int64),
            dtypes=[spec.dtype for spec in specs],
            row_shapes=[spec.shape for spec in specs],
            session=self._session,
        )
        return list(taken)

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted; on rank 0, also what the token server has.

        iterations, tokens: that this worker has begun, and been given.
        fetching_seconds: seconds from asking for chunks to having them, over all.
        chunks_sent, bytes_sent, chunks_received, bytes_received, chunks_local: from and to others,
            and taken where they were made.
        most_bytes_held: of chunks, at most.
        served_iterations, served_tokens: of all workers.
        served_helped, served_recomputed: tokens taken from another worker's sub-bucket, and with
            activations made anew.
        served_inputs, served_remote: chunks that tokens read, and that another worker had.
        served_waits: requests for which there was no token at once.
        served_ahead: of them, answered by the leave to begin the next iteration.
        served_most_ahead: iterations, at most, that a worker has begun before the oldest was over.
        served_duplicates: reports and requests that came again.
        serving_seconds: seconds in which the token server was at work.
        """
        return sessions.statistics(_SYSTEM, self._session)

    def close(self) -> None:
        """Ends the session; call it on all ranks, when none trains any more."""
        sessions.close_session(self._session)


def _token(told: Mapping[str, Any]) -> Token:
    ranges = [np.arange(first, first + count) for first, count in told["ranges"]]
    return Token(
        told["token"],
        told["stage"],
        told["samples"],
        told["recomputes"],
        tuple(Input(*one) for one in told["inputs"]),
        tf.constant(np.concatenate(ranges), tf.int64),
        told["iteration"],
    )
