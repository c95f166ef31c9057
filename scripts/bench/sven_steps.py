"""What `trepak bench sven` makes of the ranks' steps: beside the equations, in memory, by hosts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench.sven_case import PLAIN, READ_AHEAD, WHOLE, Case, Pipeline
from trepak.scripts.idle_watch import undisturbed
from trepak.scripts.report import Claims

PIPELINES, BESIDE, SCALING = "pipelines", "with readers, and memory", "scaling"

_LIMIT_TARGET = 0.9
# Section 6.1.2: a pipeline needs 2 (m_comm + m_comp), and a step without one m_comm + m_comp.
_MEMORY_TARGET = 2.0
# By model: Figure 6.7, section 6.3.3.
_PIPELINE4 = {"deepfm": 1.4, "wide_deep": 1.7, "dcn": 1.5}
_PIPELINE1 = {"deepfm": 0.89, "wide_deep": 0.79, "dcn": 0.84}
_Rows = Sequence[Mapping[str, Any]]


def pipeline_rows(kind: str, cases: Sequence[Case], ranks: Sequence[_Rows]) -> list[dict[str, Any]]:
    """Returns a row for each model and pipeline.

    Args:
        kind: PIPELINES, or BESIDE if memory was watched.
        cases: that were measured.
        ranks: by rank, what `bench_sven_worker` wrote.
    """
    rows = []
    for case in cases:
        found = {one: _of(ranks, case.model, one) for one in case.pipelines}
        for one in case.pipelines:
            row = {"kind": kind, **_row(case, one, found[one])}
            rows.append(row | (_memory(found[one], found[PLAIN]) if kind == BESIDE else {}))
    return rows


def _of(ranks: Sequence[_Rows], model: str, pipeline: Pipeline) -> _Rows:
    """Returns what each rank wrote of a model's pipeline."""
    return [
        next(row for row in rows if row["model"] == model and pipeline_of(row) == pipeline)
        for rows in ranks
    ]


def pipeline_of(row: Mapping[str, Any]) -> Pipeline:
    """Returns the pipeline that a row is about."""
    return Pipeline(row["stages"], row["readers"])


def _row(case: Case, pipeline: Pipeline, ranks: _Rows) -> dict[str, Any]:
    rounds = _rounds(ranks)
    times = case.times
    equation = {0: times.sequential, 1: times.without_ids, 4: times.pipelined}[pipeline.stages]
    return {
        "model": case.model,
        "stages": pipeline.stages,
        "readers": pipeline.readers,
        "step_ms": 1000 * step_seconds(rounds),
        "equation_ms": 1000 * equation,
        "sent_kb": statistics.mean(one["sent_bytes"] for one in rounds) / 1e3,
        "held_kb": max(one["held_bytes"] for one in ranks) / 1e3,
        "cpu_idle": min(one["idle"] for one in rounds),
    }


def _memory(ranks: _Rows, plain: _Rows) -> dict[str, float]:
    """Returns the most kilobytes that a rank's batches had of memory, between two steps and at all.

    Without a pipeline nothing is under way between two steps: what is allocated then is the rest,
    of a round, because it grows by some hundred kilobytes while a job goes on.
    """
    pairs = [
        (mine, its["between_bytes"])
        for of_rank, rest in zip(ranks, plain, strict=True)
        for mine, its in zip(of_rank["rounds"], rest["rounds"], strict=True)
    ]
    return {
        "waiting_kb": max(mine["between_bytes"] - rest for mine, rest in pairs) / 1e3,
        "memory_kb": max(mine["most_bytes"] - rest for mine, rest in pairs) / 1e3,
    }


def add_claims(claims: Claims, rows: _Rows, beside: _Rows) -> None:
    """Adds what is claimed of pipelines: how near they come to the equations, and what they gain.

    Args:
        claims: to be added to.
        rows: of `pipeline_rows`.
        beside: the same of BESIDE.
    """
    whole = [row for row in rows if pipeline_of(row) == WHOLE]
    fraction = min(row["equation_ms"] / row["step_ms"] for row in whole)
    claims.add("sven.fraction_of_limit", fraction, _LIMIT_TARGET, unit="")
    for row, plain in _with_plain(rows, WHOLE):
        name, speedup = f"sven.pipeline4_speedup.{row['model']}", plain["step_ms"] / row["step_ms"]
        claims.add(name, speedup, None, paper=_PIPELINE4[row["model"]])
    for row, plain in _with_plain(beside, READ_AHEAD):
        name, latency = f"sven.pipeline1_latency.{row['model']}", row["step_ms"] / plain["step_ms"]
        claims.add(name, latency, None, "lower", paper=_PIPELINE1[row["model"]])
    if watched := _with_plain(beside, WHOLE):
        waiting = max(row["waiting_kb"] / row["sent_kb"] for row, _ in watched)
        claims.add("sven.pipeline_waiting_of_exchange", waiting, None, "lower")
        memory = max(row["memory_kb"] / plain["memory_kb"] for row, plain in watched)
        claims.add("sven.pipeline_memory_of_plain", memory, _MEMORY_TARGET, "lower")


def _with_plain(
    rows: _Rows, pipeline: Pipeline
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Returns the rows of a pipeline, and beside each its model's without one."""
    plain = {row["model"]: row for row in rows if pipeline_of(row) == PLAIN}
    return [
        (row, plain[row["model"]])
        for row in rows
        if pipeline_of(row) == pipeline and row["model"] in plain
    ]


def scaling_row(case: Case, hosts: int, ranks: Sequence[_Rows]) -> dict[str, Any]:
    """Returns the scaling factor T_n / (n T_1) of four stages, equation 6.4.

    One rank has nothing to send: its step is what it computes.

    Args:
        case: of a model.
        hosts: how many, with a rank each.
        ranks: by rank, what `bench_sven_worker` wrote there.
    """
    step = step_seconds(_rounds(_of(ranks, case.model, WHOLE)))
    return {
        "kind": SCALING,
        "model": case.model,
        "hosts": hosts,
        "step_ms": 1000 * step,
        "scaling_factor": case.times.alone / step,
        "of_equation": case.times.alone / case.times.pipelined,
    }


def _rounds(ranks: _Rows) -> list[dict[str, float]]:
    """Returns what all ranks measured of each round, together."""
    return [
        {what: statistics.mean(one[what] for one in of_ranks) for what in of_ranks[0]}
        for of_ranks in zip(*(one["rounds"] for one in ranks), strict=True)
    ]


def step_seconds(rounds: Sequence[Mapping[str, float]]) -> float:
    """Returns the median step of the rounds that others on this hardware left alone."""
    counted = undisturbed(rounds, lambda one: one["stolen"])
    return statistics.median(one["step_s"] for one in counted)
