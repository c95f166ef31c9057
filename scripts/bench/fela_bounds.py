"""What no schedule of Fela's tokens is faster than.

The largest of four: work at the token batch sizes that were used, over all workers; the chain of
tokens that need each other; whole waves of the tokens of a stage, on workers as they wake; and
gradients' bytes on a link, after the tokens that must come before them. Whoever recomputes, and all
inputs that others hold, are left out: another schedule may do without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trepak.scripts.bench.fela_clock import LATENCY, RATE, ring_bytes
from trepak.scripts.bench.fela_setting import Setting, Work, stage_seconds, submodel_of

_HOP = 2 * LATENCY  # of a report and the next token, and of a request and the first one


class Bounds(NamedTuple):
    """Seconds of an iteration, at least.

    Attributes:
        work: of all tokens, over all workers.
        chain: of one token of each stage, and of what comes behind the last one.
        waves: of the tokens of the stage that is worst, one after the other on each worker.
        links: of gradients, after the work that comes before them.
    """

    work: float
    chain: float
    waves: float
    links: float

    @property
    def largest(self) -> float:
        """The bound."""
        return max(self)

    @property
    def binding(self) -> str:
        """Its name."""
        return max(zip(self, self._fields, strict=True))[1]


def bounds(
    setting: Setting, work: Sequence[Work], delays: Sequence[float] = (), holds: bool = False
) -> Bounds:
    """Returns the bounds of an iteration.

    Args:
        setting: how it is trained.
        work: which tokens it had; who trained them, and when, does not matter.
        delays: by worker, seconds before its first request.
        holds: the delay comes after the first token is given, a T-1 token: what comes behind it
            waits for the sleeper.
    """
    return _Case.of(setting, work, delays).bounds(holds)


@dataclass(frozen=True)
class _Case:
    setting: Setting
    seconds: dict[int, list[float]]  # by stage, of its tokens
    starts: tuple[float, ...]  # by worker, when it may have its first token

    @classmethod
    def of(cls, setting: Setting, work: Sequence[Work], delays: Sequence[float]) -> _Case:
        parts = setting.model.sub_models
        seconds: dict[int, list[float]] = {}
        for one in work:
            seconds.setdefault(one.stage, []).append(stage_seconds(parts, one.stage, one.samples))
        starts = [delay + _HOP for delay in delays or [0.0] * setting.workers]
        return cls(setting, seconds, tuple(starts))

    def bounds(self, holds: bool) -> Bounds:
        stages = range(1, max(self.seconds) + 1)
        everything = self._busy(stages)
        heads = {1: min(self.starts)}
        for stage in stages[1:]:
            heads[stage] = heads[stage - 1] + min(self.seconds[stage - 1]) + _HOP
        tails = {stages[-1] + 1: 0.0}
        for stage in reversed(stages):
            after = _HOP + min(self.seconds.get(stage + 1, [0.0])) + tails[stage + 1]
            tails[stage] = max(self._reduced_after(stage), after)
        first = max(self.starts) if holds else min(self.starts)
        return Bounds(
            everything,
            first + min(self.seconds[1]) + tails[1],
            max(self._waves(stage, heads[stage]) + tails[stage] for stage in stages),
            max(
                self._busy(range(1, stage + 1)) + self._reduced_after(stage)
                for stage in range(len(self.setting.weights), stages[-1] + 1)
            ),
        )

    def _reduced_after(self, stage: int) -> float:
        """Of gradients that can't be reduced before a stage's last token is done."""
        parts = self.setting.model.sub_models
        last = submodel_of(max(stage, len(parts)), len(parts))
        links = 0.0
        for number in range(1, last + 1):
            members = len(self.setting.members(number))
            links += ring_bytes(parts[number - 1].bytes, members) / RATE
        return _HOP + links + min(part.update for part in parts[:last])

    def _busy(self, stages: range) -> float:
        """Of all tokens of these stages, cut as finely as one likes, as workers wake."""
        tokens = sum(len(self.seconds[stage]) for stage in stages)
        work = sum(sum(self.seconds[stage]) for stage in stages)
        work += _HOP * max(0, tokens - len(self.starts))
        # The workers that are awake by then share it.
        starts = sorted(self.starts)
        for awake in range(1, len(starts) + 1):
            end = (work + sum(starts[:awake])) / awake
            if awake == len(starts) or end <= starts[awake]:
                return end
        raise AssertionError("no worker is awake")

    def _waves(self, stage: int, head: float) -> float:
        """Of a stage's tokens, each as long as the shortest of them."""
        number = submodel_of(stage, len(self.setting.weights))
        tokens = self.seconds[stage]
        each = min(tokens) + _HOP
        ends = sorted(
            max(head, self.starts[worker]) + (k + 1) * each - _HOP
            for worker in self.setting.members(number)
            for k in range(len(tokens))
        )
        return ends[len(tokens) - 1]
