"""`trepak trace merge`: one picture of all ranks' timelines, on a common clock."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trepak.scripts.errors import InputError, check_regular, reading

_WAITING_TRACK = 3
_STEPS_TRACK = 0
_ROUNDS_TRACK = 4  # and further ones, for further optimizers
_OF_STEPS = ("compute", "synchronize", "hand over")
_OF_ROUND = ("run", "group", "round")  # makes a round the same one on several ranks
_WANTED = "a timeline of trepak"
_REMEDY = "Is the folder the one that TREPAK_TIMELINE named?"
_LONGEST_LINE = 1 << 20  # bytes; a line is an event


@dataclass
class RankTrace:
    """One rank's file.

    Attributes:
        rank: whose it is.
        about: what the rank said of itself: host, clock, world size.
        events: all of the file, times in microseconds on the rank's own clock.
    """

    rank: int
    about: dict[str, Any]
    events: list[dict[str, Any]]

    def spans(self, name: str) -> dict[int, dict[str, Any]]:
        """Returns the spans of that name on the track of steps, by step."""
        return {
            event["args"]["step"]: event
            for event in self.events
            if event["ph"] == "X" and event["tid"] == _STEPS_TRACK and event["name"] == name
        }

    def endings(self) -> dict[int, dict[str, Any]]:
        """Returns what ends each step: a reduction with others, or handing gradients over."""
        return self.spans("hand over") | self.spans("synchronize")

    def rounds(self) -> dict[tuple[int, ...], dict[str, Any]]:
        """Returns RNA's rounds, by what makes a round the same one on several ranks."""
        return {
            (event["tid"], *(event["args"][key] for key in _OF_ROUND)): event
            for event in self.events
            if event["ph"] == "X"
            and event["tid"] >= _ROUNDS_TRACK
            and "round" in event.get("args", {})
        }


def read(file: Path) -> RankTrace:
    """Reads a rank's file, also one whose process was killed while it wrote.

    Raises:
        InputError: it is no timeline of trepak, or too long.
        OSError: it cannot be read.
    """
    check_regular(file)
    events = []
    with file.open("rb") as lines, reading(file, _WANTED, _REMEDY):
        cut_off: tuple[int, ValueError] | None = None
        for number, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE), b""), start=1):
            if cut_off:
                raise ValueError(f"line {cut_off[0]}: {cut_off[1]}") from cut_off[1]
            text = line.strip().rstrip(b",")
            if text in (b"[", b"]", b""):
                continue
            try:
                events.append(_checked(json.loads(text.decode())))
            except ValueError as error:
                cut_off = number, error  # unless more follows
        return RankTrace(*_about(events), events)


