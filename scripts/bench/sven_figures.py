"""The thesis' Figures 6.4 and 6.7 and Table 6.4, from what `trepak bench sven` measured."""

from __future__ import annotations

from typing import Any

from trepak.scripts.bench import plots
from trepak.scripts.bench.sven_report import PIPELINES, SCALING, SERVERS, TIERS
from trepak.scripts.report import Report


def draw(report: Report, figure: Any) -> None:
    """Draws steps by pipeline, beside the equations and TensorFlow's servers; scaling; tiers."""
    figure.set_size_inches(13, 4)
    steps, scaling, tiers = figure.subplots(1, 3)
    _steps(steps, report.rows)
    rows = [row for row in report.rows if row["kind"] == SCALING]
    hosts = [row["hosts"] for row in rows]
    scaling.plot(hosts, [row["scaling_factor"] for row in rows], "o-", label="measured")
    scaling.plot(hosts, [row["of_equation"] for row in rows], "k--", label="equation 6.2")
    scaling.set(xlabel="hosts", ylabel="scaling factor, equation 6.4", ylim=(0, 1.05))
    scaling.legend(frameon=False)
    rows = [row for row in report.rows if row["kind"] == TIERS]
    tiers.bar([row["rows_in_memory"] for row in rows], [row["look_up_ms"] for row in rows])
    tiers.plot([row["linear_ms"] for row in rows], "k_", markersize=40)
    tiers.set_ylabel("ms for a batch's look-up; lines: by the hit share")


def _steps(axes: Any, rows: plots.Rows) -> None:
    found = [row for row in rows if row["kind"] == PIPELINES]
    models = list(dict.fromkeys(row["model"] for row in found))
    heights = {
        f"{stages} stages": {
            row["model"]: row["step_ms"] for row in found if row["stages"] == stages
        }
        for stages in dict.fromkeys(row["stages"] for row in found)
    }
    heights["TensorFlow's servers"] = {
        row["model"]: row["step_ms"] for row in rows if row["kind"] == SERVERS
    }
    places = plots.bars(axes, models, heights)
    for row in found:
        place = places[f"{row['stages']} stages"][models.index(row["model"])]
        axes.plot(place, row["equation_ms"], "k_", markersize=12)
    axes.set_ylabel("ms for a step; lines: equations 6.1 and 6.2")
    axes.legend(frameon=False)
