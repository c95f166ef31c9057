"""AD-PSGD's peers: started for one optimizer on all ranks together, and ended with the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.horovod_ext import basics, exchange, flows
from trepak.ops import adpsgd as native
from trepak.ops.streams import connect_stream


def start(seed: int, dtype: Any, shapes: Sequence[Any]) -> int:
    """Starts AD-PSGD for one optimizer; a collective call.

    Args:
        seed: of the draws; the same on all ranks.
        dtype: of the parameters, float32 or float64.
        shapes: of the parameters.

    Returns:
        The number by which it is known.

    Raises:
        ValueError: the job is elastic.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    basics.reject_elastic("ADPSGD")
    stream = flows.begin_stream("adpsgd")
    address = native.start_adpsgd(
        native.AdpsgdOptions(
            stream=stream,
            job=flows.this_job(),
            seed=seed,
            dtype=dtype,
            shapes=shapes,
        )
    )
    connect_stream("adpsgd", stream, exchange.gather(address, "the addresses of AD-PSGD"))
    exchange.gather(None, "that all flows of AD-PSGD are open")
    return stream
