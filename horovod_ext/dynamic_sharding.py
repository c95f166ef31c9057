"""One order of samples for all ranks: started on all of them, on the job's parameter servers."""

from __future__ import annotations

from trepak.horovod_ext import basics, exchange, flows, parameter_server
from trepak.ops import dynamic_sharding as native


def start() -> int:
    """Begins an order of which nothing has been taken; a collective call.

    Returns:
        Its key, for `trepak.ops.dynamic_sharding.take_samples`.

    Raises:
        ValueError: the job is elastic.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    basics.reject_elastic("samples that ranks take from one order")
    key = parameter_server.key_of_stream(flows.draw_number())
    native.begin_order(key, is_first=basics.rank() == 0)
    exchange.gather(None, "that samples can be taken")
    return key
