"""`trepak train resnet`: a batch that plain TensorFlow has no room for, in the same pool."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trepak.scripts.entrance import console, table_of
from trepak.scripts.errors import InputError, UserError
from trepak.scripts.examples import resnet_options

_TRAINING = "trepak.scripts.examples.train_resnet"
_MIB = 1 << 20
_TIMEOUT = 1800.0  # seconds of a training


def add_parser(examples: Any) -> None:
    """Adds the example to those of `trepak train`."""
    parser = examples.add_parser(
        "resnet",
        help="train ResNet-32 in a pool in which plain TensorFlow has no room",
        description="Trains ResNet-32 on digits of 64 pixels, three times: in a pool without "
        "Dymem, in the same pool with it, and with as much memory as it takes; then compares the "
        "weights. A minute or two on 2 cores.",
    )
    resnet_options.add_options(parser)
    parser.add_argument(
        "--pool", default="500MiB", metavar="SIZE", help="the pool's size (default: 500MiB)"
    )
    parser.set_defaults(run=_launch)


def _launch(options: argparse.Namespace) -> int:
    from trepak.tf_plugins.memory.sizes import bytes_of, is_size

    try:
        pool = bytes_of(options.pool, "--pool")
    except ValueError as error:
        raise InputError(str(error)) from error
    if pool < _MIB:
        raise InputError(f"--pool={options.pool} is {pool} bytes: write a unit, such as 500MiB.")
    if not is_size(options.beyond) and not Path(options.beyond).is_dir():
        raise InputError(f"--beyond: there is no folder {options.beyond}, and it is no size.")
    common = ["--batch", str(options.batch), "--steps", str(options.steps)]
    swapping = ["--pool", options.pool, "--beyond", options.beyond]
    capped = {
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(pool // _MIB),
    }
    rows = [
        (f"plain TensorFlow in {options.pool}", _train(common, capped)),
        (f"trepak.Dymem in {options.pool}", _train([*common, *swapping], {})),
        ("plain TensorFlow, all memory", _train(common, {})),
    ]
    table = table_of(f"ResNet-32, {options.batch} images per step", "", "last step", "weights")
    for way, told in rows:
        seconds = f"{told['seconds']:.1f} s" if "seconds" in told else "no room"
        table.add_row(way, seconds, told.get("weights", ""))
    console().print(table)
    return _judge(rows[1][1], rows[2][1])


def _judge(dymem: dict[str, Any], plain: dict[str, Any]) -> int:
    for told, way in ((dymem, "in the pool"), (plain, "with all memory")):
        if "weights" not in told:
            print(f"It found no room {way}: {told['no_room']}", file=sys.stderr)
            return 1
    same = dymem["weights"] == plain["weights"]
    print("The weights are the same, bit for bit." if same else "The weights differ.")
    return 0 if same else 1


def _train(arguments: list[str], env: dict[str, str]) -> dict[str, Any]:
    """Trains in a process of its own; returns what it told."""
    variables = [f"{name}={value}" for name, value in env.items()]
    command = ["python", "-m", _TRAINING, *arguments]
    print(f"$ {shlex.join([*variables, *command])}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        try:
            ended = subprocess.run(
                [sys.executable, *command[1:], "--json", str(told)],
                env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **env},
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(
                f"the training took more than {_TIMEOUT:.0f} s: give it fewer --steps."
            ) from None
        print(flush=True)
        if told.exists():
            result: dict[str, Any] = json.loads(told.read_text())
            return result
    # A convolution of oneDNN ends the process if it gets no memory.
    return {"no_room": f"the process ended with exit code {ended.returncode}"}
