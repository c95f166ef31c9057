"""What `trepak bench dymem` measured, beside the thesis's figures and each figure's bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench.dymem_networks import MB, NETWORKS, Network
from trepak.scripts.bench.dymem_trainings import FITS, GROWTH
from trepak.scripts.report import Claims, Report

MEMORY = "smallest pools in the replay, MB"
AMPLE = "Dymem in an ample pool, replayed"
THROUGHPUT = "images per second in 12 GB, replayed"
TIME = "time of a step, replayed; no overlap is 1"
BETA = "steps short of memory by beta, ResNet-101 (Table 4.2)"
CURVE = "memory by node, MB (Figure 4.7)"
_POLICIES = ("none", "vdnn", "superneurons", "dymem")

Found = Mapping[str, Any]  # of a network; see bench_dymem_worker


def summarize(
    networks: Sequence[Found],
    trainings: Sequence[Mapping[str, Any]],
    environment: Mapping[str, Any],
) -> Report:
    """Returns the report.

    Args:
        networks: what the replays of each found.
        trainings: rows of `dymem_trainings`.
        environment: see `Surroundings`.
    """
    claims = Claims()
    by_name = {one["trace"]["network"]: one for one in networks}
    rows: list[Mapping[str, Any]] = [
        _memory_row(of, by_name[of.name]) for of in NETWORKS if of.name in by_name
    ]
    rows += [_ample_row(one) for one in networks]
    rows += [{"kind": THROUGHPUT, **row} for one in networks for row in one["throughput"]]
    rows += [{"kind": TIME, **row} for one in networks for row in one.get("breakdown", ())]
    rows += [{"kind": BETA, **row} for one in networks for row in one.get("betas", ())]
    rows += trainings
    _claim_bounds(claims, rows)
    _claim_thesis(claims, by_name)
    _claim_trainings(claims, trainings)
    rows += [row for one in networks for row in _curve_rows(one)]
    return Report("dymem", claims, rows, environment, unprinted=(CURVE,))


def _memory_row(network: Network, found: Found) -> dict[str, Any]:
    memory = found["memory"]
    pools = {policy: memory[policy]["pool"] for policy in _POLICIES}
    vdnn, superneurons = (memory[policy]["within"] for policy in ("vdnn", "superneurons"))
    return {
        "kind": MEMORY,
        "network": network.name,
        "batch": network.batch,
        **{policy: pool / MB for policy, pool in pools.items()},
        "saved_vs_vdnn": 1 - pools["dymem"] / pools["vdnn"],
        "placement_could_save": 1 - vdnn["peak_live_bytes"] / pools["vdnn"],
        "thesis_vdnn": network.saved[0],
        "saved_vs_superneurons": 1 - pools["dymem"] / pools["superneurons"],
        "could_save": 1 - superneurons["peak_live_bytes"] / pools["superneurons"],
        "thesis_superneurons": network.saved[1],
    }


def _ample_row(found: Found) -> dict[str, Any]:
    ample, within = (found["memory"]["dymem"][pool] for pool in ("ample", "within"))
    return {
        "kind": AMPLE,
        "network": found["trace"]["network"],
        "live_mb": ample["peak_live_bytes"] / MB,
        "occupied_vs_live": ample["peak_occupied_bytes"] / ample["peak_live_bytes"],
        "in_smallest_pool": within["peak_occupied_bytes"] / within["peak_live_bytes"],
        "of_bound": ample["bound_seconds"] / ample["seconds"],
        "slower_in_smallest_pool": within["seconds"] / ample["seconds"],
        "fragmentation": found["placements"]["gtbm"]["fragmentation"],
        "of_best_fit": found["placements"]["best_fit"]["fragmentation"],
        "trace_error": found["trace"]["error"],
    }


def _curve_rows(found: Found) -> list[dict[str, Any]]:
    return [
        {
            "kind": CURVE,
            "network": found["trace"]["network"],
            "policy": policy,
            "node": node,
            "live": live / MB,
            "occupied": occupied / MB,
        }
        for policy, curve in found.get("curves", {}).items()
        for node, (live, occupied) in enumerate(curve)
    ]


def _claim_bounds(claims: Claims, rows: Sequence[Mapping[str, Any]]) -> None:
    linear = {network.name for network in NETWORKS if network.linear}
    ample = [row for row in rows if row["kind"] == AMPLE]
    nonlinear = [row for row in ample if row["network"] not in linear]
    for name, of, target in (
        ("peak_vs_live_bytes", nonlinear, 1.10),
        ("peak_vs_live_bytes.linear", [row for row in ample if row not in nonlinear], None),
    ):
        worst = [max(row["occupied_vs_live"], row["in_smallest_pool"]) for row in of]
        if worst:
            claims.add(f"dymem.{name}", max(worst), target, "lower", emulated=False)
    least = min(row["of_bound"] for row in ample)
    claims.add("dymem.time_fraction_of_bound", least, 0.95, emulated=False)
    error = max(row["trace_error"] for row in ample)
    claims.add("dymem.planner_error", error, 0.05, "lower", emulated=False)


def _claim_trainings(claims: Claims, rows: Sequence[Mapping[str, Any]]) -> None:
    grown = [row for row in rows if row["kind"] == GROWTH]
    ratios = []
    for network in dict.fromkeys(row["network"] for row in grown):
        ways = {row["way"]: row for row in grown if row["network"] == network}
        # What plain TensorFlow trains is less than the batch that found no room.
        ratios.append(ways["dymem"]["batch"] / ways["plain"]["no_room"])
    if ratios:
        claims.add("dymem.batch_growth", min(ratios), 2.0, emulated=False)
    slower = [row["ratio"] for row in rows if row["kind"] == FITS]
    if slower:
        worst = max(slower)
        claims.add("dymem.overhead_when_it_fits", worst, 1.03, "lower", emulated=False)


def _claim_thesis(claims: Claims, by_name: Mapping[str, Found]) -> None:
    """What the thesis reports, without a target: its machine and its networks' code are others."""

    def pool(name: str, policy: str) -> float:
        return float(by_name[name]["memory"][policy]["pool"])

    def reported(name: str, value: float, paper: float) -> None:
        claims.add(f"dymem.{name}", value, None, paper=paper, emulated=False)

    if "inception_v4" in by_name:
        ours = pool("inception_v4", "dymem")
        for policy, paper in (("vdnn", 0.31), ("superneurons", 0.28)):
            saved = 1 - ours / pool("inception_v4", policy)
            reported(f"memory_saved_over_{policy}.inception_v4", saved, paper)
        longest = [row for row in by_name["inception_v4"]["breakdown"] if row["way"] == "dymem"]
        reported("time_vs_no_overlap.inception_v4", longest[0]["of_no_overlap"], 0.54)
    if "resnet32" in by_name:
        peak = pool("resnet32", "dymem") / pool("resnet32", "vdnn")
        reported("peak_vs_vdnn.resnet32", peak, 0.742)
    if "resnet50" in by_name:
        of_thesis = [row for row in by_name["resnet50"]["throughput"] if row["batch"] == 100][0]
        reported("throughput_vs_vdnn.resnet50", of_thesis["dymem"] / of_thesis["vdnn"], 1.42)
        growth = by_name["resnet50"]["growth"]
        claims.add(
            "dymem.batch_growth_replayed.resnet50",
            growth["dymem"] / growth["none"],
            None,
            emulated=False,
        )
