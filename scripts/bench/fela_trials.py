"""What `trepak bench fela` finds in virtual time of a network and a total batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trepak.scripts.bench import fela_cases
from trepak.scripts.bench.fela_baselines import WAYS, Best, best
from trepak.scripts.bench.fela_cases import Scenario, Tried, best_of
from trepak.scripts.bench.fela_setting import Outcome, Setting

FELA = "Fela"


@dataclass(frozen=True)
class Straggled:
    """What stragglers have come to, in mean seconds of an iteration.

    Attributes:
        scenario: which.
        setting: Fela's, tuned there.
        seconds: by way.
        bound: that no order of Fela's tokens is faster than.
        holds: Fela's, where a sleeper holds its first token.
        holds_bound: the bound there.
        memory: bytes of the worker that holds the most.
    """

    scenario: Scenario
    setting: Setting
    seconds: dict[str, float]
    bound: float
    holds: float
    holds_bound: float
    memory: float


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        network: its name in `NETWORKS`.
        total: samples of an iteration.
        tried: the cases of Fela's tuning.
        baselines: by way.
        without: by policy, Fela's best setting without it.
        straggled: by scenario.
    """

    network: str
    total: int
    tried: list[Tried]
    baselines: dict[str, Best]
    without: dict[str, Outcome]
    straggled: list[Straggled] = field(default_factory=list)

    @property
    def fela(self) -> Tried:
        """Fela as it is tuned."""
        return best_of(self.tried)

    @property
    def seconds(self) -> dict[str, float]:
        """By way, without stragglers."""
        of = {way: one.seconds for way, one in self.baselines.items()}
        return {FELA: self.fela.outcome.seconds, **of}


def find(network: str, total: int, show: Callable[[str], None]) -> Found:
    """Tries all that the paper does with a network and a total batch.

    Args:
        network: its name in `NETWORKS`.
        total: samples of an iteration.
        show: is told what is under way.
    """
    found = find_quickly(network, total, show)
    for scenario in fela_cases.scenarios(network):
        show(f"{network}, {total} samples: {scenario.kind} {scenario.value:g}")
        found.straggled.append(straggled(found, scenario))
    return found


def find_quickly(network: str, total: int, show: Callable[[str], None]) -> Found:
    """Tries what the paper does without stragglers; see `find`."""
    show(f"{network}, {total} samples: tuning")
    tried = fela_cases.tune(network, total)
    show(f"{network}, {total} samples: baselines")
    baselines = {way: best(way, network, total) for way in WAYS}
    return Found(network, total, tried, baselines, _without(best_of(tried).setting))


def _without(setting: Setting) -> dict[str, Outcome]:
    """Returns what comes of Fela without one of its policies each."""
    less = {
        "HF": replace(setting, hierarchical=False),
        "ADS": replace(setting, depth_first=False),
        "CTD": replace(setting, subset=setting.workers),
        "tuning": replace(setting, weights=(1,) * len(setting.weights)),
        "recomputing": replace(setting, recompute=False),
    }
    return {policy: fela_cases.outcome(one) for policy, one in less.items()}


def straggled(found: Found, scenario: Scenario) -> Straggled:
    """Returns what stragglers make of all ways; Fela is tuned among them."""
    setting = fela_cases.tune_among(found.tried, scenario)
    seconds = {FELA: fela_cases.mean_of_fela(setting, scenario)}
    for way in WAYS:
        seconds[way] = fela_cases.mean_of_way(way, found.network, found.total, scenario)
    bound = fela_cases.mean_bound(setting, scenario)
    holds = fela_cases.mean_of_fela(setting, scenario, holds=True)
    holds_bound = fela_cases.mean_bound(setting, scenario, holds=True)
    memory = fela_cases.most_memory(setting, scenario)
    return Straggled(scenario, setting, seconds, bound, holds, holds_bound, memory)
