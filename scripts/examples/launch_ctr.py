"""`trepak train ctr`: a model of clicks whose embedding tables lie on all ranks."""

from __future__ import annotations

import argparse
from typing import Any

from trepak.scripts.entrance import MOST_PROCESSES, whole_number
from trepak.scripts.errors import check_writable
from trepak.scripts.examples import ctr_options
from trepak.scripts.examples.launching import start

_TRAINING = "trepak.scripts.examples.train_ctr"


def add_parser(examples: Any) -> None:
    """Adds the example to those of `trepak train`."""
    parser = examples.add_parser(
        "ctr",
        help="predict clicks, with embedding tables that lie on all ranks",
        description="Trains a model of clicks whose embedding tables lie on all ranks, on "
        "generated clicks or on your files, and shows how well it predicts samples held out, how "
        "fast it is, and what each rank has. A minute on 2 cores.",
    )
    np = whole_number(1, MOST_PROCESSES)
    parser.add_argument("--np", type=np, default=2, metavar="N", help="ranks (default: 2)")
    parser.add_argument("--gloo", action="store_true", help="communicate with Gloo, not MPI")
    ctr_options.add_options(parser)
    parser.set_defaults(run=_launch)


def _launch(options: argparse.Namespace) -> int:
    ctr_options.check(options, options.np)
    check_writable(options.output / "ctr.png")
    return start(_TRAINING, ctr_options.as_arguments(options), options.np, options.gloo)
