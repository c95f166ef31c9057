"""What Dymem did in a training, in figures and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Statistics = Mapping[str, Any]  # `Dymem.statistics()`
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class MemoryFigures:
    """What Dymem did in some steps.

    Attributes:
        steps: so many.
        limit_bytes: the pool's size.
        peak_live_bytes: the most that tensors took.
        peak_occupied_bytes: the most that they and the gaps between them took.
        out_bytes: swapped out per step.
        in_bytes: swapped in per step.
        copy_seconds: what copies took per step, both ways.
        waited_seconds: of a step, in which the computation waited for copies.
        mean_fragmentation: equation 4.1 of the thesis, over all tensors that were placed.
        worst_fragmentation: the same of the worst one.
        beyond_peak_bytes: the most that has lain beyond the pool since it was made.
    """

    steps: int
    limit_bytes: float
    peak_live_bytes: float
    peak_occupied_bytes: float
    out_bytes: float
    in_bytes: float
    copy_seconds: float
    waited_seconds: float
    mean_fragmentation: float
    worst_fragmentation: float
    beyond_peak_bytes: float

    @property
    def hidden(self) -> float | None:
        """The share of copies' time behind which the computation went on; None: no copies."""
        if not self.copy_seconds:
            return None
        return max(0.0, 1.0 - self.waited_seconds / self.copy_seconds)

    def line(self) -> str:
        """Returns the figures as text, in one line."""
        parts = [
            f"at most {format_bytes(self.peak_live_bytes)} live and "
            f"{format_bytes(self.peak_occupied_bytes)} occupied of "
            f"{format_bytes(self.limit_bytes)}",
            f"{format_bytes(self.out_bytes)} out and {format_bytes(self.in_bytes)} in per step",
        ]
        if self.hidden is not None:
            parts.append(
                f"{self.hidden:.0%} of {1e3 * self.copy_seconds:.1f} ms of copies per step hidden"
            )
        parts.append(
            f"fragmentation {self.mean_fragmentation:.0%}, at worst {self.worst_fragmentation:.0%}"
        )
        return "; ".join(parts)


class Tally:
    """Adds up what Dymem's statistics say, of which peaks begin anew with each look."""

    def __init__(self, begin: Statistics) -> None:
        """Begins with statistics whose peaks are reset just then."""
        self._begin = self._last = begin
        self._live = self._occupied = self._worst = 0.0
        self._weighted, self._placed = 0.0, 0

    def add(self, now: Statistics) -> None:
        """Takes what came since the last statistics."""
        pool = now["pool"]
        self._live = max(self._live, pool["peak_live_bytes"])
        self._occupied = max(self._occupied, pool["peak_occupied_bytes"])
        self._worst = max(self._worst, pool["worst_fragmentation"])
        placed = pool["allocations"] - self._last["pool"]["allocations"]
        self._weighted += placed * pool["mean_fragmentation"]
        self._placed += placed
        self._last = now

    def figures(self, steps: int) -> MemoryFigures:
        """Returns all that came since the begin, which were so many steps."""
        each = 1.0 / max(1, steps)
        copied = self._since("offload_busy_seconds") + self._since("fetch_busy_seconds")
        return MemoryFigures(
            steps=steps,
            limit_bytes=self._last["pool"]["limit_bytes"],
            peak_live_bytes=self._live,
            peak_occupied_bytes=self._occupied,
            out_bytes=each * self._since("offloaded_bytes"),
            in_bytes=each * (self._since("fetched_bytes")),
            copy_seconds=each * copied,
            waited_seconds=each * self._since("computation_waited_seconds"),
            mean_fragmentation=self._weighted / max(1, self._placed),
            worst_fragmentation=self._worst,
            beyond_peak_bytes=self._last["beyond"]["peak_bytes"],
        )

    def proof(self) -> list[str]:
        """Returns what left and came back since the begin, and by which graphs; a line each."""
        left, kept = self._since("offloaded_tensors"), self._since("kept_tensors")
        stayed = kept + self._since("cancelled_offloads")
        came = self._since("fetched_tensors")
        lines = [
            f"{left:,.0f} tensors left, {stayed:,.0f} stayed after all, {came:,.0f} came back: "
            + ("all did" if left + stayed == came else "not all did, as steps failed or go on")
        ]
        for graph in self._last["graphs"]:
            left_alone = f"; left alone: {graph['left_alone']}" if graph["left_alone"] else ""
            lines.append(
                f"graph {graph['name']}: {graph['layers']:,} layers, "
                f"{graph['swapped_tensors']:,} tensors swapped{left_alone}"
            )
        return lines

    def why_nothing(self) -> str:
        """Returns why nothing left the pool since the begin; empty if something did."""
        graphs = self._last["graphs"]
        if self._since("offloaded_tensors"):
            return ""
        if self._last["policy"] == "none":
            return 'policy="none" swaps nothing.'
        if not graphs:
            return (
                "Dymem saw no graph of a training step: train with fit, or in a tf.function, "
                "without run_eagerly=True and jit_compile=True."
            )
        if any(graph["swapped_tensors"] for graph in graphs):
            failure = self._last["first_failure"]
            return failure or "each tensor was needed again before its turn to leave had come."
        left_alone = [graph["left_alone"] for graph in graphs if graph["left_alone"]]
        if not any(graph["layers"] for graph in graphs) and left_alone:
            return f"Dymem left {left_alone[-1]} of the step alone."
        if not any(graph["layers"] for graph in graphs):
            return (
                "nothing in the step is a feature map: no tensor that the backward pass reads "
                "grows with the batch and takes 4 KiB or more."
            )
        return f'policy="{self._last["policy"]}" finds no tensor to swap in this model.'

    def _since(self, counter: str) -> float:
        return float(self._last["swaps"][counter] - self._begin["swaps"][counter])


def format_bytes(size: float) -> str:
    """Returns one digit after the point and a unit, e.g. "1.5 MiB"."""
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
