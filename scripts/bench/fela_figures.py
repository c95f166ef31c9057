"""The pictures of `trepak bench fela`: Figures 1 and 5 to 10, and Table III, beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trepak.scripts.bench import plots
from trepak.scripts.bench.fela_baselines import WAYS
from trepak.scripts.bench.fela_models import NETWORKS
from trepak.scripts.bench.fela_report import (
    DELAYS,
    GAPS,
    PLAIN,
    POLICIES,
    SATURATION,
    SPEEDUPS,
    STRAGGLED,
    STRAGGLERS,
    THRESHOLDS,
    TUNING,
)
from trepak.scripts.bench.fela_trials import FELA
from trepak.scripts.report import Report

_COLOURS = {FELA: "C0", "DP": "C1", "MP": "C2", "HP": "C3"}
_SHOWN = 1024  # samples of an iteration, of the pictures with stragglers
_KINDS = {"round-robin": ("9", "delay in seconds"), "probability": ("10", "probability")}


def draw(report: Report, figure: Any) -> None:
    """Draws all that there are rows for; grey: what the paper's text prints."""
    of: dict[str, list[Mapping[str, Any]]] = {}
    for row in report.rows:
        of.setdefault(row["kind"], []).append(row)
    figure.set_size_inches(18, 16 if STRAGGLERS in of else 8)
    places = figure.subplots(4 if STRAGGLERS in of else 2, 4)
    _saturation(places[0][0], of[SATURATION])
    _thresholds(places[0][1], of[THRESHOLDS])
    _tuning(places[0][2], [row for row in of[TUNING] if row["network"] == "vgg19"])
    _policies(places[0][3], [row for row in of[GAPS] if row["network"] == "vgg19"])
    for axes, network in zip(places[1][:2], NETWORKS, strict=True):
        _plain(axes, [row for row in of[PLAIN] if row["network"] == network], network)
    for axes, network in zip(places[1][2:], NETWORKS, strict=True):
        _speedups(axes, [row for row in of[PLAIN] if row["network"] == network], network)
    if STRAGGLERS in of:
        for line, kind in zip(places[2:], _KINDS, strict=True):
            for number, network in enumerate(NETWORKS):
                _straggled(line[2 * number], of[STRAGGLERS], network, kind)
                _delayed(line[2 * number + 1], of[DELAYS], network, kind)


def _saturation(axes: Any, rows: plots.Rows) -> None:
    for place, row in enumerate(rows):
        batches, shares = zip(*row["by_batch"], strict=True)
        axes.semilogx(batches, shares, base=2, color=f"C{place}", label=row["layer"])
        axes.axvline(row["threshold"], color=f"C{place}", linewidth=0.8, linestyle=":")
    axes.set(title="1: throughput by batch, of the greatest", xlabel="batch (dotted: the paper's)")
    axes.legend(fontsize="x-small")


def _thresholds(axes: Any, rows: plots.Rows) -> None:
    for number, network in enumerate(NETWORKS):
        first = 1
        for row in (row for row in rows if row["network"] == network):
            layers = range(first, first + len(row["thresholds"]))
            first += len(row["thresholds"])
            label = f"{network}, SM-{row['sub_model']}: {layers[0]} to {layers[-1]}"
            marker = "os"[number]
            colour = f"C{row['sub_model']}"
            axes.semilogy(
                layers,
                [one or math.nan for one in row["thresholds"]],
                marker,
                base=2,
                color=colour,
                label=label,
                markersize=4,
            )
    axes.set(title="5: threshold batch sizes", xlabel="layer")
    axes.legend(fontsize="xx-small")


def _tuning(axes: Any, rows: plots.Rows) -> None:
    for total in dict.fromkeys(row["total"] for row in rows):
        mine = [row for row in rows if row["total"] == total]
        least, most = min(row["seconds"] for row in mine), max(row["seconds"] for row in mine)
        heights = [(row["seconds"] - least) / most for row in mine]
        axes.plot([row["case"] for row in mine], heights, ".-", linewidth=0.8, label=f"{total}")
        refused = [
            (row["case"], h) for row, h in zip(mine, heights, strict=True) if not row["fits"]
        ]
        axes.plot(*zip(*refused, strict=True) if refused else ([], []), "kx", markersize=4)
    for phase in (2, 3):
        first = min((row["case"] for row in rows if row["phase"] == phase), default=0)
        axes.axvline(first - 0.5, color="black", linewidth=0.8, linestyle="--")
    axes.set(title="6a: tuning of VGG-19 (x: no room)", xlabel="case", ylabel="normalized time")
    axes.legend(fontsize="xx-small", title="samples")


