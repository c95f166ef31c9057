"""The token server with workers that Python makes: whatever they do, all is trained once.

A sub-model multiplies by a whole number, so that gradients are whole numbers too, and must be equal
to those of one process, however samples were put together and whoever trained them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trepak.ops.loader import call

SAMPLES, LABELS, OUTPUT, GRADIENT = range(4)


@dataclass
class Job:
    """An iteration of workers that each train `factors`, over the scheduler."""

    rules: dict[str, Any]
    factors: list[int]
    x: list[int]
    order: random.Random
    scheduler: int = 0
    hand: dict[int, dict[str, Any]] = field(default_factory=dict)
    chunks: dict[tuple[int, int], tuple[int, list[int]]] = field(default_factory=dict)
    inputs: dict[int, list[int]] = field(default_factory=dict)
    gradients: list[int] = field(default_factory=list)
    passed: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    trained: list[int] = field(default_factory=list)
    over: bool = False

    def tell(self, worker: int, what: str, number: int = 0) -> None:
        orders = call(
            "fela_tell_scheduler",
            scheduler=self.scheduler,
            worker=worker,
            what=what,
            number=number,
        )
        for one in orders["assignments"]:
            assert one["worker"] not in self.hand
            self.hand[one["worker"]] = one
        self.trained += orders["trained"]
        self.over |= orders["over"]

    def train(self, worker: int) -> None:
        """Does what a token says, and reports it."""
        token = self.hand.pop(worker)
        last = len(self.factors)
        stage = token["stage"]
        submodel = stage if stage <= last else 2 * last - stage
        subset = (self.rules["subsets"] or [[]] * last)[submodel - 1]
        assert not subset or worker in subset
        samples = [s for first, count in token["ranges"] for s in range(first, first + count)]
        self.passed[stage] += samples
        read: dict[int, list[int]] = defaultdict(list)
        for kind, number, holder, count in token["inputs"]:
            made_by, values = self.chunks[kind, number]
            assert made_by == holder and len(values) == count
            read[kind] += values
        if stage <= last:
            values = read[SAMPLES] if stage == 1 else read[OUTPUT]
            self.inputs[token["token"]] = values
            assert len(values) == token["samples"] == len(samples)
            made = [self.factors[stage - 1] * value for value in values]
            self.chunks[OUTPUT, token["token"]] = worker, made
            if stage < last:
                self.tell(worker, "report", token["token"])
                return
            assert read[LABELS] == samples
            gradient = [label + 1 for label in read[LABELS]]  # of a loss of sum(output * weight)
            forward = token["token"]
        else:
            gradient = read[GRADIENT]
            forward = token["token"] - call("fela_plan", rules=self.rules)["numbers"] // 2
            if token["recomputes"]:
                assert (read[SAMPLES] or read[OUTPUT]) == self.inputs[forward]
            else:
                assert self.chunks[OUTPUT, forward][0] == worker
        self.gradients[submodel - 1] += sum(
            g * value for g, value in zip(gradient, self.inputs[forward], strict=True)
        )
        back = [g * self.factors[submodel - 1] for g in gradient]
        for kind, number, _, count in self.needs.get(forward, []):
            assert kind == OUTPUT
            self.chunks[GRADIENT, number] = worker, back[:count]
            back = back[count:]
        self.tell(worker, "report", token["token"])

    needs: dict[int, list[Any]] = field(default_factory=dict)

    def run(self) -> None:
        """Trains until nothing is left, in an order that is drawn."""
        self.scheduler = call("fela_make_scheduler", rules=self.rules)
        try:
            self._run()
        finally:
            call("fela_drop_scheduler", scheduler=self.scheduler)

    def _run(self) -> None:
        workers = list(range(len(self.rules["batches"])))
        self.gradients = [0] * len(self.factors)
        self.order.shuffle(workers)
        asleep = list(workers)
        first = 0
        parts = call("fela_plan", rules=self.rules)["parts"]
        for worker, own in enumerate(parts):
            for token, begin, count in own:
                assert begin == first
                first += count
                self.chunks[SAMPLES, token] = worker, self.x[begin : begin + count]
                self.chunks[LABELS, token] = worker, list(range(begin, begin + count))
        for worker in workers:
            self.tell(worker, "begin", self.rules["batches"][worker])
        while not self.over:
            choices = sorted(self.hand) + asleep
            worker = self.order.choice(choices)
            if worker in self.hand:
                token = self.hand[worker]
                if token["stage"] <= len(self.factors):
                    outputs = [one for one in token["inputs"] if one[0] == OUTPUT]
                    self.needs[token["token"]] = outputs
                self.train(worker)
            else:
                asleep.remove(worker)
                self.tell(worker, "request")


@st.composite
def jobs(draw: Any) -> Job:
    workers = draw(st.integers(1, 6))
    submodels = draw(st.integers(1, 4))
    batches = draw(st.lists(st.integers(0, 12), min_size=workers, max_size=workers))
    batches[0] += sum(batches) == 0
    weights = [1]
    for _ in range(submodels - 1):
        weights.append(weights[-1] * draw(st.sampled_from([1, 1, 2, 3])))
    subset = st.sets(st.integers(0, workers - 1)).map(sorted)
    subsets = draw(st.lists(subset, min_size=submodels, max_size=submodels) | st.just([]))
    rules = {
        "batches": batches,
        "threshold": draw(st.integers(1, 8)),
        "weights": weights,
        "subsets": subsets,
        **{name: draw(st.booleans()) for name in ("depth_first", "hierarchical", "recompute")},
    }
    values = st.integers(-5, 5)
    size = sum(batches)
    return Job(
        rules,
        draw(st.lists(values, min_size=submodels, max_size=submodels)),
        draw(st.lists(values, min_size=size, max_size=size)),
        random.Random(draw(st.integers(0, 1 << 32))),
    )


@settings(max_examples=300, deadline=None)
@given(jobs())
def test_gradients_are_those_of_one_process(job: Job) -> None:
    job.run()
    last = len(job.factors)
    for stage in range(1, 2 * last):
        assert sorted(job.passed[stage]) == list(range(len(job.x)))  # each sample once
    assert job.trained == list(range(last, 0, -1))
    for submodel in range(last):
        others = 1
        for i, factor in enumerate(job.factors):
            others *= factor if i != submodel else 1
        right = sum((label + 1) * others * value for label, value in enumerate(job.x))
        assert job.gradients[submodel] == right


def test_wrong_rules_are_errors() -> None:
    rules = {
        "batches": [4],
        "threshold": 0,
        "weights": [1],
        "subsets": [],
        "depth_first": True,
        "hierarchical": True,
        "recompute": True,
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match="threshold"):
        call("fela_make_scheduler", rules=rules)
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights"):
        call("fela_make_scheduler", rules={**rules, "threshold": 1, "weights": []})
