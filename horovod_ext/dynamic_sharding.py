"""One order of samples for all ranks: started on all of them, on the job's parameter servers."""

from __future__ import annotations

from trepak.horovod_ext import basics, parameter_server, sessions
from trepak.horovod_ext.agreement import Fact, Values, check_alike
from trepak.horovod_ext.gradient_transport import GradientTransport
from trepak.ops.loader import call


def start(samples: int, seed: int, servers: GradientTransport) -> int:
    """Begins an order of which nothing has been taken; a collective call.

    Args:
        samples: how many there are.
        seed: of the order.
        servers: parameter servers, which are started.

    Returns:
        Its key on the parameter servers.

    Raises:
        ValueError: the job is elastic, the servers run with other options, or ranks have given
            different numbers.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    basics.reject_elastic("samples that ranks take from one order")
    servers.start()
    key = parameter_server.key_of(sessions.draw_number())
    call("begin_order", key=key, size=basics.size(), is_first=basics.rank() == 0)
    remedy = "give all ranks the same, and the number of all samples, not of a shard"
    taken = {"samples": samples, "seed": seed}
    facts = [Fact(f"dynamic_sharding's {name}", value, remedy) for name, value in taken.items()]
    check_alike(facts, Values(), "when it begins")
    return key
