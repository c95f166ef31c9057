"""The options of `trepak train ctr`, which its launcher and its ranks read alike."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from trepak.scripts.entrance import Parser, value, whole_number
from trepak.scripts.errors import InputError

_MODELS = ("wide_deep", "deepfm", "dcn")
STAGES = (0, 1, 4)  # these two are those of trepak.tf_plugins, which takes seconds to import
SHARDINGS = ("auto", "row", "column", "table")
_MOST = 10**9


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds what the ranks take."""
    add = parser.add_argument
    add("--model", choices=_MODELS, default="deepfm", help="(default: deepfm)")
    data = parser.add_mutually_exclusive_group()
    file = value(_file)
    data.add_argument(
        "--criteo", type=file, nargs="+", metavar="FILE", help="train on Criteo's files (*.gz too)"
    )
    data.add_argument("--avazu", type=file, nargs="+", metavar="FILE", help="or on Avazu's")
    data.add_argument(
        "--movielens",
        type=file,
        nargs=2,
        metavar=("RATINGS", "MOVIES"),
        help="or on MovieLens'; without files, clicks are generated",
    )
    count = whole_number(1, _MOST)
    add(
        "--samples",
        type=count,
        metavar="N",
        help="of an epoch, at most (default: 60,000 generated ones, all that files have)",
    )
    add("--batch-size", type=count, default=480, metavar="B", help="of all ranks (default: 480)")
    add("--dimension", type=count, default=16, metavar="D", help="of embeddings (default: 16)")
    add(
        "--scale",
        type=value(_scale),
        default=0.01,
        metavar="S",
        help="multiplies the data set's vocabularies (default: 0.01)",
    )
    add("--epochs", type=count, metavar="E", help="(default: 5; 1 for files)")
    add(
        "--stages",
        type=int,
        choices=STAGES,
        default=4,
        help="of the pipeline; 0 for none, 1 where no result may change (default: 4)",
    )
    add("--sharding", choices=SHARDINGS, default="auto", help="of the tables (default: auto)")
    add("--seed", type=whole_number(0, _MOST), default=0, metavar="N", help="(default: 0)")
    add(
        "--output",
        type=Path,
        default=Path("runs/ctr"),
        metavar="FOLDER",
        help="(default: %(default)s)",
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Returns the options of a rank."""
    parser = Parser(prog="train_ctr", description="Trains a model of clicks on all ranks.")
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.epochs is None:  # what it has seen of a file, a model with embeddings overfits
        options.epochs = 5 if source(options)[0] == "generated" else 1
    return options


def as_arguments(options: argparse.Namespace) -> list[str]:
    """Returns the options that are not the defaults, as `parse` takes them."""
    parser, found = argparse.ArgumentParser(), []
    add_options(parser)
    for name, default in vars(parser.parse_args([])).items():
        given = getattr(options, name)
        if given != default:
            values = given if isinstance(given, list) else [given]
            found += [f"--{name.replace('_', '-')}", *map(str, values)]
    return found


def check(options: argparse.Namespace, ranks: int) -> None:
    """Checks what depends on the number of ranks.

    Raises:
        InputError: a batch can't be split evenly, or there are not enough samples for one.
    """
    batch, samples = options.batch_size, options.samples
    if batch % ranks:
        raise InputError(
            f"--batch-size is of all ranks: choose a multiple of {ranks}, found {batch}."
        )
    if samples is not None and samples < batch:
        raise InputError(f"--samples must be at least --batch-size, {batch}, found {samples}.")


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise ValueError(f"there is no file {text!r}: check the path.")
    return Path(text)


def _scale(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= 10:
        raise ValueError(f"must be above 0 and at most 10, found {text!r}.")
    return found


def source(options: argparse.Namespace) -> tuple[str, Any]:
    """Returns which data are trained on, and their files; ("generated", ()) without files."""
    named = ((name, getattr(options, name)) for name in ("criteo", "avazu", "movielens"))
    return next(((name, files) for name, files in named if files), ("generated", ()))