def _about(events: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Returns whose the events are, and what that rank said of itself."""
    about = next((event["args"] for event in events if event["name"] == "trepak"), None)
    if about is None:
        raise ValueError("it does not say whose it is")
    for key in ("rank", "size"):
        _check_whole(about, key)
    if not isinstance(about["clock"], str):
        raise TypeError("its clock has no name")
    if "monotonic" in about:
        _check_finite(about, "started", "monotonic")
    return about["rank"], about


def _checked(event: Any) -> dict[str, Any]:
    """Returns an event if it has what a merge asks for; raises what `reading` expects."""
    found: dict[str, Any] = event
    args = found.get("args", {})
    if not (isinstance(found["name"], str) and isinstance(args, dict)):
        raise TypeError("an event has no name")
    if found["ph"] == "X":
        _check_finite(found, "ts", "dur")
        _check_whole(found, "pid")
        _check_whole(found, "tid")
        if found["tid"] == _STEPS_TRACK and found["name"] in _OF_STEPS:
            _check_whole(args, "step")
        if found["tid"] >= _ROUNDS_TRACK and "round" in args:
            for key in _OF_ROUND:
                _check_whole(args, key)
    elif found["ph"] == "C":
        _check_finite(found, "ts")
        _check_finite(args, "value")
    elif "ts" in found:
        raise ValueError("an event that is neither a span nor a number has a time")
    return found


def _check_whole(values: Mapping[str, Any], key: str) -> None:
    if not isinstance(values[key], int):
        raise TypeError(f"{key!r} is not a whole number")


def _check_finite(values: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if not math.isfinite(values[key]):
            raise ValueError(f"{key!r} is not a finite number")


def offsets(traces: list[RankTrace]) -> dict[int, float]:
    """Returns by rank what to add to its times, in microseconds, to have those of the first.

    Ranks on one machine share a clock. Others' clocks are aligned by the ends of the steps'
    reductions, or else of rounds, which all ranks leave together; the median is taken. Ranks that
    have neither in common are aligned by their machines' time of day.

    Raises:
        InputError: two ranks have none of these in common.
    """
    first = traces[0]
    found = {}
    for trace in traces:
        if trace.about["clock"] == first.about["clock"]:
            found[trace.rank] = 0.0
            continue
        shared = _differences(first.spans("synchronize"), trace.spans("synchronize"))
        shared = shared or _differences(first.rounds(), trace.rounds())
        if shared:
            found[trace.rank] = statistics.median(shared)
        elif "monotonic" in first.about and "monotonic" in trace.about:
            found[trace.rank] = _time_of_day(trace) - _time_of_day(first)
        else:
            raise InputError(
                f"ranks {first.rank} and {trace.rank} ran on different machines and have no step "
                "in common, so that their clocks cannot be compared."
            )
    return found


def _differences(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> list[float]:
    return [_end(first[key]) - _end(span) for key, span in second.items() if key in first]


def _time_of_day(trace: RankTrace) -> float:
    """Returns what to add to a rank's times, in microseconds, to have the time of day."""
    return float(1e6 * (trace.about["started"] - trace.about["monotonic"]))


def _end(span: dict[str, Any]) -> float:
    return float(span["ts"] + span.get("dur", 0.0))


def waits(traces: list[RankTrace]) -> list[dict[str, Any]]:
    """Returns a span for each step and rank that waited for another: for whom, and how long.

    There are none where ranks go at their own pace: nobody waits for one rank there.
    """
    spans = {trace.rank: trace.spans("synchronize") for trace in traces}
    common = set.intersection(*(set(by_step) for by_step in spans.values()))
    found = []
    for step in sorted(common):
        last = min(spans, key=lambda rank: spans[rank][step]["dur"])
        for rank, by_step in spans.items():
            duration = by_step[step]["dur"] - spans[last][step]["dur"]
            if rank != last and duration > 0:
                found.append(
                    {
                        "ph": "X",
                        "name": f"waits for rank {last}",
                        "ts": by_step[step]["ts"],
                        "dur": duration,
                        "pid": rank,
                        "tid": _WAITING_TRACK,
                        "args": {"step": step},
                    }
                )
    return found


def merge(folder: Path, output: Path, steps: tuple[int, int | None] = (0, None)) -> list[RankTrace]:
    """Merges the timelines of a folder into one file.

    Args:
        folder: holds rank-0.json and so on.
        output: the file to write.
        steps: the first step to keep, and the one before which to end; None keeps all.

    Returns:
        What was read, in rank order.

    Raises:
        InputError: the folder has no timelines, or they cannot be put on a common clock; or
            the output is one of them.
        OSError: a file cannot be read or written.
    """
    files = sorted(folder.glob("rank-*.json"))
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}. {_REMEDY}")
    if not files:
        raise InputError(f"{folder} holds no timelines (rank-0.json and so on).")
    if os.path.realpath(output) in map(os.path.realpath, files):
        raise InputError(f"{output} is one of the timelines: choose another --output.")
    traces = sorted((read(file) for file in files), key=lambda trace: trace.rank)
    if any(trace.about["size"] != len(traces) for trace in traces):
        sizes = ", ".join(f"rank {t.rank} of {t.about['size']}" for t in traces)
        raise InputError(
            f"{folder} holds files of several jobs, or not all of one: {sizes}. Give each job a "
            "folder of its own."
        )
    shift = offsets(traces)
    waited = waits(traces)
    events = [
        event | ({"ts": event["ts"] + shift[trace.rank]} if "ts" in event else {})
        for trace in traces
        for event in trace.events + (_track_name(trace.rank) if waited else [])
    ]
    events += [w | {"ts": w["ts"] + shift[w["pid"]]} for w in waited]
    window = _window(traces[0], shift[traces[0].rank], steps)
    kept = [e for e in events if "ts" not in e or _overlaps(e, window)]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"traceEvents": kept, "displayTimeUnit": "ms"}))
    return traces


def _track_name(rank: int) -> list[dict[str, Any]]:
    name = {"name": "waiting"}
    return [{"ph": "M", "name": "thread_name", "pid": rank, "tid": _WAITING_TRACK, "args": name}]


def _window(trace: RankTrace, shift: float, steps: tuple[int, int | None]) -> tuple[float, float]:
    """Returns the times between which the steps lie."""
    first, end = steps
    begins = [s["ts"] for step, s in trace.spans("compute").items() if step >= first]
    ends = [_end(s) for step, s in trace.endings().items() if end is None or step < end]
    from_start, to_end = first == 0, end is None
    return (
        float("-inf") if from_start else min(begins, default=float("inf")) + shift,
        float("inf") if to_end else max(ends, default=float("-inf")) + shift,
    )


def _overlaps(event: dict[str, Any], window: tuple[float, float]) -> bool:
    return bool(event["ts"] < window[1] and _end(event) > window[0])
