"""Log entries for the samples of all ranks together, from each rank's entries and metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.callbacks.metric_readings import (
    Reading,
    State,
    common_names,
    layout,
    merge,
    results_of,
)

Sections = dict[str, tuple[Reading, dict[str, np.ndarray]]]


def over_ranks(
    model: Any, sections: Sections, process_set: basics.ProcessSet, said: set[str]
) -> dict[str, dict[str, Any]]:
    """Returns the log entries of all ranks together; a collective call.

    Args:
        model: the Keras model.
        sections: by kind ("train", "val", "test"), this rank's reading of the metrics and its log
            entries. Ranks may have other sections, and other entries.
        process_set: the ranks that take part.
        said: of which metrics it was said that their results are averaged; is added to.

    Returns:
        By section, a value for each of this rank's entries: a float, or an array.

    Raises:
        ValueError: on every rank, if a metric's states differ in class or shape between ranks.
        HorovodInternalError: a rank has left the job.
    """
    mine = {kind: _facts(*section) for kind, section in sections.items()}
    ranks = process_set.ranks
    everyone = list(zip(ranks, exchange.gather(mine, "metrics", process_set), strict=True))
    kinds = sorted({kind for _, facts in everyone for kind in facts})
    held = {kind: [(r, facts[kind]) for r, facts in everyone if kind in facts] for kind in kinds}
    layouts = {kind: layout(held[kind]) for kind in kinds}
    names: dict[str, _Names] = {}
    states: dict[str, dict[str, list[State]]] = {}
    for kind, (reading, _) in sections.items():
        names[kind] = _Names(held[kind])
        common = names[kind].of_metrics[basics.rank()]
        states[kind] = {common[name]: here for name, (_, here) in reading.states.items() if here}
    merged = merge(layouts, states, process_set)
    speaks = process_set.rank() == 0
    found = {}
    for kind, (reading, entries) in sections.items():
        common = names[kind].of_metrics[basics.rank()]
        pairs = {
            name: list(zip(here, merged[kind][common[name]], strict=False))
            for name, (_, here) in reading.states.items()
        }
        results, too_large = results_of(model, pairs)
        _say(said, reading, too_large, speaks)
        found[kind] = {name: names[kind].entry(name, v, results) for name, v in entries.items()}
    return found


def _facts(reading: Reading, entries: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns what the other ranks must know, as JSON-able values."""
    facts = reading.described()
    facts["entries"] = {}
    for name, value in entries.items():
        source = reading.source(name, value)
        facts["entries"][name] = [value.tolist(), reading.weight(name, source), source]
    return facts


class _Names:
    """The entries of one section on the ranks that have it, by names that these ranks share."""

    def __init__(self, held: list[tuple[int, dict[str, Any]]]) -> None:
        ranks = [rank for rank, _ in held]

        def common(part: str) -> dict[int, dict[str, str]]:
            return dict(zip(ranks, common_names([facts[part] for _, facts in held]), strict=True))

        self.of_metrics, self._of_results = common("metrics"), common("results")
        self._of_entries = common("entries")
        self._seen: dict[str, list[Any]] = {}
        for rank, facts in held:
            for name, (value, weight, source) in facts["entries"].items():
                shown = source and self._of_results[rank][source]
                seen = (np.asarray(value, np.float64), weight, shown, source == name)
                self._seen.setdefault(self._of_entries[rank][name], []).append(seen)

    def entry(self, name: str, mine: np.ndarray, results: dict[str, Any]) -> Any:
        """Returns an entry for the samples of all ranks; `results` are those of merged states."""
        values, weights, shown, by_name = zip(
            *self._seen[self._of_entries[basics.rank()][name]], strict=True
        )
        if any(value.shape != mine.shape for value in values):
            return _plain(mine)
        # An entry of another name shows a metric if it has the metric's value on each rank; not if
        # it is one number on all, such as a rate of 1, which is an accuracy too.
        is_a_result = shown[0] is not None and len(set(shown)) == 1
        if is_a_result and (all(by_name) or any((v != values[0]).any() for v in values)):
            own = {c: n for n, c in self._of_results[basics.rank()].items()}[shown[0]]
            if results.get(own) is not None:
                return _plain(results[own])
        if sum(weights) == 0:
            weights = (1.0,) * len(values)
        sums = [value * weight for value, weight in zip(values, weights, strict=True) if weight]
        return _plain(np.asarray(sum(sums) / sum(weights)))


def _plain(value: np.ndarray) -> Any:
    return float(value) if value.ndim == 0 else value


def _say(said: set[str], reading: Reading, too_large: list[str], speaks: bool) -> None:
    """Says, once for each metric and on one rank, which results are averaged."""
    reasons = {
        name: f"the class {cls} does not say how its states are merged over the ranks (declare it "
        'in the class: reduce_over_ranks = "sum", say; see MetricAverageCallback)'
        for name, cls in reading.unmerged.items()
    }
    reasons |= {
        name: "its merged state is too large for its dtype (give it a wider one)"
        for name in too_large
    }
    for name, reason in reasons.items():
        if speaks and name not in said:
            print(
                f"trepak: results of metric {name!r} are averaged over the ranks, weighed by "
                f"samples: {reason}.",
                flush=True,
            )
        said.add(name)
