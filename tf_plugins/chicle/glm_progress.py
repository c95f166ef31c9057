"""Shows how the duality gap falls while a linear model is fitted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.trainer import IterationMetrics


@contextmanager
def progress(model: Any, cluster: Cluster) -> Iterator[Callable[[IterationMetrics], None] | None]:
    """Yields what is to be called after each iteration; None where nothing is to be shown."""
    if not model.verbose or cluster.rank != 0:
        yield None
        return
    from rich.console import Console

    console = Console(file=sys.stdout)
    name = type(model).__name__
    if not console.is_terminal:
        yield lambda metrics: console.print(_line(name, metrics), soft_wrap=True)
        return
    with console.status(name) as status:
        yield lambda metrics: status.update(_line(name, metrics))


def _line(name: str, metrics: IterationMetrics) -> str:
    values, tasks = metrics.values, metrics.tasks
    slowest = max((task.seconds for task in tasks.values()), default=0.0)
    return (
        f"{name} iteration {metrics.iteration}: duality gap {values['gap']:.2e}, objective "
        f"{values['primal']:.6g}, {len(tasks)} tasks, the slowest {1000 * slowest:.1f} ms"
    )
