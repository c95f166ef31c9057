"""Shows how the duality gap falls while a linear model is fitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trepak.horovod_ext import basics
from trepak.tf_plugins.chicle.trainer import IterationMetrics

_SECONDS = 0.5  # between two lines


@contextmanager
def progress(model: Any) -> Iterator[Callable[[IterationMetrics], None] | None]:
    """Yields what is to be called after each iteration; None where nothing is to be shown."""
    if not model.verbose:
        yield None
        return
    name, shown = type(model).__name__, -_SECONDS
    last: IterationMetrics | None = None

    def show(metrics: IterationMetrics) -> None:
        nonlocal shown, last
        if basics.is_initialized() and basics.rank() != 0:  # of now, in an elastic job
            return
        last = metrics
        if time.monotonic() - shown >= _SECONDS:
            shown, last = time.monotonic(), None
            print(_line(name, metrics), flush=True)

    yield show
    if last is not None:
        print(_line(name, last), flush=True)


def _line(name: str, metrics: IterationMetrics) -> str:
    values, tasks = metrics.values, metrics.tasks
    slowest = max((task.seconds for task in tasks.values()), default=0.0)
    took = f"1 task, {1000 * slowest:.1f} ms"
    if len(tasks) != 1:
        took = f"{len(tasks)} tasks, the slowest {1000 * slowest:.1f} ms"
    return (
        f"{name} iteration {metrics.iteration}: duality gap {values['gap']:.2e}, objective "
        f"{values['primal']:.6g}, {took}"
    )
