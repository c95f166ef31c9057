"""Draws how loss and accuracy went during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TRAIN, _VALIDATION = "#1f5f99", "#d95f02"


def draw_learning_curve(history: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """Writes a PNG of loss and accuracy over the epochs, of training and validation.

    Args:
        history: `fit`'s History.history with loss, accuracy, val_loss and val_accuracy.
        title: the picture's title.
        path: the file to write.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    # A Figure of its own, instead of pyplot's: no display is looked for, no state is left behind.
    figure = Figure(figsize=(9, 3.8), dpi=150, layout="constrained")
    figure.suptitle(title, fontsize=11)
    loss, accuracy = figure.subplots(1, 2)
    for axes, name in ((loss, "loss"), (accuracy, "accuracy")):
        _draw(axes, history[name], "training", _TRAIN)
        _draw(axes, history[f"val_{name}"], "validation", _VALIDATION)
        axes.set_xlabel("epoch")
        axes.set_ylabel(name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    # Over the epochs the loss falls by powers of ten; the accuracy's last percents are what counts.
    loss.set_yscale("log")
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0))
    accuracy.set_ylim(top=1.005)
    final = history["val_accuracy"][-1]
    accuracy.axhline(final, color=_VALIDATION, linewidth=0.8, linestyle=":")
    accuracy.annotate(
        f"{final:.1%}",
        (len(history["val_accuracy"]), final),
        xytext=(0, -14),
        textcoords="offset points",
        ha="right",
        color=_VALIDATION,
    )
    accuracy.legend(loc="lower right", frameon=False)
    figure.savefig(path)


def _draw(axes: Any, values: Sequence[float], label: str, colour: str) -> None:
    epochs = range(1, len(values) + 1)
    axes.plot(epochs, values, color=colour, label=label, linewidth=1.8, marker="o", markersize=3)
