"""Runs the cases of several workers in one job; see harness.py."""

from __future__ import annotations

import importlib
import sys

import harness


def main(arguments: list[str]) -> None:
    """Imports the workers and runs their cases; a module may ask for PROCESS_SETS."""
    names = dict.fromkeys(argument.partition(":")[0] for argument in arguments)
    modules = [importlib.import_module(name) for name in names]
    wanted = [getattr(module, "PROCESS_SETS", ()) for module in modules]
    # Two workers may share a set, which is registered once.
    static = list(dict.fromkeys(one for sets in wanted if sets != "dynamic" for one in sets))
    harness.main(arguments, "dynamic" if "dynamic" in wanted else static)


if __name__ == "__main__":
    main(sys.argv[1:])
