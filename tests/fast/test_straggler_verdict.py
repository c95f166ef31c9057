"""The monitor's verdict: how much was waiting, for whom, and the page that helps; right values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trepak.horovod_ext.straggler_verdict import verdict_of
from trepak.horovod_ext.stragglers import RoundsOfRank, StragglerTable

ROOT = Path(__file__).parents[2]
STEPS, REDUCED = 200, 0.025  # seconds that a reduction takes when all ranks are there


def hosts(n: int) -> list[str]:
    return [f"h{rank}" for rank in range(n)]


def table_of(ready: Any) -> StragglerTable:
    """Returns the table of steps whose gradients are ready at [ranks, steps] after the begin."""
    ready = np.asarray(ready, float)
    table = StragglerTable(hosts(len(ready)))
    table.add(ready, ready.max(axis=0) + REDUCED - ready)
    return table


def waits_of(ready: Any) -> tuple[float, float, dict[int, float]]:
    """Returns seconds: all, the mean rank's wait, and by rank what others waited for it, each."""
    total, waited, caused = 0.0, 0.0, dict.fromkeys(range(len(ready)), 0.0)
    for step in np.transpose(ready).tolist():
        last = step.index(max(step))
        total += max(step) + REDUCED
        for rank, one in enumerate(step):
            waited += (max(step) - one) / len(step)
            if rank != last:
                caused[last] += (max(step) - one) / (len(step) - 1)
    return total, waited, caused


def pages(verdict: str) -> list[str]:
    return re.findall(r"docs/\w+\.md", verdict)


def even(n: int = 4, seed: int = 0, spread: float = 0.0) -> Any:
    return np.random.default_rng(seed).normal(0.1, spread, (n, STEPS)).clip(0.05)


def check_share(table: StragglerTable, ready: Any) -> str:
    """Compares the waiting that is said with what a loop over the steps finds."""
    total, waited, caused = waits_of(ready)
    assert table.waiting_share() == pytest.approx(waited / total, abs=1e-9)
    for report in table.reports():
        assert report.delayed_seconds == pytest.approx(caused[report.rank], abs=1e-9)
    verdict = verdict_of(table)
    share = "under 1%" if waited / total < 0.005 else f"{waited / total:.0%}"
    assert f"{share} of the time was waiting" in verdict
    return verdict


def test_no_waiting() -> None:
    ready = even(spread=0.0002) - 0.025
    verdict = check_share(table_of(ready), ready)
    assert verdict.startswith("No rank made the others wait")
    # 0.025 of 0.1 s are reducing.
    assert "Reducing gradients, with all ranks there, took 25% of the time" in verdict
    assert pages(verdict) == ["docs/geryon.md"]


def test_a_fast_network_is_not_blamed() -> None:
    ready = even() + 0.4
    assert table_of(ready).exchanging_share() == pytest.approx(0.025 / 0.525)
    assert pages(verdict_of(table_of(ready))) == []


def test_one_straggler() -> None:
    ready = even(spread=0.005)
    ready[2] += 0.1
    verdict = check_share(table_of(ready), ready)
    total, _, caused = waits_of(ready)
    assert "100% of it for the same rank: rank 2 on h2 made the others wait" in verdict
    assert f"wait {caused[2]:.3g} s of {total:.3g} s; it was the last in 100% of" in verdict
    assert pages(verdict) == ["docs/elastic_bsp.md"]


