"""What `trepak bench sven` measured, beside the arithmetic and the thesis' figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench import sven_arithmetic as arithmetic
from trepak.scripts.bench.sven_case import FILE, HOT, MEMORY, PLACED_SCALE, RANDOM, Case
from trepak.scripts.idle_watch import undisturbed
from trepak.scripts.report import Claims, Report

PIPELINES, SERVERS, SCALING = "pipelines", "TensorFlow's parameter servers", "scaling"
PLACEMENTS, TIERS = "placement, computed", "placement, in memory and a mapped file"

_LIMIT_TARGET, _BOUND_TARGET = 0.9, 0.9
# Section 6.1.2: a pipeline needs 2 (m_comm + m_comp). One batch is computed at a time, as without;
# the splits that wait in a rank's buffers are m_comm's part, of what a batch exchanges.
_HELD_TARGET = 2.0
# By model: Figure 6.7, section 6.3.3; Table 6.4; Table 6.3, whose rows are exchanged.
_PIPELINE4 = {"deepfm": 1.4, "wide_deep": 1.7, "dcn": 1.5}
_PIPELINE1 = {"deepfm": 0.89, "wide_deep": 0.79, "dcn": 0.84}
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
    """

    cases: Mapping[int, Sequence[Case]]
    ours: Mapping[int, Sequence[Sequence[Mapping[str, Any]]]]
    theirs: Sequence[Mapping[str, Any]]
    placements: Sequence[Mapping[str, Any]]

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
    rows = _pipeline_rows(measured.cases[most], measured.ours[most])
    _claim_pipelines(claims, rows)
    by_model = {row["model"]: row for row in rows if row["stages"] == 4}
    servers = [
        _server_row([row for row in measured.theirs if row["model"] == model], by_model[model])
        for model in dict.fromkeys(row["model"] for row in measured.theirs)
    ]
    for row in servers:
        model = row["model"]
        name = f"sven.speedup_vs_tf_parameter_server.{model}"
        claims.add(name, row["to_pipeline"], None, paper=_SERVERS[model])
    rows += servers + _scaling_rows(measured)
    if measured.placements:
        computed, tiers = _placement_rows(measured.placements), _tier_rows(measured.placements)
        for row in computed:
            name = f"sven.hot_placement_speedup.{row['model']}"
            claims.add(name, row["step_speedup"], None, paper=_HOT[row["model"]])
        of_bound = next(row["of_bound"] for row in tiers if row["rows_in_memory"] == HOT)
        claims.add("sven.hot_placement_of_bound", of_bound, _BOUND_TARGET, unit="", emulated=False)
        rows += computed + tiers
    return Report("sven", claims, rows, environment, idle_share=measured.idle_share)


def _claim_pipelines(claims: Claims, rows: Sequence[Mapping[str, Any]]) -> None:
    seconds = {(row["model"], row["stages"]): row["step_ms"] for row in rows}
    fractions = [row["of_limit"] for row in rows if row["stages"] == 4]
    claims.add("sven.fraction_of_limit", min(fractions), _LIMIT_TARGET, unit="")
    held = [row["held_kb"] / row["sent_kb"] for row in rows if row["stages"] == 4]
    claims.add("sven.pipeline_held_of_exchange", max(held), _HELD_TARGET, "lower", unit="")
    for model in dict.fromkeys(row["model"] for row in rows):
        plain = seconds[model, 0]
        claims.add(
            f"sven.pipeline4_speedup.{model}",
            plain / seconds[model, 4],
            None,
            paper=_PIPELINE4[model],
        )
        if (model, 1) in seconds:
            latency = seconds[model, 1] / plain
            claims.add(
                f"sven.pipeline1_latency.{model}", latency, None, "lower", paper=_PIPELINE1[model]
            )


def _pipeline_rows(
    cases: Sequence[Case], ranks: Sequence[Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    by_model = {case.model: case for case in cases}
    rows = []
    for number, first in enumerate(ranks[0]):
        case, stages = by_model[first["model"]], first["stages"]
        rounds = _rounds([one[number] for one in ranks])
        step = _step_seconds(rounds)
        by_stages = {0: case.times.sequential, 1: case.times.without_ids, 4: case.times.pipelined}
        rows.append(
            {
                "kind": PIPELINES,
                "model": case.model,
                "stages": stages,
                "step_ms": 1000 * step,
                "equation_ms": 1000 * by_stages[stages],
                "of_limit": by_stages[stages] / step,
                "computing_ms": 1000 * case.times.alone,
                "sent_kb": statistics.mean(one["sent_bytes"] for one in rounds) / 1e3,
                "held_kb": max(one[number]["held_bytes"] for one in ranks) / 1e3,
                "cpu_idle": min(one["idle"] for one in rounds),
            }
        )
    return rows


def _rounds(ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Returns what all ranks measured of each round, together."""
    return [
        {what: statistics.mean(one[what] for one in of_ranks) for what in of_ranks[0]}
        for of_ranks in zip(*(one["rounds"] for one in ranks), strict=True)
    ]


def _step_seconds(rounds: Sequence[Mapping[str, float]]) -> float:
    counted = undisturbed(rounds, lambda one: one["stolen"])
    return statistics.median(one["step_s"] for one in counted)


def _server_row(rounds: Sequence[Mapping[str, Any]], ours: Mapping[str, Any]) -> dict[str, Any]:
    step = 1000 * _step_seconds(rounds)
    return {
        "kind": SERVERS,
        "model": ours["model"],
        "step_ms": step,
        "pipeline_ms": ours["step_ms"],
        "to_pipeline": step / ours["step_ms"],
        "cpu_idle": min(one["idle"] for one in rounds),
    }


def _scaling_rows(measured: Measured) -> list[dict[str, Any]]:
    """Returns the scaling factor T_n / (n T_1), equation 6.4, of what was run on fewer hosts, too.

    One rank has nothing to send: its step is what it computes.
    """
    most, fewest = max(measured.cases), min(measured.cases)
    model = measured.cases[fewest][0].model
    rows: list[dict[str, Any]] = []
    for hosts, ranks in sorted(measured.ours.items()):
        if most == fewest:
            break
        case = next(case for case in measured.cases[hosts] if case.model == model)
        found = [
            next(row for row in one if row["model"] == model and row["stages"] == 4)
            for one in ranks
        ]
        step = _step_seconds(_rounds(found))
        rows.append(
            {
                "kind": SCALING,
                "model": model,
                "hosts": hosts,
                "step_ms": 1000 * step,
                "scaling_factor": case.times.alone / step,
                "of_equation": case.times.alone / case.times.pipelined,
            }
        )
    return rows


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
