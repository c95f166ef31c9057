"""Trains the digits on two processes with one command: what `make train` runs."""

from __future__ import annotations

import argparse
import sys

from trepak.scripts.launcher import launch

_TRAINING = "trepak.scripts.train_digits"


def main(arguments: list[str] | None = None) -> int:
    """Launches the training and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="launch_digits",
        description=(__doc__ or "").split("\n")[0],
        epilog="All other options go to the training: --epochs, --batch-size, --output, --seed.",
        allow_abbrev=False,
    )
    parser.add_argument("-np", type=int, default=2, help="number of processes (default: 2)")
    parser.add_argument("--gloo", action="store_true", help="communicate with Gloo, not MPI")
    options, training = parser.parse_known_args(arguments)
    if options.np < 1:
        parser.error("-np must be at least 1.")
    shown = " ".join(["horovodrun", "-np", str(options.np), "python", "-m", _TRAINING, *training])
    print(f"$ {shown}", flush=True)
    command = [sys.executable, "-m", _TRAINING, *training]
    return launch(options.np, command, gloo=options.gloo).exit_code


if __name__ == "__main__":
    sys.exit(main())
