"""Trains the digits on two processes with one command: what `make train` runs."""

from __future__ import annotations

import functools
import sys

from trepak.scripts.entrance import MOST_PROCESSES, Parser, run_command, whole_number
from trepak.scripts.examples.launching import start

_TRAINING = "trepak.scripts.examples.train_digits"


def main(arguments: list[str] | None = None) -> int:
    """Launches the training and returns its exit code."""
    return run_command(functools.partial(_main, arguments))


def _main(arguments: list[str] | None) -> int:
    parser = Parser(
        prog="launch_digits",
        description=(__doc__ or "").split("\n")[0],
        epilog="All other options go to the training: --epochs, --batch-size, --output, --seed.",
        allow_abbrev=False,
    )
    np = whole_number(1, MOST_PROCESSES)
    parser.add_argument("-np", type=np, default=2, help="number of processes (default: 2)")
    parser.add_argument("--gloo", action="store_true", help="communicate with Gloo, not MPI")
    options, training = parser.parse_known_args(arguments)
    return start(_TRAINING, training, options.np, options.gloo)


if __name__ == "__main__":
    sys.exit(main())
