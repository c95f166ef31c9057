"""RNA's promises on gradients, under any schedule: where each one goes, and with which weight.

ops/runtime/rna/rna_replay.cc runs real coordinators and workers through a schedule that
Hypothesis draws. What the thesis says (section 5.1) is computed here once more, without them.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rna_schedules import Action, Outcome, Plan, Round, replay

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "native-plain"  # scripts/check.sh makes it

# What a rank does next; a drain ends an epoch when all ranks have come to it.
ACTIONS = ["read", "settle", *["write"] * 15, *["read"] * 12, "spoil", "drain"]


def check_places(plan: Plan, outcome: Outcome) -> None:
    """Each gradient is in the first round that starts after it, or is dropped as too stale."""
    for index, gradient in enumerate(outcome.gradients):
        if gradient.taken is None:
            latest = outcome.version_before(gradient.last)
            if not plan.settles and gradient.last > 0:
                # The round before may have been under way: nobody knew that it changes nothing.
                latest = outcome.version_before(gradient.last - 1) + 1
            assert latest - gradient.version > plan.staleness, f"{index} is in no round"
        else:
            assert gradient.first <= gradient.taken <= gradient.last, f"{index}: {gradient}"
            rounds = outcome.version_before(gradient.taken) - gradient.version
            assert rounds <= plan.staleness, f"{index} is too stale"
    for rank in range(plan.size):
        taken = [g.taken for g in outcome.gradients if g.rank == rank and g.taken is not None]
        assert taken == sorted(taken), f"rank {rank}'s gradients are not in their order"


def by_rank(outcome: Outcome, number: int) -> dict[int, list[int]]:
    """Returns which gradients of which ranks are in a round."""
    found: dict[int, list[int]] = defaultdict(list)
    for index, gradient in enumerate(outcome.gradients):
        if gradient.taken == number:
            found[gradient.rank].append(index)
    return found


def check_round(plan: Plan, outcome: Outcome, one: Round) -> None:
    """A round has what its gradients make, each with the weight that the thesis gives it."""
    contributions = by_rank(outcome, one.number)
    for indices in contributions.values():
        versions = [outcome.gradients[index].version for index in indices]
        newness = [version - min(versions) + 1 for version in versions]
        for index, new in zip(indices, newness, strict=True):
            weight = one.weights[index] / outcome.gradients[index].value
            assert math.isclose(weight, new / sum(newness), rel_tol=1e-6), (index, weight)
    assert one.contributors == len(contributions)
    spoilt = {g.rank for g in outcome.spoilt if g.could_be_in(one.number)}
    assert contributions or spoilt, f"nobody brought anything to round {one.number}"
    assert one.initiator in {*contributions, *spoilt}
    rates = [outcome.gradients[max(indices)].rate for indices in contributions.values()]
    mean = sum(rates) / len(rates) if rates else 0.0
    assert math.isclose(one.rate, mean, rel_tol=1e-6)
    # Samples of dropped gradients count too. Which round has them is not always known.
    possible = [g for g in [*outcome.gradients, *outcome.spoilt] if g.could_be_in(one.number)]
    sure = [g for g in possible if g.taken is not None or g.first == g.last]
    assert sum(g.samples for g in sure) <= one.samples <= sum(g.samples for g in possible)


def check_counters(plan: Plan, outcome: Outcome) -> None:
    """Each rank counts right; what it wrote is in a round, or counted as dropped."""
    for rank in range(plan.size):
        mine = [g for g in outcome.gradients if g.rank == rank]
        taken = [g for g in mine if g.taken is not None]
        oldest = {g.taken: g.version for g in reversed(taken)}
        staleness = sum(outcome.version_before(at) - version for at, version in oldest.items())
        assert outcome.counters[rank] == [
            len(outcome.rounds),
            len(oldest),
            len(taken),
            len(mine) - len(taken),
            sum(g.rank == rank for g in outcome.spoilt),
            staleness,
            sum(one.contributors for one in outcome.rounds),
        ]


def check_starts(plan: Plan, outcome: Outcome, settled: list[tuple[int, int]]) -> None:
    """A round starts when enough of the probed ranks have gradients, and not before."""
    written = [g for g in [*outcome.gradients, *outcome.spoilt] if not outcome.is_stale(g, plan)]
    script = plan.script()
    probed = max(plan.choices, plan.quorum)
    draining: set[int] = set()
    before = 0
    for line, started in settled:
        what, *words = script[line - 1].split()
        draining |= {int(words[0])} if what == "drain" else set()
        draining = set() if what == "drained" else draining
        assert started - before in (0, 1)
        waiting = {g.rank for g in written if g.first == started and g.line < line}
        computing = {*range(plan.size)} - draining - waiting
        assert computing or len(draining) == plan.size, f"{started} waits for those that drain"
        if not draining:
            # Even if all that were not probed are among them.
            assert len(waiting) - (plan.size - probed) < plan.quorum, f"{started} has not begun"
            ready = {g.rank for g in written if g.first == before}
            early = started > before and len(ready) < plan.quorum
            assert what == "drained" or not early, f"{before} began too early"
        before = started


def check(binary: Path, plan: Plan) -> Outcome:
    """Runs a plan, and checks all that is promised."""
    outcome, settled = replay(binary, plan)
    assert len({tuple(outcome.seen[rank]) for rank in range(plan.size)}) == 1
    assert [one.number for one in outcome.rounds] == [*range(len(outcome.rounds))]
    check_places(plan, outcome)
    for one in outcome.rounds:
        check_round(plan, outcome, one)
    check_counters(plan, outcome)
    if plan.settles:
        check_starts(plan, outcome, settled)
    return outcome


@st.composite
def plans(draw: st.DrawFn, settles: bool) -> Plan:
    size = draw(st.sampled_from([3, 1, 2, 4, 5]))
    action = st.builds(
        Action,
        st.sampled_from(ACTIONS),
        st.integers(0, size - 1),
        samples=st.integers(1, 2_500_000),
        rate=st.integers(1, 64).map(lambda rate: rate / 64),
    )
    return Plan(
        size,
        choices=draw(st.integers(1, size)),
        quorum=draw(st.integers(1, size)),
        seed=draw(st.integers(0, 2**32)),
        staleness=draw(st.sampled_from([100, 3, 1, 0, 8])),
        settles=settles,
        catches_up=draw(st.booleans()),
        actions=draw(st.lists(action, min_size=20, max_size=100)),
    )


@st.composite
def synchronous_plans(draw: st.DrawFn) -> Plan:
    """Draws plans in which all ranks write in each step, and then wait for a round of them all."""
    size = draw(st.integers(1, 5))
    value = st.floats(2**-6, 2**6, width=32)
    actions = []
    for _ in range(draw(st.integers(1, 8))):
        for what in ("write", "await"):
            ranks = draw(st.permutations(range(size)))
            actions += [Action(what, rank, value=draw(value)) for rank in ranks]
    choices = draw(st.integers(1, size))
    return Plan(size, choices, size, draw(st.integers(0, 99)), 0, False, False, actions)


def examples(number: int) -> settings:
    """Returns settings; the few examples for every change are always the same."""
    return settings(max_examples=number, derandomize=number <= 200, deadline=None, database=None)


EXAMPLES = pytest.mark.parametrize("number", [200, pytest.param(5000, marks=pytest.mark.soak)])


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (BUILD / "CMakeCache.txt").exists():
        options = ["-DTREPAK_BUILD_OPS=ON", f"-DTREPAK_PYTHON={sys.executable}"]
        subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, *options], check=True)
    build = ["cmake", "--build", BUILD, "--target", "rna_replay", "-j", "2"]
    subprocess.run(build, check=True)
    # A copy, which stays as it is when somebody builds meanwhile.
    built = BUILD / "ops" / "runtime" / "rna_replay"
    return Path(shutil.copy(built, tmp_path_factory.mktemp("rna_replay")))


@pytest.mark.timeout(3600)
@EXAMPLES
@pytest.mark.parametrize("settles", [True, False], ids=["settled", "racing"])
def test_every_gradient_counts_as_it_should(binary: Path, settles: bool, number: int) -> None:
    met: Counter[str] = Counter()

    @examples(number)
    @given(plans(settles))
    def holds(plan: Plan) -> None:
        outcome = check(binary, plan)
        met["dropped"] += sum(g.taken is None for g in outcome.gradients)
        for one in outcome.rounds:
            met["of several"] += one.contributors > 1
            versions = [
                {outcome.gradients[index].version for index in indices}
                for indices in by_rank(outcome, one.number).values()
            ]
            met["of several versions"] += max(map(len, versions), default=0) > 1

    holds()
    # Otherwise the schedules have not shown much.
    wanted = ("dropped", "of several", "of several versions")
    assert min(met[what] for what in wanted) > number / 10, met


@pytest.mark.timeout(3600)
@EXAMPLES
def test_a_quorum_of_all_that_waits_is_bsp(binary: Path, number: int) -> None:
    @examples(number)
    @given(synchronous_plans())
    def holds(plan: Plan) -> None:
        outcome = check(binary, plan)
        values = [action.value for action in plan.actions if action.what == "write"]
        steps = [values[at : at + plan.size] for at in range(0, len(values), plan.size)]
        means = [sum(one.weights.values()) / one.contributors for one in outcome.rounds]
        assert means == pytest.approx([sum(step) / plan.size for step in steps], rel=1e-6)
        assert all(one.contributors == plan.size for one in outcome.rounds)

    holds()
