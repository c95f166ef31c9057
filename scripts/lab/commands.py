"""The command line of `trepak lab`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from trepak.scripts.entrance import MOST_PROCESSES, console, seconds, value, whole_number
from trepak.scripts.errors import InputError, check_writable
from trepak.scripts.lab.topology import (
    MAX_HOSTS,
    MAX_PRIORITIES,
    PACKETS,
    check_name,
    parse_rate,
)


def add_parser(commands: Any) -> None:
    """Adds `lab` and its subcommands to the parser of the command `trepak`."""
    lab = commands.add_parser(
        "lab",
        help="a virtual cluster on this machine",
        description="Hosts, a switch with strict priorities and uneven workers on one Linux "
        "machine: network namespaces, a bridge and traffic control. Needs root.",
    )
    actions = lab.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    up = actions.add_parser("up", help="make a lab, or find it as it was made")
    up.add_argument(
        "-n",
        "--hosts",
        type=whole_number(1, MAX_HOSTS),
        default=4,
        metavar="N",
        help="(default: 4)",
    )
    up.add_argument(
        "--rate",
        type=value(parse_rate),
        default="1gbit",
        help="of each link, in either direction (default: 1gbit)",
    )
    up.add_argument(
        "--priorities",
        type=whole_number(1, MAX_PRIORITIES),
        default=2,
        metavar="N",
        help="classes at each port (default: 2)",
    )
    up.add_argument(
        "--packet",
        type=whole_number(PACKETS[0], PACKETS[-1]),
        default=0,
        metavar="BYTES",
        help="of the largest packet; larger ones cost less CPU and delay urgent ones longer "
        "(default: what a link carries in 0.25 ms)",
    )
    down = actions.add_parser("down", help="remove a lab, with all that runs in it")
    down.add_argument("--all", action="store_true", help="all labs of this machine")
    status = actions.add_parser("status", help="show the labs that are up, and their traffic")
    run = actions.add_parser(
        "run",
        help="run a command's ranks on the hosts",
        description="Starts the command on np ranks, spread over the hosts, and shows what they "
        "print, with the host in front. Everything that makes the hosts uneven holds for this run.",
    )
    _add_run_arguments(run)
    for action, function in ((up, _up), (down, _down), (status, _status), (run, _run)):
        action.add_argument(
            "--name", type=value(_name), default="lab", help="which lab (default: lab)"
        )
        action.set_defaults(run=function)


def _add_run_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "-np",
        type=whole_number(1, MOST_PROCESSES),
        metavar="N",
        help="ranks (default: one per host)",
    )
    run.add_argument("--gloo", action="store_true", help="communicate with Gloo, not with MPI")
    run.add_argument(
        "--elastic",
        type=value(shlex.split),
        metavar="OPTIONS",
        help='run it under `trepak elastic` with these options, e.g. --elastic="--hosts hosts.txt '
        '--min-np 1"; the hosts are w0 and so on',
    )
    conditions = run.add_argument_group("unevenness; each may be given several times")
    for option, form, meaning in (
        ("--link", "w2=200mbit", "rate of a host's link"),
        ("--slow", "w1=1.5", "factor by which a host's ranks compute longer"),
        (
            "--delay",
            "uniform:0:50ms[@w2,w3]",
            "delay of each step: uniform:LOW:HIGH, round-robin:SECONDS (rank after rank) or "
            "probability:P:SECONDS; of all ranks, or of some hosts'",
        ),
        ("--kill", "w1@step:30", "kill a host's ranks at the end of a step, counted from 0"),
    ):
        conditions.add_argument(option, action="append", default=[], metavar=form, help=meaning)
    conditions.add_argument(
        "--seed", type=whole_number(0, 2**31 - 1), default=0, help="of the delays (default: 0)"
    )
    run.add_argument("--timeout", type=seconds, metavar="SECONDS", help="stop the job after that")
    run.add_argument("--json", type=Path, metavar="FILE", help="write conditions and traffic here")
    run.add_argument("command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def _name(text: str) -> str:
    check_name(text)
    return text


def _up(options: argparse.Namespace) -> int:
    from trepak.scripts.lab import state

    lab, new = state.up(
        options.name, options.hosts, options.rate, options.priorities, options.packet
    )
    print(f"The lab {lab.name} is up{'' if new else ' already'}: {state.describe(lab)}.")
    return 0


def _down(options: argparse.Namespace) -> int:
    from trepak.scripts.lab import state

    names = [lab.name for lab in state.read_all()] if options.all else [options.name]
    for name in names:
        existed, foreign = state.down(name)
        print(f"The lab {name} is {'down' if existed else 'not up'}.")
        for line in foreign:
            print(f"trepak lab: {line}", file=sys.stderr)
    return 0


def _status(options: argparse.Namespace) -> int:
    from rich.table import Table

    from trepak.scripts.lab import network, state
    from trepak.scripts.lab.topology import format_rate

    labs = state.read_all()
    if not labs:
        print("No lab is up. `trepak lab up -n 4 --rate 1gbit` makes one.")
        return 0
    terminal = console()
    for lab in labs:
        running = list(network.processes(lab).values())
        table = Table(title=f"{lab.name}: {state.describe(lab)}", title_justify="left")
        for header in ("host", "address", "link", "processes", "sent, by class", "received"):
            table.add_column(header)
        traffic = network.read_traffic(lab)
        for host in lab.host_names:
            table.add_row(
                host,
                lab.address(host),
                format_rate(lab.link(host) or 0),
                str(running.count(host)),
                " / ".join(f"{n:,}" for n in traffic[host].sent),
                " / ".join(f"{n:,}" for n in traffic[host].received),
            )
        terminal.print(table)
    return 0


def _run(options: argparse.Namespace) -> int:
    from trepak.scripts.lab import host_conditions, job, network, report, state
    from trepak.scripts.surroundings import Surroundings

    network.check_root()
    lab = state.read(options.name)
    if lab is None:
        raise InputError(
            f"no lab {options.name} is up. `trepak lab up -n 4 --rate 1gbit` makes one."
        )
    command = options.command_line[options.command_line[:1] == ["--"] :]
    if not command:
        raise InputError("what shall run? `trepak lab run [OPTIONS] -- python train.py`.")
    if shutil.which(command[0]) is None:
        raise InputError(
            f"there is no program {command[0]!r}: `trepak lab run -- python train.py`."
        )
    check_writable(options.json)
    np = lab.hosts if options.np is None else options.np
    conditions = host_conditions.read(lab, options)
    planned = job.Job(
        *(command, np, options.gloo, conditions.variables(lab), conditions.links, options.elastic)
    )
    surroundings = Surroundings()
    result = job.run(lab, planned, report.shower(lab, np), options.timeout)
    return report.conclude(lab, planned, conditions, result, surroundings, options.json)
