"""The command line of `trepak elastic`."""

from __future__ import annotations

import argparse
import shlex
import shutil
from pathlib import Path
from typing import Any

from trepak.scripts.entrance import MOST_PROCESSES, value, whole_number
from trepak.scripts.errors import InputError

_SHOWN = "trepak elastic -np 4 --min-np 2 --hosts ./hosts.sh -- python train.py"
# A host is tried again after 2 to 3 times the first, then after twice as long each time. 30: a rank
# that died of its machine's troubles should not interrupt the others again within a minute. 300: a
# host that is well again should not be missed for longer than a new one takes to come.
_COOLDOWN = (30, 300)
_MOST_COOLDOWN = 3600  # Horovod's bound


def add_parser(commands: Any) -> None:
    """Adds `elastic` to the parser of the command `trepak`."""
    parser = commands.add_parser(
        "elastic",
        help="run a job whose hosts come and go",
        description="Runs a command's ranks under Horovod Elastic, on the hosts that a script or a "
        "file lists. A host whose rank gets SIGTERM leaves without a failure.",
    )
    count = whole_number(1, MOST_PROCESSES)
    parser.add_argument(
        "-np", type=count, required=True, metavar="N", help="ranks with which the job begins"
    )
    parser.add_argument(
        "--min-np", type=count, metavar="N", help="ranks that it must keep (default: -np)"
    )
    parser.add_argument(
        "--max-np", type=count, metavar="N", help="ranks at most (default: all slots)"
    )
    parser.add_argument(
        "--hosts",
        type=Path,
        required=True,
        metavar="FILE",
        help="a program that prints name:slots lines, or a text file of them; read each second",
    )
    parser.add_argument(
        "--cooldown",
        type=whole_number(1, _MOST_COOLDOWN),
        nargs=2,
        default=_COOLDOWN,
        metavar=("LOW", "HIGH"),
        help="seconds for which a host is not used on which a rank died: 2 to 3 times LOW, twice "
        f"as long each time, HIGH at most (default: {' '.join(map(str, _COOLDOWN))})",
    )
    parser.add_argument(
        "--network-interface",
        action="append",
        default=[],
        metavar="NAME",
        help="for communication; may be given several times (default: Horovod finds them)",
    )
    parser.add_argument(
        "--horovodrun",
        type=value(shlex.split),
        action="extend",
        default=[],
        metavar="OPTIONS",
        help='further options of horovodrun, e.g. --horovodrun="--ssh-port 2222 --verbose"',
    )
    parser.add_argument("command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from trepak.scripts.elastic import job

    command = options.command_line[options.command_line[:1] == ["--"] :]
    if not command:
        raise InputError(f"what shall run? `{_SHOWN}`.")
    if shutil.which(command[0]) is None:
        raise InputError(f"there is no program {command[0]!r}: `{_SHOWN}`.")
    least = options.np if options.min_np is None else options.min_np
    if not least <= options.np <= (options.max_np or options.np):
        raise InputError("--min-np may be no more than -np, and --max-np no less.")
    if options.cooldown[0] > options.cooldown[1]:
        raise InputError("--cooldown: LOW may be no more than HIGH.")
    return job.run(
        job.Job(
            command,
            options.hosts,
            options.np,
            least,
            options.max_np,
            tuple(options.cooldown),
            options.network_interface,
            options.horovodrun,
        )
    )
