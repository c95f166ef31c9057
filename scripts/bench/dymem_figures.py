"""The pictures of `trepak bench dymem`: Figures 4.4a, 4.5, 4.6 and 4.7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench.dymem_report import CURVE, MEMORY, THROUGHPUT, TIME
from trepak.scripts.bench.plots import bars
from trepak.scripts.report import Report

_COLOURS = {"none": "0.7", "vdnn": "tab:orange", "superneurons": "tab:green", "dymem": "tab:blue"}
_PARTS = ("computing_alone", "overlapped", "copying_alone")


def draw(report: Report, figure: Any) -> None:
    """Draws memory, throughput, time and the memory of one iteration."""
    figure.set_size_inches(11, 7.5)
    axes = figure.subplots(2, 2)
    _policies(axes[0, 0], _of(report, MEMORY), "network")
    axes[0, 0].set_ylabel("smallest pool, MB (4.4a)")
    axes[0, 0].set_yscale("log")
    axes[0, 0].legend(fontsize="small")
    throughput = [
        {**row, "case": f"{row['network']}\n{row['batch']}"} for row in _of(report, THROUGHPUT)
    ]
    for row in throughput:  # of what computes without a copy, or else of the fastest
        most = max((row[policy] or 0.0 for policy in _COLOURS), default=0.0) or 1.0
        row.update({policy: (row[policy] or 0.0) / most for policy in _COLOURS})
    _policies(axes[0, 1], throughput, "case", rotation=90, fontsize=5)
    axes[0, 1].set_ylabel("throughput of the fastest's (4.5)")
    _times(axes[1, 0], _of(report, TIME))
    _curves(axes[1, 1], _of(report, CURVE))


def _of(report: Report, kind: str) -> list[Mapping[str, Any]]:
    return [row for row in report.rows if row["kind"] == kind]


def _policies(axes: Any, rows: Sequence[Mapping[str, Any]], key: str, **ticks: Any) -> None:
    names = [row[key] for row in rows]
    heights = {policy: {row[key]: row[policy] for row in rows} for policy in _COLOURS}
    bars(axes, names, heights, _COLOURS, **{"rotation": 30, "fontsize": 7, **ticks})


def _times(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    names = [f"{row['network']}, {row['way']}" for row in rows]
    left = [0.0] * len(rows)
    for part in _PARTS:
        values = [row[part] for row in rows]
        axes.barh(names, values, left=left, label=part.replace("_", " "))
        left = [begun + value for begun, value in zip(left, values, strict=True)]
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlabel("time of no overlap's (4.6)")
    axes.legend(fontsize="small")


def _curves(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    for policy in dict.fromkeys(row["policy"] for row in rows):
        curve = [row for row in rows if row["policy"] == policy]
        nodes = [row["node"] for row in curve]
        axes.plot(nodes, [row["occupied"] for row in curve], color=_COLOURS[policy], label=policy)
        axes.plot(nodes, [row["live"] for row in curve], color=_COLOURS[policy], ls=":", lw=0.8)
    axes.set_xlabel("node of ResNet-32's iteration")
    axes.set_ylabel("occupied, live (dotted) MB (4.7)")
    axes.legend(fontsize="small")
