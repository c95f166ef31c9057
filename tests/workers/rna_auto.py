"""Groups that RNA makes of the times of steps, on real ranks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from unittest import mock

import keras
import numpy as np
from exactness import dense_model
from harness import case
from rna import batch, check_equal_on_all_ranks, trainer

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange, rna_groups

PROCESS_SETS = "dynamic"


@case
def ranks_are_split_by_their_times_and_joined_again() -> Any:
    """A rank that stands still for a second is as slow as its few steps were, which is right.

    So what is split here is not what was measured, but what the machine can't add to: the least
    that the ranks' steps take.
    """
    keras.utils.set_random_seed(3)
    model = dense_model()
    sync = trepak.RNA(groups="auto", period=2, quorum=2)  # more than the slow rank alone
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), sync=sync)
    step = trainer(model, optimizer)
    found = []
    last = hvd.size() - 1
    split = rna_groups.split
    for slow in (0.2, 0.2, 0.02, 0.02):
        least = {rank: slow if rank == last else 0.02 for rank in range(hvd.size())}

        def planted(times: Mapping[int, float], least: Any = least) -> list[list[int]]:
            assert all(time >= least[rank] for rank, time in times.items()), times
            return split({rank: least[rank] for rank in times})

        for number in range(8):
            step(*batch(number))
            time.sleep(least[hvd.rank()])
        with mock.patch.object(rna_groups, "split", planted):
            optimizer.flush()
        check_equal_on_all_ranks(model)
        if found and found[-1] != optimizer._trepak.step.groups:
            slots = [np.asarray(v).tolist() for v in optimizer.variables]
            everyone = exchange.gather(slots, "slots")
            assert all(theirs == everyone[0] for theirs in everyone), "slots differ"
        found.append(optimizer._trepak.step.groups)
    apart, together = [[*range(last)], [last]], [[*range(hvd.size())]]
    assert found == [apart, apart, together, together], found
    return found
