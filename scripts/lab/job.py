"""Runs a command's ranks on the hosts of a lab: with MPI, with Gloo, or as an elastic job."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trepak.scripts.idle_watch import IdleSeconds
from trepak.scripts.interrupts import uninterrupted
from trepak.scripts.lab import network, state
from trepak.scripts.lab.host_conditions import VARIABLES
from trepak.scripts.lab.network import LabError, Traffic
from trepak.scripts.lab.topology import HEAD, Lab
from trepak.scripts.launcher import (
    Line,
    Outcome,
    environment,
    horovodrun,
    sharing,
    supervise,
)

# Stands in for ssh: enters the host that is named and gives the rest to a shell there, whose $0 is
# the host. Options before and after the host are skipped.
_AGENT = """#!/bin/sh
host=
while [ $# -gt 0 ]; do
  case "$1" in
    -[olpiF]) shift ;;
    -*) ;;
    *) [ -z "$host" ] || break; host=$1 ;;
  esac
  shift
done
exec ip netns exec "trepak-$TREPAK_LAB-$host" unshare --uts sh -c '
  echo "$0" >/proc/sys/kernel/hostname
  if [ -f {folder}/"$0".env ]; then . {folder}/"$0".env; fi
  exec sh -c "$*"' "$host" "$@"
"""


@dataclass(frozen=True)
class Job:
    """What is to run in a lab.

    Attributes:
        command: program and arguments.
        np: number of ranks.
        gloo: whether they communicate with Gloo; by default with MPI.
        variables: by host, environment variables on top of the user's.
        links: by host, the rate of its link in this job, in bits per second.
        elastic: options of `trepak elastic`, `--hosts` among them, which then starts the ranks and
            lists the lab's hosts; None: the ranks stay the same.
    """

    command: Sequence[str]
    np: int
    gloo: bool = False
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    links: Mapping[str, int] = field(default_factory=dict)
    elastic: Sequence[str] | None = None

    @property
    def launcher(self) -> str:
        """What starts the ranks, in words."""
        if self.elastic is not None:
            return "trepak elastic"
        return "horovodrun --gloo" if self.gloo else "mpirun"


@dataclass(frozen=True)
class Result:
    """How a job in a lab ended.

    Attributes:
        outcome: exit code and output.
        seconds: how long it took, start-up included.
        traffic: by host, the bytes that travelled meanwhile.
        lost: a sentence for each rank that a signal ended: which, where, and the signal; empty for
            elastic jobs, which tell it themselves.
        idle_share: of the CPU, in the job's median second.
    """

    outcome: Outcome
    seconds: float
    traffic: dict[str, Traffic]
    lost: list[str]
    idle_share: float


def ranks_by_host(lab: Lab, np: int) -> dict[str, range]:
    """Returns each used host's ranks: they fill the hosts one after the other, evenly."""
    first, found = 0, {}
    for number, host in enumerate(lab.host_names):
        count = np // lab.hosts + (number < np % lab.hosts)
        if count:
            found[host] = range(first, first + count)
        first += count
    return found


def host_of(lab: Lab, np: int, rank: int) -> str:
    """Returns the host of a rank."""
    return next(host for host, ranks in ranks_by_host(lab, np).items() if rank in ranks)


def run(lab: Lab, job: Job, on_line: Callable[[Line], Any], timeout: float | None = None) -> Result:
    """Runs a job and waits for it; nothing of it is left when this returns or raises.

    Args:
        lab: a lab that is up.
        job: what to run.
        on_line: called with each line that is printed; a false answer says that it was not shown.
        timeout: seconds after which the job is stopped.

    Raises:
        LabError: another job runs in the lab, or a command that makes links failed.
        JobError: the job took longer than `timeout`.
    """
    with _alone(lab) as folder:
        _write_variables(lab, folder, job)
        agent = _write_agent(folder)
        state.stop_processes(lab)  # what a run left that was killed
        try:
            # All of them: that run may have changed others.
            for host in lab.host_names:
                network.set_link(lab, host, job.links.get(host, lab.rate))
            before, began = network.read_traffic(lab), time.monotonic()
            with IdleSeconds() as idle:
                outcome = supervise(
                    [*entering(agent), HEAD, shlex.join(_launcher(lab, job, agent))],
                    env=_environment(lab, folder),
                    on_line=on_line,
                    timeout=timeout,
                )
            seconds = time.monotonic() - began
            after = network.read_traffic(lab)
        finally:
            with uninterrupted():
                try:
                    state.stop_processes(lab)
                finally:
                    for host in job.links:
                        network.set_link(lab, host, lab.rate)
    traffic = {host: after[host].since(before[host]) for host in lab.host_names}
    lost = _lost(lab, job.np, outcome) if job.elastic is None else []
    return Result(outcome, seconds, traffic, lost, idle.median())


