"""MPI that outlives Horovod, so that `init` may follow `shutdown`.

MPI can be started once per process. Horovod ends it when it is shut down, but only where it has
started it itself: so trepak starts it first, and ends it when the process ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Any

import horovod.tensorflow as _hvd

_THREAD_MULTIPLE = 3  # MPI_THREAD_MULTIPLE of every MPI; Horovod asks for it, too


def start() -> None:
    """Starts MPI if this job runs under it and nobody has started it yet.

    Raises:
        RuntimeError: MPI has ended in this process, so Horovod can't start under it again.
    """
    if not _is_used():
        return
    # Horovod's own library names the MPI it was built with; mpi4py would change error handlers.
    mpi = _hvd.mpi_ops._basics.MPI_LIB_CTYPES
    if _holds(mpi.MPI_Finalized):
        raise RuntimeError(
            "MPI has ended in this process and can't be started again, so init() can't follow. "
            "Don't call MPI_Finalize before the program's end, and leave "
            "HOROVOD_MPI_THREADS_DISABLE unset: with it MPI ends with Horovod."
        )
    if _holds(mpi.MPI_Initialized) or _is_set("HOROVOD_MPI_THREADS_DISABLE"):
        return
    # A rank that is done, or has failed, ends at once: by default OpenMPI has it wait for all
    # others, and mpirun would not learn of its failure. Other MPIs don't know the variable.
    os.environ.setdefault("OMPI_MCA_async_mpi_finalize", "1")
    atexit.register(_end, os.getpid())  # before Horovod's own handler, so it is called after that
    mpi.MPI_Init_thread(None, None, ctypes.c_int(_THREAD_MULTIPLE), ctypes.byref(ctypes.c_int()))


_had_ranks = False  # whether an `init` of this process was given a list of ranks


def ranks_for_horovod(comm: Any) -> Any:
    """Returns the `comm` for Horovod's own `init`, which may be another way to name the same ranks.

    Horovod goes on with a list of ranks until it is given another list.

    Args:
        comm: what trepak's `init` was given: None, a list of ranks, or an mpi4py communicator.
    """
    global _had_ranks
    if not _is_used() or isinstance(comm, list | tuple | range):
        _had_ranks = _had_ranks or bool(comm)
        return comm
    if not _had_ranks:
        return comm
    from mpi4py import MPI

    world = MPI.COMM_WORLD.Get_group()
    group = world if comm is None else comm.Get_group()
    return [int(rank) for rank in group.Translate_ranks(None, world)]


def _is_used() -> bool:
    """Tells whether Horovod will use MPI: it does for whatever is not set to something else."""
    uses = ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS")
    chosen = [os.environ.get(name, "mpi").lower() for name in uses]
    return bool(_hvd.mpi_built()) and "mpi" in chosen


def _is_set(name: str) -> bool:
    text = os.environ.get(name, "0")
    return text.strip().isdigit() and int(text) > 0


def _holds(question: Any) -> bool:
    answer = ctypes.c_int(0)
    question(ctypes.byref(answer))
    return bool(answer.value)


def _end(starter: int) -> None:
    """Ends MPI, in the process that has started it and not in one forked from it."""
    mpi = _hvd.mpi_ops._basics.MPI_LIB_CTYPES
    if os.getpid() == starter and not _holds(mpi.MPI_Finalized):
        mpi.MPI_Finalize()
