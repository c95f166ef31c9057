"""Data, model and hybrid parallelism in virtual time, each at its best settings (section V-A)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trepak.scripts.bench.fela_clock import RATE
from trepak.scripts.bench.fela_models import (
    BACKWARD,
    FLOAT,
    MEMORY,
    MOST_OF_A_MODEL,
    NETWORKS,
    STATE_COPIES,
    Layer,
    SubModel,
)
from trepak.scripts.bench.fela_tasks import Plan

BUCKETS = (4e6, 25e6, 100e6)  # bytes of gradients that are reduced together, at least
AHEAD = (1, 2, 3, 4)  # micro-batches under way for each worker that is yet to come in a pipeline
_MOST_MICRO_BATCHES = 128  # of a pipeline's iteration: more were never faster
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_FULLY_CONNECTED = {"vgg19": 3, "googlenet": 1}  # layers, of Stanza's one worker


@dataclass(frozen=True)
class Best:
    """A baseline at its best settings, without stragglers.

    Attributes:
        way: "DP", "MP" or "HP".
        settings: for people.
        plan: what it does.
        seconds: an iteration.
        bound: that no order of the same tasks is faster than.
    """

    way: str
    settings: str
    plan: Plan
    seconds: float
    bound: float


Plans = Iterator[tuple[str, Plan]]


@functools.cache
def best(way: str, network: str, total: int, workers: int = 8) -> Best:
    """Returns a baseline at the settings that take it least time.

    Args:
        way: "DP", "MP" or "HP".
        network: a name in `NETWORKS`.
        total: samples of an iteration.
        workers: how many.
    """
    plans = {"DP": _data_parallel, "MP": _model_parallel, "HP": _hybrid_parallel}[way]
    found = [
        (plan.seconds(), number, settings, plan)
        for number, (settings, plan) in enumerate(plans(network, total, workers))
    ]
    seconds, _, settings, plan = min(found)
    return Best(way, settings, plan, seconds, plan.bound())


def _shares(total: int, parts: int) -> list[int]:
    """Splits samples as evenly as they go."""
    each, rest = divmod(total, parts)
    return [each + (part < rest) for part in range(parts)]


def _data_parallel(network: str, total: int, workers: int) -> Plans:
    """As many samples on each worker, at most 32 in a pass; overlapped, in buckets."""
    layers = NETWORKS[network].layers
    for bucket in BUCKETS:
        plan = Plan(workers)
        last = []
        for worker, own in enumerate(_shares(total, workers)):
            before: dict[int, float] = {}
            passes = _shares(own, math.ceil(own / MOST_OF_A_MODEL))
            for batch in passes[:-1]:
                seconds = (1 + BACKWARD) * SubModel(layers).forward(batch)
                before = {plan.compute(worker, seconds, before): 0.0}
            forward = plan.compute(worker, SubModel(layers).forward(passes[-1]), before)
            last.append(_backward(plan, worker, layers, passes[-1], bucket, forward))
        _reduce(plan, range(workers), last)
        yield f"buckets of {bucket / 1e6:g} MB", plan


def _backward(
    plan: Plan, worker: int, layers: Sequence[Layer], batch: int, bucket: float, forward: int
) -> list[tuple[int, float, float]]:
    """Adds the way back; returns each bucket's task, bytes and seconds of its update."""
    found, gathered, before = [], list[Layer](), {forward: 0.0}
    for number, layer in reversed(list(enumerate(layers))):
        gathered.append(layer)
        group = SubModel(tuple(gathered))
        if group.bytes >= bucket or number == 0:
            task = plan.compute(worker, group.backward(batch), before, priority=-1)
            before = {task: 0.0}
            found.append((task, float(group.bytes), group.update))
            gathered = []
    return found


def _reduce(
    plan: Plan, members: Sequence[int], buckets: Sequence[list[tuple[int, float, float]]]
) -> None:
    """Adds rings of buckets, one after the other, and what applies them.

    Args:
        plan: to add to.
        members: whose gradients they are.
        buckets: by member; see `_backward`.
    """
    before = list[int]()
    for of_all in zip(*buckets, strict=True):
        tasks = [task for task, _, _ in of_all]
        _, count, update = of_all[0]
        before = [plan.ring(members, count, [*tasks, *before])]
        for member in members:
            plan.compute(member, update, {before[0]: 0.0}, priority=1)


def _model_parallel(network: str, total: int, workers: int) -> Plans:
    """A pipeline that ends with each iteration; layers are balanced by time.

    Where links are slower than what they carry to the next worker, fewer workers are faster.
    """
    layers = NETWORKS[network].layers
    for micro, ahead, used in itertools.product(MICRO_BATCHES, AHEAD, range(2, workers + 1)):
        if micro > total or total > _MOST_MICRO_BATCHES * micro:
            continue
        parts = balanced(layers, used, micro)
        under_way = [ahead * (used - place) for place in range(used)]
        if all(
            count * micro * part.kept + micro * part.working + STATE_COPIES * part.bytes <= MEMORY
            for count, part in zip(under_way, parts, strict=True)
        ):
            sizes = _shares(total, math.ceil(total / micro))
            settings = f"{used} workers, micro-batches of {micro}, {ahead} ahead"
            yield settings, _pipeline(parts, sizes, under_way, workers)


