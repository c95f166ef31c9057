"""Traces one network at little batches, and replays it at those of the thesis."""

from __future__ import annotations

import dataclasses
import json
import statistics
from typing import Any

from trepak.scripts.bench import rank
from trepak.scripts.bench.dymem_networks import (
    INCEPTION,
    MB,
    POOL,
    RESNET_32,
    RESNET_101,
    THIRD,
    TITAN_X,
    TRACED,
    Network,
)
from trepak.tf_plugins.memory.model_step import model_step
from trepak.tf_plugins.memory.replay import Replayed, Traces, tracing_dymem

_POLICIES = ("none", "vdnn", "superneurons", "dymem")
_BETAS = (100, 200, 300, 400, 500)  # MB; Table 4.2
_JITTER, _SEEDS = 0.2, 200


def trace(network: Network) -> tuple[Traces, dict[str, Any]]:
    """Traces the network; tells how far what two batches say is off for a third one."""
    dymem = tracing_dymem()
    model = network.build()
    traces = Traces()
    for batch in (*TRACED, THIRD):
        step = model_step(model, batch)
        step()
        dymem.reset_peaks()
        seconds = traces.add(step, batch)
    pool, graph = dymem.statistics()["pool"], dymem.statistics()["graphs"][-1]
    planned = traces.replay(THIRD, "none", TITAN_X).peak_live_bytes
    return traces, {
        "network": network.name,
        "layers": graph["layers"],
        "swapped_tensors": graph["swapped_tensors"],
        "planned_bytes": planned,
        "live_bytes": pool["peak_live_bytes"],
        "error": abs(planned / pool["peak_live_bytes"] - 1),
        "trace_seconds": seconds,
    }


def _told(replayed: Replayed) -> dict[str, Any]:
    told = dataclasses.asdict(replayed)
    del told["curve"]
    told["seconds"], told["bound_seconds"] = replayed.seconds, replayed.bound_seconds
    return told


def memory(traces: Traces, network: Network) -> dict[str, Any]:
    """Returns, by policy, the smallest pool, and what happens in it and in an ample one."""
    rows = {}
    for policy in _POLICIES:
        smallest = traces.smallest_pool(network.batch, policy, TITAN_X)
        ample = traces.replay(network.batch, policy, TITAN_X)
        within = traces.replay(network.batch, policy, TITAN_X, pool=smallest)
        rows[policy] = {"pool": smallest, "ample": _told(ample), "within": _told(within)}
    return rows


def placements(traces: Traces, network: Network) -> dict[str, Any]:
    """Returns, by placement, Dymem's fragmentation in a pool as large as best-fit's peak."""
    pool = traces.replay(network.batch, "dymem", TITAN_X, placement="best_fit").extent_bytes
    return {
        kind: _told(traces.replay(network.batch, "dymem", TITAN_X, placement=kind, pool=pool))
        for kind in ("best_fit", "first_fit", "gtbm")
    }


def throughput(traces: Traces, network: Network) -> list[dict[str, Any]]:
    """Returns images per second in the thesis's pool, by batch; None where there is no room."""
    rows = []
    for batch in network.batches:
        row: dict[str, Any] = {"network": network.name, "batch": batch}
        for policy in _POLICIES:
            replayed = traces.replay(batch, policy, TITAN_X, pool=POOL)
            row[policy] = batch / replayed.seconds if replayed.fits else None
            if policy == "dymem":
                of_bound = replayed.bound_seconds / replayed.seconds
                row["of_bound"] = of_bound if replayed.fits else None
        serial = traces.replay(batch, "dymem", TITAN_X, pool=POOL, overlaps=False)
        row["no_overlap"] = batch / serial.seconds if serial.fits else None
        rows.append(row)
    return rows


def growth(traces: Traces, network: Network) -> dict[str, Any]:
    """Returns the largest batches in the thesis's pool, by policy."""
    return {policy: traces.largest_batch(POOL, policy, TITAN_X) for policy in _POLICIES}


def breakdown(traces: Traces, network: Network) -> list[dict[str, Any]]:
    """Returns Figure 4.6: what part of the time of no overlap each way takes, and with what."""
    rows: list[dict[str, Any]] = []
    for way, policy, overlaps in (
        ("no overlap", "dymem", False),
        ("vdnn", "vdnn", True),
        ("dymem", "dymem", True),
    ):
        found = traces.replay(network.batch, policy, TITAN_X, overlaps=overlaps)
        overlapped = found.computed_seconds + found.copied_seconds - found.seconds
        whole = rows[0]["seconds"] if rows else found.seconds
        rows.append(
            {
                "network": network.name,
                "way": way,
                "seconds": found.seconds,
                "of_no_overlap": found.seconds / whole,
                "bound": found.bound_seconds / whole if overlaps else 1.0,
                "overlapped": overlapped / whole,
                "copying_alone": (found.copied_seconds - overlapped) / whole,
                "computing_alone": (found.computed_seconds - overlapped) / whole,
            }
        )
    return rows


def curves(traces: Traces, network: Network) -> dict[str, list[list[int]]]:
    """Returns Figure 4.7: live and occupied bytes of each step of one iteration."""
    return {
        policy: traces.replay(network.batch, policy, TITAN_X).curve for policy in ("vdnn", "dymem")
    }


def betas(traces: Traces, network: Network) -> list[dict[str, Any]]:
    """Returns Table 4.2: how often a pool sized by a quiet iteration is short in restless ones.

    The pool is what the first iteration occupied, and beta; a step is short of memory if it needs
    more than the pool without waiting for copies, and fails if waiting does not help.
    """
    quiet = traces.replay(network.batch, "dymem", TITAN_X)
    rows = []
    for beta in (0, *_BETAS):
        pool = quiet.extent_bytes + beta * MB
        steps = [
            traces.replay(network.batch, "dymem", TITAN_X, pool=pool, jitter=_JITTER, seed=seed)
            for seed in range(_SEEDS)
        ]
        rows.append(
            {
                "beta_mb": beta,
                "short_share": statistics.fmean(s.waits > 0 or not s.fits for s in steps),
                "failed_share": statistics.fmean(not s.fits for s in steps),
                "slower": statistics.fmean(s.seconds for s in steps if s.fits) / quiet.seconds,
            }
        )
    return rows


def measure(network: Network) -> dict[str, Any]:
    """Returns all that the report needs of a network."""
    traces, told = trace(network)
    found = {
        "trace": told,
        "memory": memory(traces, network),
        "placements": placements(traces, network),
        "throughput": throughput(traces, network),
        "growth": growth(traces, network),
    }
    if network in (INCEPTION, RESNET_32):
        found["breakdown"] = breakdown(traces, network)
    if network == RESNET_32:
        found["curves"] = curves(traces, network)
    if network == RESNET_101:
        found["betas"] = betas(traces, network)
    return found


def main() -> None:
    """Measures what the bench asks for."""
    given = rank.options()
    given.output.write_text(json.dumps(measure(given.spec)))


if __name__ == "__main__":
    main()
