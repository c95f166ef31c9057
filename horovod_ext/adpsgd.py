"""AD-PSGD's peers: started for one optimizer on all ranks together, and ended with the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trepak.horovod_ext import basics, sessions

_BULK = 0  # DSCP


def start(options: Mapping[str, Any]) -> int:
    """Opens a session of AD-PSGD for one optimizer; a collective call.

    Args:
        options: `seed`, the same on all ranks; `dtype` and `shapes` of the parameters.

    Returns:
        Its number.

    Raises:
        ValueError: the job is elastic.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    basics.reject_elastic("ADPSGD")
    return sessions.open_session("adpsgd", options, dscp=[_BULK])
