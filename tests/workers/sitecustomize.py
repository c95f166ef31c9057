"""Python imports this first in the tests' jobs, whose path has this folder: they start faster.

Nothing here changes what a job does.
"""

from __future__ import annotations

import gc
import sys

# Keras imports these where they are installed. That takes as long as TensorFlow itself, in each of
# a job's processes.
_HELD_BACK = ("matplotlib", "pandas", "scipy", "sklearn")


def release() -> None:
    """Lets what was held back be imported, when Keras has been."""
    for name in _HELD_BACK:
        if name in sys.modules and sys.modules[name] is None:
            del sys.modules[name]


# TensorFlow's modules are a million objects, and traced functions tens of thousands each: looking
# for cycles among them takes a fifth of the time of an import, and of a trace.
_OBJECTS_BETWEEN_COLLECTIONS = 200_000


def _is_built(verbose: bool = False) -> bool:
    return True


if any("workers/" in argument for argument in sys.orig_argv):
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
    sys.modules.update(dict.fromkeys(_HELD_BACK))  # type: ignore[arg-type]  # None: not installed
    if any(argument.endswith("horovodrun") for argument in sys.orig_argv):
        # Before it starts anything, horovodrun imports TensorFlow in a process of its own, to
        # learn whether Horovod has MPI and Gloo. The set-up has checked that.
        from horovod.common import util

        util.mpi_built = util.gloo_built = _is_built
