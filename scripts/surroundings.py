"""What surrounds a measurement: the machine, the versions, and what else ran."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from trepak.scripts.idle_watch import IdleWatch

_DISTRIBUTIONS = ("trepak", "tensorflow-cpu", "tensorflow", "keras", "horovod", "mpi4py", "numpy")


class Surroundings:
    """Notes what else the machine did while a bench ran: what disturbs it shows in the report."""

    def __init__(self) -> None:
        """Starts to watch."""
        self._load = os.getloadavg()[0]
        self._cpu = IdleWatch()

    def environment(self, launcher: str) -> dict[str, Any]:
        """Returns the environment of a bench that has just ended.

        Args:
            launcher: the command line that started its processes.
        """
        return {
            "cores": len(os.sched_getaffinity(0)),
            "cpu": _cpu_model(),
            "system": platform.platform(),
            "versions": _versions(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "launcher": launcher,
            "load_average_before": round(self._load, 2),
            "load_average_after": round(os.getloadavg()[0], 2),
            "cpu_idle_share": self._cpu.share(),
            "cpu_stolen_share": self._cpu.stolen(),
        }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def commit() -> str | None:
    """Returns the commit of the checkout that runs, "-dirty" if it was changed; None without one.

    An installed copy lies in a folder of its own, which may be in someone else's checkout.
    """
    here = Path(__file__).resolve().parent
    if not (here.parent / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
