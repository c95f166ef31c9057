"""The options of `trepak train resnet`, and of the training that it runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from trepak.scripts.entrance import Parser, whole_number

_MOST_STEPS, _MOST_BATCH = 10_000, 1 << 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds what both have."""
    parser.add_argument(
        "--batch",
        type=whole_number(1, _MOST_BATCH),
        default=256,
        metavar="N",
        help="images per step (default: 256)",
    )
    parser.add_argument(
        "--steps",
        type=whole_number(1, _MOST_STEPS),
        default=4,
        metavar="N",
        help="steps to train (default: 4)",
    )
    parser.add_argument(
        "--beyond",
        default="4GiB",
        metavar="SIZE|FOLDER",
        help="where swapped tensors lie: so much memory, or a folder's disk (default: 4GiB)",
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the training's options."""
    parser = Parser(prog="train_resnet", description="Trains ResNet-32 within a memory budget.")
    add_options(parser)
    parser.add_argument("--pool", metavar="SIZE", help="of trepak.Dymem (default: no Dymem)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    return parser.parse_args(arguments)
