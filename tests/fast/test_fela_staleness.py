"""Tokens by their age (SSP): workers go ahead as far as the bound lets them, and no further."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trepak.ops.loader import call

ITERATIONS = 5


@dataclass
class Ahead:
    """Workers that train iterations in an order that is drawn, over the scheduler.

    A worker begins an iteration, asks, trains what it is given, and goes on when it is let ahead,
    or at the end of an iteration that it has said it stays in.
    """

    rules: dict[str, Any]
    order: random.Random
    scheduler: int = 0
    oldest: int = 0
    begun: list[int] = field(default_factory=list)  # by worker, iterations
    last: dict[int, int] = field(default_factory=dict)  # by worker, iterations that it begins
    state: list[str] = field(default_factory=list)  # by worker
    stays: set[int] = field(default_factory=set)  # workers, until what they have begun is over
    hand: dict[int, dict[str, Any]] = field(default_factory=dict)
    given: Counter[tuple[int, int]] = field(default_factory=Counter)  # by age and number
    passed: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # by age and stage
    trained: dict[int, list[int]] = field(default_factory=dict)
    lead: int = 0

    @property
    def bound(self) -> int:
        return int(self.rules["staleness"])

    def tell(self, worker: int, what: str, number: int, iteration: int, stays: bool) -> None:
        orders = call(
            "fela_tell_scheduler",
            scheduler=self.scheduler,
            worker=worker,
            what=what,
            number=number,
            iteration=iteration,
            to_the_end=stays,
        )
        self.trained.setdefault(iteration, []).extend(orders["trained"])
        for one in orders["assignments"]:
            self._check_given(one)
            self.hand[one["worker"]] = one
            self.state[one["worker"]] = "trains"
        assert orders["over"] == (orders["oldest"] > self.oldest)
        self.oldest = orders["oldest"]
        for one in orders["ahead"]:
            assert self.bound and one not in self.stays and self.state[one] == "waits"
            assert self.begun[one] <= self.oldest + self.bound
            self.state[one] = "is away"
        for one, begun in enumerate(self.begun):  # what it stayed in is over
            if self.state[one] == "waits" and (one in self.stays or not self.bound):
                self.state[one] = "is away" if begun <= self.oldest else "waits"

    def _check_given(self, token: dict[str, Any]) -> None:
        """The bound holds, and the worker knows the iteration."""
        worker, age = token["worker"], token["iteration"]
        assert worker not in self.hand and self.state[worker] == "waits"
        # The end of older iterations may be in the same orders, before which nothing was to be had.
        assert self.oldest <= age < self.begun[worker]
        assert age - self.bound <= self.oldest
        assert not token["recomputes"]
        self.given[age, token["token"]] += 1
        samples = [s for first, count in token["ranges"] for s in range(first, first + count)]
        self.passed.setdefault((age, token["stage"]), []).extend(samples)
        self.lead = max(self.lead, age - self.oldest)

    def act(self) -> bool:
        """Does one thing; tells whether there is one to do."""
        acts = [(worker, "report") for worker in self.hand]
        for worker, state in enumerate(self.state):
            if state == "has begun":
                acts.append((worker, "request"))
            elif state == "is away":
                if self.begun[worker] < self.last.get(worker, ITERATIONS):
                    acts.append((worker, "begin"))
                elif self.begun[worker] > self.oldest:
                    acts.append((worker, "stay"))
        if not acts:
            return False
        worker, what = self.order.choice(acts)
        last = self.begun[worker] - 1
        if what == "report":
            token = self.hand.pop(worker)
            self.state[worker] = "waits"
            stays = worker in self.stays
            self.tell(worker, "report", token["token"], token["iteration"], stays)
        elif what == "begin":
            self.begun[worker] += 1
            self.state[worker] = "has begun"
            self.stays.discard(worker)
            self.tell(worker, "begin", self.rules["batches"][worker], last + 1, False)
        else:
            # Who looks at its weights stays in its iteration, also amid the training.
            if what == "stay" or self.order.random() < 0.1:
                self.stays.add(worker)
            self.state[worker] = "waits"
            self.tell(worker, "request", 0, last, worker in self.stays)
        return True

    def run(self) -> None:
        """Trains until nobody can do anything more."""
        workers = len(self.rules["batches"])
        self.begun, self.state = [0] * workers, ["is away"] * workers
        self.scheduler = call("fela_make_scheduler", rules=self.rules)
        try:
            while self.act():
                pass
        finally:
            call("fela_drop_scheduler", scheduler=self.scheduler)


@st.composite
def rules(draw: Any, least: int = 0) -> dict[str, Any]:
    workers = draw(st.integers(1, 5))
    batches = draw(st.lists(st.integers(0, 10), min_size=workers, max_size=workers))
    batches[0] += sum(batches) == 0
    weights = [1]
    for _ in range(draw(st.integers(0, 3))):
        weights.append(weights[-1] * draw(st.sampled_from([1, 1, 2, 3])))
    return {
        "batches": batches,
        "threshold": draw(st.integers(1, 6)),
        "weights": weights,
        "subsets": [],
        "depth_first": draw(st.booleans()),
        "hierarchical": draw(st.booleans()),
        "recompute": False,
        "staleness": draw(st.integers(least, 3)),
    }


@settings(max_examples=300, deadline=None)
@given(rules(), st.integers(0, 1 << 32))
def test_every_token_is_trained_once_within_the_bound(drawn: dict[str, Any], seed: int) -> None:
    job = Ahead(drawn, random.Random(seed))
    job.run()
    assert job.oldest == ITERATIONS and job.begun == [ITERATIONS] * len(drawn["batches"])
    assert set(job.given.values()) == {1}
    last = len(drawn["weights"])
    for iteration in range(ITERATIONS):
        for stage in range(1, 2 * last):
            assert sorted(job.passed[iteration, stage]) == list(range(sum(drawn["batches"])))
        assert job.trained[iteration] == list(range(last, 0, -1))
    assert job.lead <= job.bound


@settings(max_examples=100, deadline=None)
@given(rules(), st.integers(0, 1 << 32), st.integers(0, ITERATIONS - 1))
def test_others_go_as_far_ahead_of_a_sleeper_as_they_may(
    drawn: dict[str, Any], seed: int, slept: int
) -> None:
    """It trains all before, and never begins iteration `slept`; they go on as the bound says."""
    drawn["batches"] = [*drawn["batches"], 4]
    job = Ahead(drawn, random.Random(seed))
    sleeper = len(drawn["batches"]) - 1
    job.last[sleeper] = slept
    job.run()
    assert job.begun[sleeper] == slept == job.oldest
    furthest = min(slept + 1 + job.bound, ITERATIONS)
    awake = job.begun[:sleeper]
    assert max(awake) <= furthest
    # Who said that it stays in an iteration that can't end is not ahead.
    assert all(one == furthest for worker, one in enumerate(awake) if worker not in job.stays)


def test_older_tokens_go_first() -> None:
    """Age goes before the policies: a T-1 token of before, before a T-2 token of now."""
    rules = {
        "batches": [2, 1],
        "threshold": 1,
        "weights": [1, 1],
        "subsets": [],
        "depth_first": True,
        "hierarchical": False,
        "recompute": False,
        "staleness": 1,
    }
    scheduler = call("fela_make_scheduler", rules=rules)

    def tell(worker: int, what: str, iteration: int, number: int = 0) -> dict[str, Any]:
        told: dict[str, Any] = call(
            "fela_tell_scheduler",
            scheduler=scheduler,
            worker=worker,
            what=what,
            iteration=iteration,
            number=number,
        )
        return told

    try:
        tell(0, "begin", 0, 2)
        (token,) = tell(0, "request", 0)["assignments"]
        orders: dict[str, Any] = {}
        for _ in range(6):  # two samples: forward, the loss, and backward
            orders = tell(0, "report", 0, token["token"])
            (token,) = orders["assignments"] or [token]
        assert orders["ahead"] == [0] and not orders["over"]
        tell(0, "begin", 1, 2)
        (token,) = tell(0, "request", 1)["assignments"]
        assert (token["iteration"], token["stage"]) == (1, 1)
        tell(1, "begin", 0, 1)  # its T-1 token of iteration 0 is there
        (token,) = tell(0, "report", 1, token["token"])["assignments"]
        assert (token["iteration"], token["stage"]) == (0, 1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="is in iteration 2"):
            tell(0, "begin", 2, 2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="was not given"):
            tell(0, "report", 1, token["token"])
    finally:
        call("fela_drop_scheduler", scheduler=scheduler)


def test_rules_that_do_not_go_with_a_staleness() -> None:
    rules = {
        "batches": [4],
        "threshold": 1,
        "weights": [1],
        "subsets": [],
        "depth_first": True,
        "hierarchical": True,
        "recompute": True,
        "staleness": 1,
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match="leave recompute off"):
        call("fela_make_scheduler", rules=rules)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 64"):
        call("fela_make_scheduler", rules={**rules, "recompute": False, "staleness": 65})
