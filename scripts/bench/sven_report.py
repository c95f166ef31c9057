"""What `trepak bench sven` measured, beside the arithmetic and the thesis' figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench import sven_arithmetic as arithmetic
from trepak.scripts.bench.sven_case import FILE, HOT, MEMORY, PLACED_SCALE, RANDOM, Case
from trepak.scripts.bench.sven_steps import (
    BESIDE,
    PIPELINES,
    add_claims,
    pipeline_rows,
    scaling_row,
    step_seconds,
)
from trepak.scripts.report import Claims, Report

SERVERS = "TensorFlow's parameter servers"
PLACEMENTS, TIERS = "placement, computed", "placement, in memory and a mapped file"

_BOUND_TARGET = 0.9
# By model: Table 6.4; Table 6.3, whose rows are exchanged.
_HOT = {"deepfm": 44 / 36, "wide_deep": 18.6 / 15.8, "dcn": 14.8 / 12.2}
_SERVERS = {"deepfm": 5.76 / 2.80, "wide_deep": 2.49 / 1.14, "dcn": 1.93 / 1.08}


@dataclass(frozen=True)
class Measured:
    """What the processes wrote.

    Attributes:
        cases: by number of hosts.
        ours: by number of hosts, by rank, rows of `bench_sven_worker`.
        theirs: rows of `sven_tf_servers`, on the largest number of hosts.
        placements: rows of `sven_placement_worker`.
        beside: cases with readers and with memory watched, and what each rank wrote of them.
    """

    cases: Mapping[int, Sequence[Case]]
    ours: Mapping[int, Sequence[Sequence[Mapping[str, Any]]]]
    theirs: Sequence[Mapping[str, Any]] = ()
    placements: Sequence[Mapping[str, Any]] = ()
    beside: Sequence[tuple[Case, Sequence[Sequence[Mapping[str, Any]]]]] = ()

    @property
    def idle_share(self) -> float:
        """Of the CPU in the lab, while steps were measured, where it was least."""
        of_ranks = (row for ranks in self.ours.values() for rank in ranks for row in rank)
        ours = [one["idle"] for row in of_ranks for one in row["rounds"]]
        return min([*ours, *(row["idle"] for row in self.theirs)])


def summarize(measured: Measured, environment: Mapping[str, Any]) -> Report:
    """Returns the report."""
    claims = Claims()
    most = max(measured.cases)
    rows = pipeline_rows(PIPELINES, measured.cases[most], measured.ours[most])
    beside = [
        row for case, ranks in measured.beside for row in pipeline_rows(BESIDE, [case], ranks)
    ]
    add_claims(claims, rows, beside)
    by_model = {row["model"]: row for row in rows if row["stages"] == 4}
    servers = [
        _server_row([row for row in measured.theirs if row["model"] == model], by_model[model])
        for model in dict.fromkeys(row["model"] for row in measured.theirs)
    ]
    for row in servers:
        model = row["model"]
        name = f"sven.speedup_vs_tf_parameter_server.{model}"
        claims.add(name, row["to_pipeline"], None, paper=_SERVERS[model])
    rows += beside + servers + _scaling_rows(measured)
    if measured.placements:
        computed, tiers = _placement_rows(measured.placements), _tier_rows(measured.placements)
        for row in computed:
            name = f"sven.hot_placement_speedup.{row['model']}"
            claims.add(name, row["step_speedup"], None, paper=_HOT[row["model"]])
        of_bound = next(row["of_bound"] for row in tiers if row["rows_in_memory"] == HOT)
        claims.add("sven.hot_placement_of_bound", of_bound, _BOUND_TARGET, unit="", emulated=False)
        rows += computed + tiers
    return Report("sven", claims, rows, environment, idle_share=measured.idle_share)


def _server_row(rounds: Sequence[Mapping[str, Any]], ours: Mapping[str, Any]) -> dict[str, Any]:
    step = 1000 * step_seconds(rounds)
    return {
        "kind": SERVERS,
        "model": ours["model"],
        "step_ms": step,
        "pipeline_ms": ours["step_ms"],
        "to_pipeline": step / ours["step_ms"],
        "cpu_idle": min(one["idle"] for one in rounds),
    }


def _scaling_rows(measured: Measured) -> list[dict[str, Any]]:
    """Returns how the models scale that were run on fewer hosts, too; one after the other."""
    most, fewest = max(measured.cases), min(measured.cases)
    if most == fewest:
        return []
    return [
        scaling_row(case, hosts, measured.ours[hosts])
        for model in dict.fromkeys(case.model for case in measured.cases[fewest])
        for hosts, cases in sorted(measured.cases.items())
        for case in cases
        if case.model == model
    ]


def _placement_rows(placements: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns what the counted hit shares come to on the GPU that the arithmetic has."""
    hits = {row["placement"]: row["hit_share"] for row in placements}
    wanted = arithmetic.popularity()
    rows = []
    for model in arithmetic.MODELS:
        hot, random = (
            arithmetic.step(model, 1, wanted, hits[placement]) for placement in (HOT, RANDOM)
        )
        rows.append(
            {
                "kind": PLACEMENTS,
                "model": model,
                "alpha": arithmetic.ALPHA,
                "hit_share": hits[HOT],
                "by_popularity": arithmetic.popularity(PLACED_SCALE).hit_share,
                "look_up_speedup": random.look_up / hot.look_up,
                "step_speedup": random.alone / hot.alone,
            }
        )
    return rows


def _tier_rows(placements: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the times of look-ups; their bound is linear in the hit share h.

    T(h) = h T(1) + (1 - h) T(0): [α/Bg + (1-α)/Bh] / [h/Bg + (1-h)/Bh] with what look-ups cost
    beside memory. A disk reads pages, and a row that is seldom wanted has one for itself, so that
    there is the same by what the disk has read: T(d) = T(1) + d/d(0) (T(0) - T(1)).
    """
    times = {row["placement"]: 1000 * statistics.median(row["seconds"]) for row in placements}
    hits = {row["placement"]: row["hit_share"] for row in placements}
    bound = {p: h * times[MEMORY] + (1 - h) * times[FILE] for p, h in hits.items()}
    read = {row["placement"]: row["disk_bytes"] for row in placements}
    by_disk = {
        p: times[MEMORY] + bytes_read / read[FILE] * (times[FILE] - times[MEMORY])
        for p, bytes_read in read.items()
    }
    return [
        {
            "kind": TIERS,
            "rows_in_memory": placement,
            "hit_share": hits[placement],
            "look_up_ms": times[placement],
            "linear_ms": bound[placement],
            "disk_kb": read[placement] / 1e3,
            "by_disk_ms": by_disk[placement],
            "speedup": times[RANDOM] / times[placement],
            "of_bound": times[RANDOM] / times[placement] / (bound[RANDOM] / bound[placement]),
        }
        for placement in times
    ]