def test_all_by_turns() -> None:
    """Four ranks, each of which waits a third of its time for the others."""
    ready = even()
    for step in range(STEPS):
        ready[step % 4, step] += 0.1  # 3 of 4 steps of 0.225 s: a wait of 0.1 s
    verdict = check_share(table_of(ready), ready)
    assert table_of(ready).waiting_share() == pytest.approx(1 / 3)
    assert verdict.startswith("33% of the time was waiting, by turns: 4 of 4 ranks made the others")
    assert "in 25%." in verdict
    assert pages(verdict) == ["docs/rna.md"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("steps", [20, 50, 200])
def test_chance_is_by_turns(n: int, seed: int, steps: int) -> None:
    """Ranks whose times come from one distribution: none is a straggler, however few the steps."""
    ready = np.random.default_rng([seed, n, steps]).uniform(0.1, 0.3, (n, steps))
    table = table_of(ready)
    assert table.stragglers() == []
    assert pages(verdict_of(table))[0] == "docs/rna.md"


@pytest.mark.parametrize(("n", "slow"), [(4, [1, 3]), (8, [0, 5]), (16, [2, 3, 11])])
def test_some_are_always_the_last(n: int, slow: list[int]) -> None:
    ready = even(n, spread=0.01)
    ready[slow] += 0.1
    table = table_of(ready)
    verdict = check_share(table, ready)
    assert sorted(report.rank for report in table.stragglers()) == slow
    assert f"100% of it for the same {len(slow)} ranks" in verdict
    assert all(f"rank {rank} on h{rank} made the others wait" in verdict for rank in slow)
    assert pages(verdict) == ["docs/elastic_bsp.md"]


def test_many_stragglers_are_not_all_named() -> None:
    ready = even(64, spread=0.01)
    ready[10:16] += 0.1
    verdict = verdict_of(table_of(ready))
    assert "the same 6 ranks" in verdict and verdict.count("made the others wait") == 4
    assert "So did 2 more." in verdict


def test_one_rank_now_and_then() -> None:
    """Rank 0 writes a file in every 20th step, which takes as long as 30 steps."""
    ready = even(spread=0.001)
    ready[0, ::20] += 3.0
    verdict = check_share(table_of(ready), ready)
    assert "for one rank, though not in every step: rank 0 on h0 made the others wait" in verdict
    assert pages(verdict)[0] == "docs/stragglers.md"


def test_one_rank_and_few_steps() -> None:
    assert verdict_of(table_of(even(1))) == "There is one rank: it waits for nobody."
    assert verdict_of(table_of(even()[:, :19])) == "19 steps are too few to name a straggler."
    assert "too few" in verdict_of(StragglerTable(hosts(2)))


def test_rounds_at_ranks_own_pace() -> None:
    rounds = [RoundsOfRank(100, part, 300, 50, 0) for part in (100, 80, 60, 90)]
    table = StragglerTable(hosts(4))
    table.add_at_own_pace([50] * 4, [8.0, 6.0, 9.0, 7.0], [2.0, 4.0, 1.0, 3.0], rounds)
    verdict = verdict_of(table)
    assert "Rank 2 on h2 brought nothing to 40% of its 100 rounds" in verdict
    assert "On average 25% of a rank's time was waiting. See docs/rna.md." in verdict
    table = StragglerTable(hosts(2))
    table.add_at_own_pace([50] * 2, [9.9, 9.9], [0.1, 0.1], [RoundsOfRank(9, 9, 18, 0, 0)] * 2)
    assert verdict_of(table) == (
        "Every rank brought something to every round. On average 1% of a rank's time was waiting."
    )


def test_barriers_at_ranks_own_pace() -> None:
    rounds = [RoundsOfRank(7, 7, 14, 0, 0, waited, 0.1) for waited in (0.5, 1.5)]
    table = StragglerTable(hosts(2))
    table.add_at_own_pace([30, 30], [3.0, 2.0], [1.0, 2.0], rounds)
    verdict = verdict_of(table)
    assert "Rank 1 on h1 waited longest for others: 1.5 s of 4 s." in verdict
    assert "On average 25% of a rank's time was waiting. See docs/elastic_bsp.md." in verdict


def test_the_pages_are_those_of_the_readme() -> None:
    table = (ROOT / "README.md").read_text().partition("## When a job is slow")[2]
    for page in ("geryon", "rna", "elastic_bsp"):
        assert f"(docs/{page}.md)" in table and (ROOT / f"docs/{page}.md").exists()
    assert (ROOT / "docs/stragglers.md").exists()
