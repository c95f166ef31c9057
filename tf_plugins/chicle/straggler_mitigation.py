"""Straggler mitigation: a task that falls behind takes fewer of its samples, until it keeps up.

Chicle, section 4.5, names it. Rebalancing moves chunks where a task is slow for long; where it is
slow for some iterations, no chunk has to move. Policies decide beside the next iteration, so that
the one after it is the first that is shorter.
"""

from __future__ import annotations

import statistics

from trepak.tf_plugins.chicle.policy import Policy, Share, Situation


class StragglerMitigation(Policy):
    """Lessens the work of tasks that took much longer than the median."""

    def __init__(self, factor: float = 1.5) -> None:
        """Makes it.

        Args:
            factor: of the median task's time, from which a task is a straggler.

        Raises:
            ValueError: it is not above 1.
        """
        if factor <= 1:
            raise ValueError(f"factor must be above 1, got {factor}.")
        self._factor = factor

    def decide(self, situation: Situation) -> list[Share]:
        """See `Policy`."""
        done = situation.metrics.tasks if situation.metrics else {}
        # As long as each would have taken for all of its samples.
        whole = {
            task: one.seconds * one.local_samples / one.samples
            for task, one in done.items()
            if one.samples and task in situation.tasks
        }
        if not whole:
            return []
        usual = statistics.median(whole.values())
        return [
            Share(task, usual / seconds)
            for task, seconds in whole.items()
            if seconds > self._factor * usual
        ]
