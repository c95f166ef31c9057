"""What is tried: networks, total batches, stragglers, and how Fela is tuned (sections IV-B, V)."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from trepak.scripts.bench.fela_baselines import best
from trepak.scripts.bench.fela_bounds import Bounds, bounds
from trepak.scripts.bench.fela_models import MEMORY
from trepak.scripts.bench.fela_setting import Outcome, Setting
from trepak.scripts.bench.fela_virtual import Iteration

WORKERS = 8
TOTALS = (64, 128, 256, 512, 1024)
ITERATIONS = 100

# Of one straggler at a time, and of each worker with a probability; seconds (section V-C).
ROUND_ROBIN = {"vgg19": (2.0, 4.0, 6.0, 8.0, 10.0), "googlenet": (1.0, 2.0, 3.0, 4.0, 5.0)}
PROBABILITIES = (0.1, 0.2, 0.3, 0.4, 0.5)
SLEEP = {"vgg19": 6.0, "googlenet": 3.0}
_SEED = 38

_TUNING_ITERATIONS = 5

Delays = tuple[float, ...]


@dataclass(frozen=True)
class Tried:
    """One case of the tuning.

    Attributes:
        phase: 1: weights; 2: subsets; 3: weights again, with the subset that was found.
        setting: of the case.
        outcome: of an iteration.
        bounds: of it.
    """

    phase: int
    setting: Setting
    outcome: Outcome
    bounds: Bounds

    @property
    def fits(self) -> bool:
        """Whether all workers have room for what they hold."""
        return self.outcome.most_memory <= MEMORY

    @property
    def rank(self) -> tuple[bool, float]:
        """What is least of the best one."""
        return not self.fits, self.outcome.seconds


@functools.cache
def outcome(setting: Setting, delays: Delays = (), holds: bool = False) -> Outcome:
    """Returns an iteration of Fela; iterations do not depend on each other."""
    return Iteration(setting, delays, holds).run()


def weight_cases(parts: int = 3, workers: int = WORKERS) -> list[tuple[int, ...]]:
    """Returns phase 1's weights: powers of two up to N, none smaller than the one before."""
    powers = [1 << i for i in range(workers.bit_length())]
    found: list[tuple[int, ...]] = [(1,)]
    for _ in range(parts - 1):
        found = [(*one, power) for one in found for power in powers if power >= one[-1]]
    return found


def subset_cases(workers: int = WORKERS) -> list[int]:
    """Returns phase 2's sizes of the subset: N and its halves."""
    return [workers >> i for i in range(workers.bit_length())]


def tune(network: str, total: int, workers: int = WORKERS) -> list[Tried]:
    """Tunes as section IV-B does, in two phases, and then the weights once more.

    Phase 1 takes no account of CTD, so that where FC layers' gradients take longest it finds
    weights that do not suit the subset of phase 2: a third phase tries the others with that one.
    """
    tried = [
        _try(1, Setting(network, total, weights, workers, workers))
        for weights in weight_cases(workers=workers)
    ]
    chosen = best_of(tried).setting
    tried += [_try(2, replace(chosen, subset=size)) for size in subset_cases(workers)[1:]]
    chosen = best_of(tried).setting
    done = {one.setting for one in tried}
    again = [replace(chosen, weights=weights) for weights in weight_cases(workers=workers)]
    return [*tried, *(_try(3, one) for one in again if one not in done)]


def _try(phase: int, setting: Setting) -> Tried:
    found = outcome(setting)
    return Tried(phase, setting, found, bounds(setting, found.work))


def best_of(tried: list[Tried], phases: int = 3) -> Tried:
    """Returns the fastest one of these phases that there is room for."""
    return min((one for one in tried if one.phase <= phases), key=lambda one: one.rank)


def round_robin(delay: float, workers: int = WORKERS) -> Counter[Delays]:
    """Returns how often each pattern comes: in iteration i worker i sleeps."""
    patterns = [
        tuple(delay if worker == one else 0.0 for worker in range(workers))
        for one in range(workers)
    ]
    return Counter(patterns[i % workers] for i in range(ITERATIONS))


def by_chance(probability: float, delay: float, workers: int = WORKERS) -> Counter[Delays]:
    """Returns how often each pattern comes: each worker sleeps with a probability."""
    drawn = random.Random(_SEED)
    return Counter(
        tuple(delay if drawn.random() < probability else 0.0 for _ in range(workers))
        for _ in range(ITERATIONS)
    )


@dataclass(frozen=True)
class Scenario:
    """Stragglers.

    Attributes:
        kind: "round-robin" or "probability".
        value: seconds of the delay, or the probability.
        patterns: by workers' delays, how many iterations have them.
    """

    kind: str
    value: float
    patterns: Counter[Delays]

    def mean(self, seconds: Callable[[Delays], float]) -> float:
        """Returns the mean over all iterations."""
        return sum(n * seconds(one) for one, n in self.patterns.items()) / ITERATIONS


def scenarios(network: str) -> Iterator[Scenario]:
    """Yields the paper's ten of a network."""
    for delay in ROUND_ROBIN[network]:
        yield Scenario("round-robin", delay, round_robin(delay))
    for probability in PROBABILITIES:
        yield Scenario("probability", probability, by_chance(probability, SLEEP[network]))


def tune_among(tried: list[Tried], scenario: Scenario) -> Setting:
    """Returns the fastest of the cases where there are stragglers: training tunes itself there.

    As in section IV-B, five iterations of each case count: here the first five patterns. A case
    that there is no room for in any iteration is left out: helpers hold more than their share.
    """
    patterns = list(scenario.patterns)[:_TUNING_ITERATIONS]
    settings = [one.setting for one in tried if one.fits]
    settings.sort(key=lambda one: sum(outcome(one, delays).seconds for delays in patterns))
    return next((one for one in settings if most_memory(one, scenario) <= MEMORY), settings[0])


def most_memory(setting: Setting, scenario: Scenario) -> float:
    """Returns the most bytes that any worker of Fela holds."""
    return max(outcome(setting, delays).most_memory for delays in scenario.patterns)


def mean_of_way(way: str, network: str, total: int, scenario: Scenario) -> float:
    """Returns a baseline's mean seconds of an iteration."""
    plan = best(way, network, total).plan
    return scenario.mean(functools.cache(lambda delays: plan.seconds(delays)))


def mean_of_fela(setting: Setting, scenario: Scenario, holds: bool = False) -> float:
    """Returns Fela's mean seconds of an iteration."""
    return scenario.mean(lambda delays: outcome(setting, delays, holds).seconds)


def mean_bound(setting: Setting, scenario: Scenario, holds: bool = False) -> float:
    """Returns the mean of the iterations' bounds."""
    work = outcome(setting).work
    return scenario.mean(lambda delays: bounds(setting, work, delays, holds).largest)
