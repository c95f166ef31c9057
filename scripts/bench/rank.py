"""One process of a bench: it is told what to measure, and writes it; see `ranks`."""

from __future__ import annotations

import argparse
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import trepak

_T = TypeVar("_T")


def options() -> argparse.Namespace:
    """Returns this process's options: `spec` is what to measure, `output` the file to write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", type=_unpickled, required=True, help="what to measure")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--task", type=int, help="number of this process, without a launcher")
    return parser.parse_args()


def _unpickled(file: str) -> Any:
    return pickle.loads(Path(file).read_bytes())


def main(measure: Callable[[Any], Any], **init: Any) -> None:
    """Measures together with the other ranks; rank 0 writes what all measured, by rank.

    Args:
        measure: takes the spec, and returns what this rank measured: anything JSON has.
        init: see `trepak.init`.
    """
    given = options()
    trepak.init(**init)
    outcomes = trepak.allgather_object(measure(given.spec))
    if trepak.rank() == 0:
        given.output.write_text(json.dumps(outcomes))
    trepak.shutdown()


def rounds_of(methods: Sequence[_T], rounds: int) -> Iterator[list[_T]]:
    """Yields the order of the methods in each round: every other one is backwards.

    What disturbs the machine disturbs all of them, and what drifts does not favour any.
    """
    for number in range(rounds):
        yield [*methods] if number % 2 == 0 else [*methods[::-1]]
