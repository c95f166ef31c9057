"""An iteration of Fela in virtual time: the real token server, emulated workers and links.

A worker takes a token, waits for the inputs that others have, computes, reports and asks for the
next one. Holders send when the token is given out. A sub-model's gradients are reduced as soon as
its tokens are done, beside other tokens. The iteration ends when all are, and are applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trepak.ops.loader import call
from trepak.scripts.bench.fela_clock import LATENCY, Clock, Links
from trepak.scripts.bench.fela_models import STATE_COPIES
from trepak.scripts.bench.fela_setting import (
    Outcome,
    Setting,
    Work,
    stage_seconds,
    submodel_of,
)

_SAMPLES, _LABELS, _OUTPUT, _GRADIENT = range(4)  # kinds of chunks


@dataclass
class _Worker:
    token: dict[str, Any] | None = None
    given: float = 0.0
    missing: int = 0  # inputs that are under way
    sleeps: float = 0.0  # before its first token is computed, which it holds meanwhile
    kept: float = 0.0  # bytes of activations
    most: float = 0.0


@dataclass
class Iteration:
    """One iteration; `run` it once.

    Attributes:
        setting: how.
        delays: by worker, seconds before its first request.
        holds: the delay comes after the first token is given: the sleeper holds it.
    """

    setting: Setting
    delays: Sequence[float] = ()
    holds: bool = False
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        """Prepares it."""
        setting = self.setting
        self._parts = setting.model.sub_models
        self._links = Links(self.clock, setting.workers)
        self._workers = [_Worker() for _ in range(setting.workers)]
        self._tokens: list[int] = call("fela_plan", rules=setting.rules)["tokens"]
        self._work: list[Work] = []
        self._kept: dict[int, tuple[int, float]] = {}  # by forward token: by whom, bytes
        self._trained: dict[int, float] = {}
        self._reduced: dict[int, tuple[float, float]] = {}
        self._requests = 0
        self._scheduler = 0

    def run(self) -> Outcome:
        """Returns what it has come to."""
        setting = self.setting
        delays = self.delays or [0.0] * setting.workers
        self._scheduler = call("fela_make_scheduler", rules=setting.rules)
        for worker, delay in enumerate(delays):
            if self.holds:
                self._workers[worker].sleeps, delay = delay, 0.0
            samples = setting.rules["batches"][worker]
            self._say(0.0, worker, "begin", samples)
            self._say(delay, worker, "request")
        self.clock.run()
        counters = call("fela_count_scheduler", scheduler=self._scheduler)
        call("fela_drop_scheduler", scheduler=self._scheduler)
        state = [
            sum(
                STATE_COPIES * part.bytes
                for number, part in enumerate(self._parts, 1)
                if worker in setting.members(number)
            )
            for worker in range(setting.workers)
        ]
        most = max(s + one.most for s, one in zip(state, self._workers, strict=True))
        return Outcome(
            self.clock.now,
            self._work,
            self._reduced,
            most,
            self._links.sent,
            counters,
            self._requests,
        )

    def _say(self, after: float, worker: int, what: str, number: int = 0) -> None:
        self.clock.after(after + LATENCY, partial(self._hear, worker, what, number))

    def _hear(self, worker: int, what: str, number: int) -> None:
        """The token server hears a worker, and its orders go out."""
        self._requests += 1
        orders = call(
            "fela_tell_scheduler",
            scheduler=self._scheduler,
            worker=worker,
            what=what,
            number=number,
        )
        for token in orders["assignments"]:
            self.clock.after(LATENCY, partial(self._give, token))
        for number in orders["trained"]:
            self._trained[number] = self.clock.now
            self.clock.after(LATENCY, partial(self._reduce, number))

    def _give(self, token: dict[str, Any]) -> None:
        """A worker has its token, and holders have heard whom to send what."""
        worker = token["worker"]
        mine = self._workers[worker]
        mine.token, mine.given = token, self.clock.now
        inputs: dict[int, float] = {}  # by holder, bytes
        for kind, number, holder, samples in token["inputs"]:
            if holder != worker and kind != _LABELS:
                inputs[holder] = inputs.get(holder, 0.0) + self._bytes(kind, number) * samples
        mine.missing = len(inputs)
        for holder, count in inputs.items():
            self._links.send(holder, worker, count, partial(self._arrived, worker))
        if not inputs:
            self._begin(worker)

    def _arrived(self, worker: int) -> None:
        mine = self._workers[worker]
        mine.missing -= 1
        if mine.missing == 0:
            self._begin(worker)

    def _begin(self, worker: int) -> None:
        mine = self._workers[worker]
        if mine.sleeps:
            seconds, mine.sleeps = mine.sleeps, 0.0
            self.clock.after(seconds, partial(self._begin, worker))
            return
        token = mine.token
        assert token is not None
        stage, samples = token["stage"], token["samples"]
        part = self._parts[submodel_of(stage, len(self._parts)) - 1]
        goes_back = stage >= len(self._parts)
        needed = samples * (
            (part.kept if stage <= len(self._parts) or token["recomputes"] else 0)
            + (part.working if goes_back else 0)
        )
        mine.most = max(mine.most, mine.kept + needed)
        begin = self.clock.now
        seconds = stage_seconds(self._parts, stage, samples, token["recomputes"])
        self.clock.after(seconds, partial(self._end, worker, begin))

    def _end(self, worker: int, begin: float) -> None:
        mine = self._workers[worker]
        token, mine.token = mine.token, None
        assert token is not None
        stage, number = token["stage"], token["token"]
        samples, last = token["samples"], len(self._parts)
        if stage < last:
            count = float(samples * self._parts[stage - 1].kept)
            self._kept[number] = worker, count
            mine.kept += count
        elif stage > last:
            holder, count = self._kept.pop(number - sum(self._tokens))
            self._workers[holder].kept -= count
        self._work.append(
            Work(
                worker,
                number,
                stage,
                samples,
                token["recomputes"],
                mine.given,
                begin,
                self.clock.now,
            )
        )
        self._say(0.0, worker, "report", number)

    def _reduce(self, number: int) -> None:
        part = self._parts[number - 1]
        self._links.reduce(
            self.setting.members(number),
            part.bytes,
            partial(self.clock.after, part.update, partial(self._apply, number)),
        )

    def _apply(self, number: int) -> None:
        self._reduced[number] = self._trained[number], self.clock.now
        if len(self._reduced) == len(self._parts):
            self.clock.stop()  # who still sleeps is woken

    def _bytes(self, kind: int, token: int) -> int:
        """Returns the bytes of a chunk's sample."""
        if kind == _SAMPLES:
            return self.setting.model.sample
        stage = 0
        while token >= self._tokens[stage]:
            token -= self._tokens[stage]
            stage += 1
        return self._parts[stage].output
