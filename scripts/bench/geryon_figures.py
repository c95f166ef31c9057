"""The paper's figures, from what `trepak bench geryon` measured."""

from __future__ import annotations

from typing import Any

from trepak.scripts.bench import exchanges, geryon_order, plots
from trepak.scripts.bench import geryon_equations as equations
from trepak.scripts.bench.exchanges import Method
from trepak.scripts.report import Report

# Kinds of rows that are for the figures alone.
LOOKUPS = "look-ups of priorities per iteration (Figure 10)"
POTENTIAL = "potential speedup of VGG-19 by the equations (Figure 4b)"

_FEATURED = "vgg19"  # the network of Figures 4, 7 and 10, and of Table IV
_RATES = (1, 2, 4, 8, 10, 16, 25, 40, 64, 100)  # Gbit/s
_PAPERS = {"k40": {8: 1.31}}  # potential speedups that the paper states
_SHRINK = 1000.0  # of the network and the links: the equations' result does not depend on it


def potential_rows() -> list[dict[str, Any]]:
    """Returns Figure 4b: what an order of transfers can gain at most, by accelerator and rate."""
    from trepak.models import zoo

    network = next(network for network in exchanges.NETWORKS if network.model == _FEATURED)
    rows = []
    for accelerator in ("k40", "v100"):
        model = zoo.build(network.model, emulate=accelerator, shrink=_SHRINK)
        for gbit in _RATES:
            layers = equations.layer_times(model, network.batch, gbit * 1e9 / _SHRINK)
            rows.append(
                {
                    "kind": POTENTIAL,
                    "accelerator": accelerator,
                    "gbit": gbit,
                    "potential_speedup": equations.potential_speedup(layers),
                    "paper": _PAPERS.get(accelerator, {}).get(gbit),
                }
            )
    return rows


def draw(report: Report, figure: Any) -> None:
    """Draws throughput by workers (Figures 8, 9), efficiency, Figures 4b, 5, 7, 10, Table IV."""
    figure.set_size_inches(19, 11)
    measured = [row for row in report.rows if row.get("purpose") == exchanges.FIGURES]
    rates = sorted({row["gbit"] for row in measured})
    grid = figure.subplots(3, 5)
    for line, gbit in zip(grid, rates, strict=False):
        for axes, network in zip(line, exchanges.NETWORKS, strict=False):
            rows = [r for r in measured if r["gbit"] == gbit and r["model"] == network.model]
            _throughput(axes, rows, f"{network.model}, {gbit} Gbit/s (emulated)")
    for axes, gbit in zip(grid[2], rates, strict=False):
        _efficiency(axes, [row for row in measured if row["gbit"] == gbit], gbit)
    featured = [r for r in measured if r["model"] == _FEATURED and r["gbit"] == min(rates)]
    _slicing(grid[0][4], featured)
    _lookups(grid[1][4], [row for row in report.rows if row["kind"] == LOOKUPS])
    _potential(grid[2][2], [row for row in report.rows if row["kind"] == POTENTIAL])
    _end_host(grid[2][3], featured)
    geryon_order.draw(grid[2][4], [row for row in report.rows if row["kind"] == geryon_order.ORDER])


def _throughput(axes: Any, rows: plots.Rows, title: str) -> None:
    alone = [row["images_per_s"] for row in rows if row["way"] == exchanges.ALONE]
    most = max((row["workers"] for row in rows), default=1)
    if alone:
        axes.plot([1, most], [alone[0], most * alone[0]], "k--", linewidth=0.8, label="linear")
    for method in exchanges.FIVE_METHODS:
        points = sorted((r["workers"], r["images_per_s"]) for r in rows if r["way"] == method)
        if points and alone:
            axes.plot(*zip((1, alone[0]), *points, strict=True), marker="o", label=method)
    axes.set(xlabel="workers", ylabel="images per second", title=title)
    if rows:
        axes.legend(fontsize="x-small")


def _efficiency(axes: Any, rows: plots.Rows, gbit: int) -> None:
    workers = max(row["workers"] for row in rows)
    found = [row for row in rows if row["workers"] == workers]
    efficiencies = {
        method: {row["model"]: row["efficiency"] for row in plots.of_method(found, method)}
        for method in exchanges.FIVE_METHODS
    }
    models = list(dict.fromkeys(row["model"] for row in found))
    plots.bars(axes, models, {method: of for method, of in efficiencies.items() if of})
    plots.mark(axes, 1.0)
    axes.set(ylabel="scaling efficiency", title=f"{workers} workers, {gbit} Gbit/s (emulated)")


def _slicing(axes: Any, rows: plots.Rows) -> None:
    methods = [
        Method(exchanges.VANILLA),
        Method(exchanges.PARTITION),
        *(Method(exchanges.SLICING, k) for k in exchanges.SLICES_K),
    ]
    rates = {row["way"]: row["images_per_s"] for row in rows if row["workers"] == 2}
    names = [method.name for method in methods if method.name in rates]
    axes.barh(names, [rates[name] for name in names])
    axes.invert_yaxis()
    axes.set(xlabel="images per second", title=f"{_FEATURED}, 2 workers")


def _end_host(axes: Any, rows: plots.Rows) -> None:
    most = max((row["workers"] for row in rows), default=1)
    rates = {row["way"]: row["images_per_s"] for row in rows if row["workers"] == most}
    for method in (exchanges.END_HOST, exchanges.GERYON):
        points = [
            (f"{k}K", rates[Method(method, k).name])
            for k in exchanges.SLICES_K
            if Method(method, k).name in rates
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=method)
    axes.set(xlabel="slicing threshold", ylabel="images per second")
    axes.set_title(f"{_FEATURED}, {most} workers (emulated)")
    if axes.lines:
        # From 0 on, or a difference of a thousandth would look like much.
        axes.set_ylim(0, 1.3 * max(rates.values()))
        axes.legend(fontsize="small")


def _potential(axes: Any, rows: plots.Rows) -> None:
    for accelerator in dict.fromkeys(row["accelerator"] for row in rows):
        points = [
            (row["gbit"], row["potential_speedup"])
            for row in rows
            if row["accelerator"] == accelerator
        ]
        axes.plot(*zip(*points, strict=True), marker=".", label=accelerator)
    axes.set_xscale("log")
    axes.set(xlabel="Gbit/s", ylabel="potential speedup", title=f"{_FEATURED}, by the equations")
    axes.legend(fontsize="small")


def _lookups(axes: Any, rows: plots.Rows) -> None:
    for row in rows:
        times = sorted(row["milliseconds"])
        shares = [(number + 1) / len(times) for number in range(len(times))]
        axes.step(times, shares, where="post", label=row["way"])
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set(xlabel="ms per iteration", ylabel="share", title=f"Choosing priorities, {_FEATURED}")
    if rows:
        axes.legend(fontsize="small")
