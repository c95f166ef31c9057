"""What users have without trepak, on the same network and links: throughput alone.

TensorFlow's ParameterServerStrategy over plain gRPC, with whole variables (its default) and with
partitioned ones, and over `grpc+geryon`; Horovod's ring is a method of `exchanges`.
"""

from __future__ import annotations

import statistics
from typing import Any

from trepak.scripts.bench import tf_cluster
from trepak.scripts.bench.exchanges import Job
from trepak.scripts.idle_watch import MOST_STOLEN, undisturbed
from trepak.scripts.lab.topology import Lab

PLAIN, PARTITIONED = "TensorFlow, gRPC", "TensorFlow, gRPC, partitioned"
OVER_FLOWS = "TensorFlow, grpc+geryon, partitioned"
_STEPS = 8  # of each worker in each round; the first and the last are not counted


def measure(lab: Lab, job: Job) -> list[dict[str, Any]]:
    """Returns a row for each method.

    Raises:
        JobError: a process failed, or took too long.
    """
    methods = {  # protocol, and pieces per variable
        PLAIN: ("grpc", 1),
        PARTITIONED: ("grpc", job.workers),
        OVER_FLOWS: ("grpc+geryon", job.workers),
    }
    rows = []
    for method, (protocol, pieces) in methods.items():
        rounds = _run(lab, job, protocol, pieces)
        quiet = undisturbed(rounds, lambda one: one["stolen"])
        step = statistics.median(one["step_s"] for one in quiet)
        rows.append(
            {
                "kind": f"alternatives: {job.network.model}, {job.workers} workers",
                "way": method,
                "step_s": step,
                "quiet_rounds": sum(one["stolen"] <= MOST_STOLEN for one in rounds),
                "images_per_s": job.workers * job.network.batch * job.stretch / step,
                "cpu_idle": statistics.median(one["idle"] for one in rounds),
                "cpu_stolen": statistics.median(one["stolen"] for one in rounds),
            }
        )
    return rows


def _run(lab: Lab, job: Job, protocol: str, pieces: int) -> list[dict[str, Any]]:
    """Runs one cluster; returns what its coordinator measured, by round."""
    spec = {"job": job, "steps": _STEPS, "pieces": pieces}
    rounds: list[dict[str, Any]] = tf_cluster.run(lab, "tf_parameter_server", spec, protocol)
    return rounds
