"""What `trepak bench elastic_bsp` trains, and how unevenly."""

from __future__ import annotations

import dataclasses

from trepak.scripts.bench.uneven.cases import Case, RankTimes
from trepak.scripts.bench.uneven.methods import ASP, HOROVOD, SSP, elastic_bsp

FACTORS = (1.0, 1.25, 1.6, 2.0)  # by which ranks compute longer than the fastest
LOOKAHEADS = (15, 30, 60, 120, 240)
ELASTIC = tuple(elastic_bsp(lookahead) for lookahead in LOOKAHEADS)
# One step ahead is bulk synchronous, by the same servers: what of a gain is due to barriers.
SERVED_BSP = elastic_bsp(1)
ALL_METHODS = (HOROVOD, SERVED_BSP, SSP, ASP, *ELASTIC)
COMPARED = (HOROVOD, SSP, ASP, ELASTIC[0])  # those that final accuracies are compared of

_COMPUTE_MS = 100.0  # of the fastest
_JITTER = 0.04  # of a rank's own time, at most
_TRIALS = 3
# Final accuracies are asked to be within 0.3 points. Chosen by how far those of single trials are
# apart, whatever the methods (docs/results/elastic_bsp.md).
_EPOCHS, _DECAYED = 6, 2
_FINAL_SAMPLES = 65_536


def _ranks(each: int) -> list[RankTimes]:
    """Returns ranks of all speeds, so many of each."""
    times = [_COMPUTE_MS * factor for factor in FACTORS for _ in range(each)]
    return [RankTimes(time, 0, _JITTER * time) for time in times]


def cases() -> list[Case]:
    """Returns all cases: two networks on 4 ranks, and on 8 with half the batch.

    The last third of the epochs has a tenth of the learning rate, as the paper's last 100 of 300
    have. In an epoch the fastest ranks take more steps than the longest lookahead.

    Of the parameters of "alexnet" 98% are Dense layers', and they take longer to exchange; those of
    "resnet" are 94% convolutions', as in the networks of these names.
    """
    alexnet = Case(
        "alexnet",
        "dense",
        _ranks(1),
        exchange_ms=10,
        parameters=105_092,
        rate=0.02,
        batch=4,
        target=None,
        methods=ALL_METHODS,
        target_accuracy=0.7,
        epochs=_EPOCHS,
        epoch_steps=192,
        decayed_epochs=_DECAYED,
        seeds=_TRIALS,
        dynamic_sharding=True,
        records=True,
        snapshot_s=1.0,
        final_samples=_FINAL_SAMPLES,
    )
    resnet = dataclasses.replace(
        alexnet,
        name="resnet",
        task="textures",
        exchange_ms=5,
        parameters=66_140,
        rate=0.04,
        target_accuracy=0.8,
    )
    on_eight = [_on_eight(alexnet), _on_eight(resnet)]
    return [alexnet, resnet, *on_eight]


def _on_eight(case: Case) -> Case:
    return dataclasses.replace(case, name=f"{case.name} on 8", ranks=_ranks(2), batch=2)