def _pipeline(
    parts: Sequence[SubModel], sizes: Sequence[int], under_way: Sequence[int], workers: int
) -> Plan:
    """Adds a pipeline whose workers go backward where they can.

    Args:
        parts: by worker.
        sizes: samples, by micro-batch.
        under_way: by worker, micro-batches that it may have gone forward and not backward with.
        workers: that there are; those behind the last part have nothing to do.
    """
    plan = Plan(workers)
    forward: dict[tuple[int, int], int] = {}
    backward: dict[tuple[int, int], int] = {}
    for i, batch in enumerate(sizes):
        for at, part in enumerate(parts):
            needs = {forward[i, at - 1]: float(batch * parts[at - 1].output)} if at else {}
            if i >= under_way[at]:
                needs[backward[i - under_way[at], at]] = 0.0
            forward[i, at] = plan.compute(at, part.forward(batch), needs, priority=i)
        for at, part in reversed(list(enumerate(parts))):
            needs = {forward[i, at]: 0.0}
            if at + 1 < len(parts):
                needs[backward[i, at + 1]] = float(batch * part.output)
            priority = i - len(sizes)
            backward[i, at] = plan.compute(at, part.backward(batch), needs, priority)
    for at, part in enumerate(parts):
        plan.compute(at, part.update, {backward[i, at]: 0.0 for i in range(len(sizes))})
    return plan


def balanced(layers: Sequence[Layer], workers: int, batch: int) -> list[SubModel]:
    """Cuts layers into as many parts as there are workers, so that the slowest one is fastest.

    What a part hands on, and back, leaves by one link beside computing: the slower of both counts.
    """
    costs = [(1 + BACKWARD) * layer.seconds(batch) for layer in layers]
    sending = [batch * FLOAT * layer.output / RATE for layer in layers]

    @functools.cache
    def cut(begin: int, parts: int) -> tuple[float, tuple[int, ...]]:
        back = sending[begin - 1] if begin else 0.0
        if parts == 1:
            return max(sum(costs[begin:]), back), ()
        found = []
        for end in range(begin + 1, len(layers) - parts + 2):
            rest, edges = cut(end, parts - 1)
            slowest = max(sum(costs[begin:end]), back + sending[end - 1], rest)
            found.append((slowest, (end, *edges)))
        return min(found)

    edges = (0, *cut(0, workers)[1], len(layers))
    return [SubModel(tuple(layers[a:b])) for a, b in itertools.pairwise(edges)]


def _hybrid_parallel(network: str, total: int, workers: int) -> Plans:
    """Stanza: one worker has the fully connected layers, and trains what the others send it."""
    layers, dense = NETWORKS[network].layers, _FULLY_CONNECTED[network]
    conv, full = SubModel(layers[:-dense]), SubModel(layers[-dense:])
    trainers = workers - 1
    shares = _shares(total, trainers)
    tried = set()
    for micro, bucket in itertools.product(MICRO_BATCHES, BUCKETS):
        rounds = math.ceil(max(shares) / micro)
        if micro > MOST_OF_A_MODEL or (rounds, bucket) in tried or rounds > min(shares):
            continue
        tried.add((rounds, bucket))
        at_once = MOST_OF_A_MODEL // math.ceil(max(shares) / rounds)
        settings = f"{rounds} micro-batches, buckets of {bucket / 1e6:g} MB"
        yield settings, _stanza(conv, full, [_shares(s, rounds) for s in shares], at_once, bucket)


def _stanza(
    conv: SubModel, full: SubModel, sizes: Sequence[Sequence[int]], at_once: int, bucket: float
) -> Plan:
    """Adds rounds of all workers' micro-batches.

    Args:
        conv: of the workers that convolve.
        full: of the last worker.
        sizes: by worker, by round: samples.
        at_once: rounds that a worker has under way; it has no room for more.
        bucket: bytes that are reduced together, at least.
    """
    trainers, rounds = len(sizes), len(sizes[0])
    plan = Plan(trainers + 1)
    backward = list[list[int]]()
    last = list[list[tuple[int, float, float]]]()
    full_tasks = []
    for i in range(rounds):
        ahead = []
        for worker, own in enumerate(sizes):
            needs = {backward[i - at_once][worker]: 0.0} if i >= at_once else {}
            ahead.append(plan.compute(worker, conv.forward(own[i]), needs, priority=i))
        arriving = {
            task: float(own[i] * conv.output) for task, own in zip(ahead, sizes, strict=True)
        }
        batch = sum(own[i] for own in sizes)
        seconds = full.forward(batch) + full.backward(batch)
        middle = plan.compute(trainers, seconds, arriving, priority=i)
        full_tasks.append(middle)
        backward.append([])
        for worker, own in enumerate(sizes):
            needs = {middle: float(own[i] * conv.output)}
            first = plan.compute(worker, 0.0, needs, priority=i - rounds)
            if i < rounds - 1:
                task = plan.compute(
                    worker, conv.backward(own[i]), {first: 0.0}, priority=i - rounds
                )
                backward[-1].append(task)
            else:
                last.append(_backward(plan, worker, conv.layers, own[i], bucket, first))
    _reduce(plan, range(trainers), last)
    plan.compute(trainers, full.update, dict.fromkeys(full_tasks, 0.0), priority=1)
    return plan


WAYS: Sequence[str] = ("DP", "MP", "HP")
