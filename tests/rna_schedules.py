"""Schedules of RNA's ranks, and what ops/runtime/rna/rna_replay.cc makes of them."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Action:
    what: str
    rank: int
    samples: int = 1
    rate: float = 0.5
    value: float = 1.0


@dataclass(frozen=True)
class Plan:
    """A job and what its ranks do.

    Attributes:
        staleness: the bound.
        settles: nothing is under way when a rank acts, so that it is known which rounds have
            started. Otherwise ranks act while rounds start and end, and run into each other.
        catches_up: ranks read all rounds of an epoch at its end.
    """

    size: int
    choices: int
    quorum: int
    seed: int
    staleness: int
    settles: bool
    catches_up: bool
    actions: list[Action]

    def script(self) -> list[str]:
        """Returns the commands of rna_replay; at the end all ranks drain, and read all rounds."""
        lines: list[str] = []
        draining: set[int] = set()
        for action in self.actions:
            if draining and action.samples % 2 == 0:
                action = Action("drain", action.rank)  # the others follow soon
            if action.what == "settle":
                lines.append("settle")
            elif action.what.startswith(("read", "await")):
                lines.append(f"{action.what} {action.rank}")
            elif action.rank not in draining:
                lines += self._act(action, draining)
        for rank in range(self.size):
            if rank not in draining:
                lines += self._act(Action("drain", rank), draining)
        lines += [f"read_all {rank}" for rank in range(self.size)]
        elements = sum(line.startswith("write") for line in lines)
        job = [self.size, self.choices, self.quorum, self.seed, self.staleness, elements]
        return [" ".join(map(str, ["job", *job])), *lines]

    def _act(self, action: Action, draining: set[int]) -> list[str]:
        words = {
            "write": f" {action.value} {action.samples} {action.rate}",
            "spoil": f" {action.samples}",
            "drain": "",
        }
        lines = [f"{action.what} {action.rank}{words[action.what]}"]
        if self.settles:
            lines.append("settle")
        if action.what == "drain":
            draining.add(action.rank)
        if len(draining) == self.size:
            draining.clear()
            lines += ["drained", "settle"]
            if self.catches_up:
                lines += [f"read_all {rank}" for rank in range(self.size)]
        return lines


@dataclass
class Gradient:
    """What a rank wrote.

    Attributes:
        line: of the script.
        version: rounds with contributors that the rank had read.
        first: the least number of the round into which it should go; `last`: the greatest.
        taken: the round in which it is; None: in none.
    """

    line: int
    rank: int
    samples: int
    rate: float
    value: float
    finite: bool
    version: int
    first: int
    last: int = -1
    taken: int | None = None

    def could_be_in(self, number: int) -> bool:
        """Tells whether the round may have this gradient's samples."""
        if self.taken is not None:
            return number == self.taken
        return self.first <= number <= self.last


@dataclass
class Round:
    number: int
    initiator: int
    contributors: float
    samples: int
    rate: float
    weights: dict[int, float]  # by gradient, its part of the sum


@dataclass
class Outcome:
    """What happened."""

    gradients: list[Gradient] = field(default_factory=list)  # those that are finite
    spoilt: list[Gradient] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    seen: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))  # by rank
    counters: dict[int, list[int]] = field(default_factory=dict)

    def version_before(self, number: int) -> int:
        """Returns the version of the parameters that a round changes: null ones change none."""
        return sum(one.contributors > 0 for one in self.rounds[:number])

    def is_stale(self, gradient: Gradient, plan: Plan) -> bool:
        """Tells whether a gradient must be dropped, if only one round could have it."""
        rounds = self.version_before(gradient.first) - gradient.version
        return gradient.finite and rounds > plan.staleness

    def read(self, rank: int, words: list[str]) -> None:
        """Takes a round that a rank has read."""
        self.seen[rank].append(" ".join(words))
        if len(self.seen[rank]) <= len(self.rounds):
            return  # another rank has read it before
        number, initiator, contributors, samples, rate, *parts = words
        weights = {
            int(index): float.fromhex(value) for index, value in (part.split(":") for part in parts)
        }
        found = float.fromhex(contributors), int(samples), float.fromhex(rate)
        self.rounds.append(Round(int(number), int(initiator), *found, weights))
        for index in weights:
            assert self.gradients[index].taken is None, f"gradient {index} is in two rounds"
            self.gradients[index].taken = int(number)

    def settled(self, started: int) -> None:
        """Takes it that so many rounds have started, and all that was written is in its place."""
        for gradient in [*self.gradients, *self.spoilt]:
            if gradient.last < 0:
                gradient.last = started


def replay(binary: Path, plan: Plan) -> tuple[Outcome, list[tuple[int, int]]]:
    """Runs a plan.

    Returns:
        What happened, and for each "settle" its line and how many rounds had started.
    """
    script = plan.script()
    done = subprocess.run(
        [binary], input="\n".join(script) + "\n", capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    outcome, settled = Outcome(), []
    writes = [at for at, line in enumerate(script) if line.startswith(("write", "spoil"))]
    places = [number for number, line in enumerate(script) if line == "settle"]
    for line in done.stdout.splitlines():
        event, *words = line.split()
        if event == "settled":
            settled.append((places[len(settled)], int(words[0])))
            outcome.settled(int(words[0]))
            continue
        rank = int(words[0])
        if event == "read":
            outcome.read(rank, words[1:])
        elif event == "counters":
            outcome.counters[rank] = [*map(int, words[1:])]
        else:
            at = writes.pop(0)
            what, _, *given = script[at].split()
            value, samples, rate = given if what == "write" else ("nan", *given, "nan")
            gradient = Gradient(
                at,
                rank,
                int(samples),
                float(rate),
                float(value),
                finite=what == "write",
                version=outcome.version_before(len(outcome.seen[rank])),
                first=int(words[1]),
            )
            if plan.settles:
                assert gradient.first == (settled[-1][1] if settled else 0)
                gradient.last = gradient.first
            (outcome.gradients if gradient.finite else outcome.spoilt).append(gradient)
    assert not writes
    return outcome, settled