@contextlib.contextmanager
def _alone(lab: Lab) -> Iterator[Path]:
    """Holds the lab's folder; one job at a time, since jobs would slow each other."""
    folder = state.FOLDER / lab.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"a job runs in the lab {lab.name} already. Wait for it, or make another lab with "
                "`trepak lab up --name …`."
            ) from None
        yield folder


def start_in_host(
    lab: Lab, host: str, command: Sequence[str], output: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Starts one process on a host; the caller waits for it.

    Args:
        lab: a lab that is up.
        host: one of its hosts, or the head.
        command: program and arguments.
        output: where its output and error streams go; by default to pipes.

    Returns:
        The process.
    """
    folder = state.FOLDER / lab.name
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [*entering(_write_agent(folder)), host, shlex.join(command)],
        env=_environment(lab, folder),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
    )


def _environment(lab: Lab, folder: Path) -> dict[str, str]:
    """Returns a process's environment: it is the lab's, and calls the agent when it calls ssh."""
    path = f"{folder}:{os.environ.get('PATH', os.defpath)}"
    # What the user's shell says of unevenness is not what this lab was told, and what was told
    # differs by host: Gloo's launcher would give all ranks its own.
    mine = {k: v for k, v in environment().items() if k not in VARIABLES}
    return mine | {state.LAB_VARIABLE: lab.name, "PATH": path}


def _write_variables(lab: Lab, folder: Path, job: Job) -> None:
    for host in lab.host_names:
        # A cluster's hosts don't take each other's CPU when they wait.
        variables = sharing(job.np, job.launcher != "mpirun") | dict(job.variables.get(host, {}))
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
        (folder / f"{host}.env").write_text("".join(lines))


def _write_agent(folder: Path) -> Path:
    agent = folder / "ssh"  # horovodrun calls ssh, from the PATH
    new = folder / "ssh.new"
    new.write_text(_AGENT.replace("{folder}", shlex.quote(str(folder))))
    new.chmod(0o755)
    new.replace(agent)
    return agent


def entering(agent: Path) -> list[str]:
    """Returns how to call the agent: by the shell, which only reads it.

    The kernel refuses to execute a file that somebody has open for writing, and so has for a moment
    a process that another thread forks while this one writes the agent.
    """
    return ["/bin/sh", str(agent)]


def _launcher(lab: Lab, job: Job, agent: Path) -> list[str]:
    if job.elastic is not None:
        elastic = [sys.executable, "-m", "trepak.scripts.cli", "elastic", "-np", str(job.np)]
        elastic += ["--network-interface", "eth0", "--horovodrun=--start-timeout 60"]
        return [*elastic, *job.elastic, "--", *job.command]
    ranks = ranks_by_host(lab, job.np)
    hosts = ",".join(f"{host}:{len(its_ranks)}" for host, its_ranks in ranks.items())
    if job.gloo:
        gloo = ["--gloo", "--network-interfaces", "eth0", "--start-timeout", "60"]
        return [horovodrun(), "-np", str(job.np), "-H", hosts, *gloo, *job.command]
    options = {
        "plm_rsh_agent": str(agent),
        "plm_rsh_no_tree_spawn": "1",
        "pml": "ob1",
        "btl": "self,vader,tcp",
        "btl_tcp_if_include": "eth0",
        "oob_tcp_if_include": "eth0",
    }
    mca = [part for name, value in options.items() for part in ("--mca", name, value)]
    mpirun = ["mpirun", "--allow-run-as-root", "--tag-output", "--bind-to", "none"]
    return [*mpirun, "-np", str(job.np), "-H", hosts, *mca, *job.command]


_MPI_LOSS = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
_GLOO_LOSS = re.compile(r"Process name: (\d+)\s+Exit code: (\d+)")


def _lost(lab: Lab, np: int, outcome: Outcome) -> list[str]:
    text = "\n".join(line.text for line in outcome.lines if line.rank is None)
    found = {int(rank): int(number) for rank, number in _MPI_LOSS.findall(text)}
    # Gloo's launcher tells what a shell would: 128 and the signal's number.
    codes = {int(rank): int(code) for rank, code in _GLOO_LOSS.findall(text)}
    found |= {rank: code - 128 for rank, code in codes.items() if code > 128}
    return [
        f"rank {rank} on host {host_of(lab, np, rank)} was ended by signal {number}."
        for rank, number in sorted(found.items())
    ]
