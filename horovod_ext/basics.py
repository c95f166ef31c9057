"""Start, stop and questions about the job: Horovod's own functions, with trepak's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import horovod.tensorflow as _hvd
from horovod.tensorflow import (  # noqa: F401
    ProcessSet,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    size,
    start_timeline,
    stop_timeline,
)

from trepak.horovod_ext import config, injection, liveness, mpi, timeline
from trepak.horovod_ext.failures import raise_lost_ranks


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Initialises Horovod for this process; a second call does nothing.

    Without a launcher (`horovodrun`, `mpirun`) the job has size 1.

    Args:
        comm: list of ranks, or an mpi4py communicator, that make up the job; all by default.
        process_sets: ProcessSet objects to register, or "dynamic".

    Raises:
        ValueError: a TREPAK_ environment variable is unknown, or its value is wrong.
        RuntimeError: the job runs under MPI, which the program has ended.
    """
    config.apply_to_horovod()
    raise_lost_ranks()
    if _hvd.is_initialized():
        return
    mpi.start()
    _hvd.init(comm=mpi.ranks_for_horovod(comm), process_sets=process_sets)
    liveness.announce(_hvd.rank(), _hvd.size(), _hvd.local_size() == _hvd.size())
    injection.apply(_hvd.rank(), _hvd.size())
    timeline.apply(_hvd.rank(), _hvd.size())
    for begin in _begins:
        begin()


_begins: list[Callable[[], None]] = []
_ends: list[Callable[[], None]] = []


def after_init(begin: Callable[[], None]) -> None:
    """Has something begun whenever Horovod was initialised from now on; no collective call."""
    if begin not in _begins:
        _begins.append(begin)


def before_shutdown(end: Callable[[], None]) -> None:
    """Has something ended before Horovod is shut down; what was given last, or again, first.

    Args:
        end: called once per shutdown; must do nothing where there is nothing to end.
    """
    if end in _ends:
        _ends.remove(end)
    _ends.append(end)


def shutdown() -> None:
    """Ends what trepak runs beside Horovod, then Horovod; `init` may follow."""
    for end in reversed(_ends):
        end()
    _hvd.shutdown()


def is_elastic() -> bool:
    """Tells whether ranks may come and go (`horovodrun --min-np …`)."""
    import os

    return bool(int(os.environ.get("HOROVOD_ELASTIC", "0")))


def reject_elastic(what: str) -> None:
    """Raises ValueError if the job is elastic, naming what needs ranks that stay."""
    if is_elastic():
        raise ValueError(
            f"{what} needs ranks that stay: start the job without --min-np and a discovery script."
        )


def dynamic_size(process_set: ProcessSet = global_process_set) -> Any:
    """Returns the process set's size: an int, or a tensor where it may change between steps."""
    if is_elastic():
        return _hvd.size_op(process_set_id=process_set.process_set_id)
    return process_set.size()
