"""One process of a bench: it is told what to measure, and writes it; see `ranks`."""

from __future__ import annotations

import argparse
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trepak


def options() -> argparse.Namespace:
    """Returns this process's options: `spec` is what to measure, `output` the file to write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", type=_unpickled, required=True, help="what to measure")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--task", type=int, help="number of this process, without a launcher")
    return parser.parse_args()


def _unpickled(file: str) -> Any:
    return pickle.loads(Path(file).read_bytes())


def main(measure: Callable[[Any], Any]) -> None:
    """Measures together with the other ranks; rank 0 writes what all measured, by rank.

    Args:
        measure: takes the spec, and returns what this rank measured: anything JSON has.
    """
    given = options()
    trepak.init()
    outcomes = trepak.allgather_object(measure(given.spec))
    if trepak.rank() == 0:
        given.output.write_text(json.dumps(outcomes))
    trepak.shutdown()
