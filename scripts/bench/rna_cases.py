"""What `trepak bench rna` trains, and how unevenly.

Injected delays are ten times the thesis', so that one machine can keep up with all ranks. A step
takes 350 ms on average in all cases but those with "mixed", "uneven", "accuracy" and "even".
"""

from __future__ import annotations

import dataclasses

from trepak.scripts.bench.uneven.cases import STEP_MS, Case, RankTimes
from trepak.scripts.bench.uneven.methods import ADPSGD, EAGER, GROUPED, HOROVOD, RNA

ALL_METHODS = (HOROVOD, RNA, EAGER, ADPSGD)

SCALING = "transformer"  # the case that is run with fewer ranks too (Figure 5.6)
_EVEN, _SLOW = RankTimes(100, 0, 500), RankTimes(100, 500, 1000)


def cases(size: int) -> list[Case]:
    """Returns all cases for so many ranks."""
    even, video = [_EVEN] * size, [RankTimes(videos=STEP_MS)] * size
    return [
        Case("resnet", "residual", even, 100, 65_956, 0.02, 2, 0.4, ALL_METHODS),
        _mixed(Case("mixed", "residual", even, 100, 65_956, 0.02, 2, 0.4, ALL_METHODS)),
        Case("lstm", "videos", video, 100, 33_637, 0.04, 1, 1.6, ALL_METHODS),
        _sentences(size, 0.5),
        dataclasses.replace(
            _sentences(size, 0.5),
            name="transformer uneven",  # in the thesis' heterogeneous cluster
            ranks=[RankTimes(low=_EVEN.low, high=_EVEN.high, sentences=True)] * size,
        ),
        Case("vgg", "dense", even, 200, 105_092, 0.02, 2, 1.2, ALL_METHODS),
        _mixed(Case("vgg mixed", "dense", even, 200, 105_092, 0.02, 2, 1.2, ALL_METHODS, seeds=1)),
        *_to_the_end(size),
        Case(
            "even",
            "residual",
            [RankTimes(100)] * size,
            1,
            65_956,
            0.02,
            2,
            None,
            (HOROVOD, RNA),
            epochs=2,
        ),
        *(_sentences(ranks) for ranks in (2, 4) if ranks < size),
    ]


def _mixed(case: Case, even: RankTimes = _EVEN, slow: RankTimes = _SLOW) -> Case:
    """Returns the case with half of the ranks slow, and with groups."""
    size = len(case.ranks)
    half = size // 2
    return dataclasses.replace(
        case,
        ranks=[even] * half + [slow] * (size - half),
        methods=(*case.methods, GROUPED),
        groups=[[*range(half)], [*range(half, size)]],
    )


def _sentences(size: int, target: float | None = None) -> Case:
    """Returns the transformer's case; a ring of 8 ranks takes 150 ms on its links."""
    name = SCALING if target is not None else f"{SCALING} on {size}"
    ring = 150 * ((size - 1) / size) / (7 / 8)
    ranks = [RankTimes(sentences=True)] * size
    case = Case(name, "sentences", ranks, ring, 21_636, 0.02, 1, target, ALL_METHODS)
    return case if target is not None else dataclasses.replace(case, epochs=1, seeds=1)


def _to_the_end(size: int) -> list[Case]:
    """Returns the cases of accuracies, at half the time per step; an epoch is a pass of 8 ranks."""
    even, slow = RankTimes(50, 0, 250), RankTimes(50, 250, 500)
    case = Case(
        "accuracy", "noisy", [even] * size, 50, 65_956, 0.1, 32, None, ALL_METHODS, epochs=200
    )
    resnet = dataclasses.replace(case, epoch_steps=16, to_the_end=True)
    vgg = dataclasses.replace(
        resnet,
        name="accuracy vgg",
        task="noisy dense",
        exchange_ms=100,
        parameters=105_092,
        rate=0.05,
        seeds=3,
    )
    lstm = dataclasses.replace(
        resnet,
        name="accuracy lstm",
        task="noisy videos",
        ranks=[RankTimes(videos=STEP_MS / 2)] * size,
        parameters=33_637,
        rate=0.05,
        seeds=3,
    )
    mixed = [
        dataclasses.replace(
            _mixed(one, even, slow), name=name, methods=(HOROVOD, GROUPED, EAGER, ADPSGD), seeds=1
        )
        for one, name in ((resnet, "accuracy mixed"), (vgg, "accuracy vgg mixed"))
    ]
    return [resnet, vgg, lstm, *mixed]
