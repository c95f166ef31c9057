"""How examples begin: one command that starts their ranks."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from trepak.scripts.launcher import launch, sharing


def start(training: str, arguments: Sequence[str], np: int, gloo: bool) -> int:
    """Starts a training, says how to start it by hand, and returns its exit code.

    Args:
        training: the module.
        arguments: of the training.
        np: how many ranks.
        gloo: communicate with Gloo, not MPI.
    """
    launcher = ["horovodrun", *(["--gloo"] if gloo else []), "-np", str(np)]
    print(f"$ {shlex.join([*launcher, 'python', '-m', training, *arguments])}", flush=True)
    # mpirun gives ranks a terminal, wherever their output goes.
    env = sharing(np, gloo) | ({} if sys.stdout.isatty() else {"TERM": "dumb"})
    return launch(np, [sys.executable, "-m", training, *arguments], gloo=gloo, env=env).exit_code