def _policies(axes: Any, rows: plots.Rows) -> None:
    """Ranges over total batches: ours and the paper's."""
    ours = {
        "HF": [row["without_HF"] for row in rows],
        "ADS": [row["without_ADS"] for row in rows],
        "CTD": [1 / (1 - row["phase_2"]) for row in rows],
        "tuning": [1 / (1 - row["phase_1"]) for row in rows],
    }
    for place, (policy, ratios) in enumerate(ours.items()):
        _range(axes, place - 0.15, (min(ratios), max(ratios)), "C0")
        _range(axes, place + 0.15, POLICIES[policy], "0.6")
    axes.set_xticks(range(len(ours)), ours)
    axes.set(title="6b, 7, Table III: gains by policy, VGG-19", ylabel="times as fast")


def _range(axes: Any, place: float, ends: tuple[float, float], colour: str) -> None:
    axes.plot([place, place], ends, color=colour, linewidth=6, solid_capstyle="butt")
    axes.plot([place], [ends[1]], "_", color=colour, markersize=12)


def _plain(axes: Any, rows: plots.Rows, network: str) -> None:
    names = [str(row["total"]) for row in rows]
    heights = {
        way: {name: row[way] for name, row in zip(names, rows, strict=True)}
        for way in (FELA, *WAYS)
    }
    plots.bars(axes, names, heights, _COLOURS)
    axes.set(title=f"8: {network}", xlabel="samples of an iteration", ylabel="samples a second")
    axes.legend(fontsize="x-small")


def _speedups(axes: Any, rows: plots.Rows, network: str) -> None:
    for place, way in enumerate(WAYS):
        ratios = [row[FELA] / row[way] for row in rows]
        _range(axes, place - 0.15, (min(ratios), max(ratios)), _COLOURS[way])
        _range(axes, place + 0.15, SPEEDUPS[network][way], "0.6")
    axes.set_xticks(range(len(WAYS)), WAYS)
    plots.mark(axes, 1.0)
    axes.set(title=f"8: {network}, Fela's speedup (grey: the paper's)", ylabel="times as fast")


def _chosen(rows: plots.Rows, network: str, kind: str) -> plots.Rows:
    case = f"{network} {_SHOWN}"
    return [row for row in rows if (row["case"], row["stragglers"]) == (case, kind)]


def _straggled(axes: Any, rows: plots.Rows, network: str, kind: str) -> None:
    mine, (number, what) = _chosen(rows, network, kind), _KINDS[kind]
    for way in (FELA, *WAYS):
        axes.plot(
            [row["value"] for row in mine],
            [row[way] for row in mine],
            ".-",
            color=_COLOURS[way],
            label=way,
        )
    (least, most), _ = STRAGGLED[network, kind]
    low, high = ([times * row["DP"] for row in mine] for times in (least, most))
    axes.fill_between([row["value"] for row in mine], low, high, color="0.8", label="paper's")
    title = f"{number}: {network}, {_SHOWN} samples an iteration"
    axes.set(title=title, xlabel=what, ylabel="samples a second")
    axes.legend(fontsize="x-small")


def _delayed(axes: Any, rows: plots.Rows, network: str, kind: str) -> None:
    mine, (number, what) = _chosen(rows, network, kind), _KINDS[kind]
    for way in (FELA, *WAYS):
        axes.plot(
            [row["value"] for row in mine], [row[way] for row in mine], ".-", color=_COLOURS[way]
        )
    _, (least, most) = STRAGGLED[network, kind]
    low, high = ([(1 - less) * row["DP"] for row in mine] for less in (most, least))
    axes.fill_between([row["value"] for row in mine], low, high, color="0.8")
    axes.set(title=f"{number}: {network}, delay of an iteration", xlabel=what, ylabel="seconds")
