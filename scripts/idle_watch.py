"""How idle the CPU is: where emulated accelerators and networks can be believed."""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import psutil

_T = TypeVar("_T")
LEAST_IDLE = 0.20  # share of the CPU; below it, emulated results are not to be believed
MOST_STOLEN = 0.03  # share that others on the same hardware may take of what is to count


def undisturbed(measured: Iterable[_T], stolen: Callable[[_T], float]) -> list[_T]:
    """Returns what was measured while others left the CPU alone; all, if there is nothing.

    Args:
        measured: several measurements.
        stolen: returns the share of the CPU that others took during one.
    """
    found = list(measured)
    return [one for one in found if stolen(one) <= MOST_STOLEN] or found


class IdleWatch:
    """Tells which share of the CPU was idle since it was made, on this process's cores."""

    def __init__(self) -> None:
        """Starts to watch."""
        self._before = self._now()

    @staticmethod
    def _now() -> dict[str, float]:
        cores, mine = psutil.cpu_times(percpu=True), os.sched_getaffinity(0)
        used = [times for core, times in enumerate(cores) if core in mine] or cores
        return {state: sum(getattr(t, state) for t in used) for state in used[0]._fields}

    def share(self) -> float:
        """Returns the idle share since then, between 0 and 1."""
        return self._share("idle", "iowait")

    def stolen(self) -> float:
        """Returns the share that other machines on the same hardware took."""
        return self._share("steal")

    def shares(self) -> dict[str, float]:
        """Returns both, by `idle` and `stolen`."""
        return {"idle": self.share(), "stolen": self.stolen()}

    def _share(self, *states: str) -> float:
        now = self._now()
        spent = {state: now[state] - self._before[state] for state in now}
        # Linux counts guests' time under user and nice as well.
        total = sum(v for k, v in spent.items() if not k.startswith("guest")) or 1.0
        return round(float(sum(spent.get(state, 0.0) for state in states) / total), 3)


class IdleSeconds:
    """Tells the idle share of the median second, so that a job's start does not count; a context.

    Processes that import TensorFlow fill the CPU for a while, whatever comes after.
    """

    def __init__(self) -> None:
        """Prepares; `with` begins to watch."""
        self._shares: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> IdleSeconds:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        over = False
        while not over:
            watch = IdleWatch()
            over = self._stop.wait(1.0)
            if not over or not self._shares:
                self._shares.append(watch.share())

    def median(self) -> float:
        """Returns the median second's idle share, between 0 and 1; after the context's end."""
        return statistics.median(self._shares)
