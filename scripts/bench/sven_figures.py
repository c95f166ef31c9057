"""The thesis' Figures 6.4 and 6.7 and Table 6.4, from what `trepak bench sven` measured."""

from __future__ import annotations

from typing import Any

from trepak.scripts.bench import plots
from trepak.scripts.bench.sven_report import SERVERS, TIERS
from trepak.scripts.bench.sven_steps import PIPELINES, SCALING, pipeline_of
from trepak.scripts.report import Report


def draw(report: Report, figure: Any) -> None:
    """Draws what was measured: steps beside equations and servers; scaling; tiers."""
    kinds = {PIPELINES: _steps, SCALING: _scaling, TIERS: _tiers}
    found = [kind for kind in kinds if any(row["kind"] == kind for row in report.rows)]
    figure.set_size_inches(1 + 4 * len(found), 4)
    for axes, kind in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
        kinds[kind](axes, report.rows)


def _steps(axes: Any, rows: plots.Rows) -> None:
    found = [row for row in rows if row["kind"] == PIPELINES]
    models = list(dict.fromkeys(row["model"] for row in found))
    heights = {
        str(one): {row["model"]: row["step_ms"] for row in found if pipeline_of(row) == one}
        for one in dict.fromkeys(map(pipeline_of, found))
    }
    servers = {row["model"]: row["step_ms"] for row in rows if row["kind"] == SERVERS}
    if servers:
        heights["TensorFlow's servers"] = servers
    places = plots.bars(axes, models, heights)
    for row in found:
        place = places[str(pipeline_of(row))][models.index(row["model"])]
        axes.plot(place, row["equation_ms"], "k_", markersize=12)
    axes.set_ylabel("ms for a step; lines: equations 6.1 and 6.2")
    axes.legend(frameon=False)


def _scaling(axes: Any, rows: plots.Rows) -> None:
    """Draws a line for each model; the dashed ones are equation 6.2's."""
    found = [row for row in rows if row["kind"] == SCALING]
    for model in dict.fromkeys(row["model"] for row in found):
        of_model = [row for row in found if row["model"] == model]
        hosts = [row["hosts"] for row in of_model]
        (line,) = axes.plot(hosts, [row["scaling_factor"] for row in of_model], "o-", label=model)
        limits = [row["of_equation"] for row in of_model]
        axes.plot(hosts, limits, "--", color=line.get_color(), alpha=0.6)
    axes.set(xlabel="hosts", ylabel="scaling factor; dashed: equation 6.2", ylim=(0, 1.05))
    axes.legend(frameon=False)


def _tiers(axes: Any, rows: plots.Rows) -> None:
    found = [row for row in rows if row["kind"] == TIERS]
    axes.bar([row["rows_in_memory"] for row in found], [row["look_up_ms"] for row in found])
    axes.plot([row["linear_ms"] for row in found], "k_", markersize=40)
    axes.set_ylabel("ms for a batch's look-up; lines: by the hit share")
