"""What ranks tell each other when an iteration is over: what was done, and rank 0's plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from trepak.tf_plugins.chicle.scheduling import Scheduler
from trepak.tf_plugins.chicle.trainer import TaskMetrics


def report(done: Sequence[TaskMetrics], scheduler: Scheduler) -> dict[str, Any]:
    """Returns what a rank tells: of its tasks, and what its policies have decided.

    Raises:
        RuntimeError: a policy has failed.
    """
    return {"tasks": [dataclasses.asdict(one) for one in done], "plan": scheduler.plan()}


def read(reports: Sequence[dict[str, Any]]) -> tuple[dict[int, TaskMetrics], dict[str, Any]]:
    """Returns by task what it has done, and the plan for all ranks, of the reports of all."""
    done = {m["task"]: TaskMetrics(**m) for one in reports for m in one["tasks"]}
    return done, reports[0]["plan"]
