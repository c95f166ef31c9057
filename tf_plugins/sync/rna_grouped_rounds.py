"""Rounds of groups of ranks that exchange parameters with each other (thesis, section 5.2)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, exchange, rna, rna_groups
from trepak.horovod_ext.broadcasting import broadcast_variables
from trepak.ops import rna as native
from trepak.tf_plugins.model.exchanged_values import ExchangedValues
from trepak.tf_plugins.model.tracing import if_true
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.rna_rounds import Rounds

_LEAST_STEPS = 5  # of every rank, before groups are made of their times


class GroupedRounds(Rounds):
    """Each group has rounds of its own; the job's parameters are on its parameter servers.

    Every few rounds the initiator of a round adds what its group has changed, weighted with the
    group's share of the ranks, to the job's parameters; what they are then is adopted by the group.
    Until it comes, the parameters are locked: no further round is applied, but computing goes on.
    """

    shares_slots = False

    def __init__(self, distribution: Distribution, options: rna.RoundOptions, groups: Any) -> None:
        """Makes it; `groups`: lists of ranks, or "auto"; see `Rounds`."""
        super().__init__(distribution, options)
        self._auto = groups == "auto"
        self._given = groups
        self._values: Any = None  # the job's parameters, as this rank has them
        self.groups: list[list[int]] = []
        self._timed = (0, 0.0)  # steps and their seconds when the groups were looked at last

    def _begin(self) -> None:
        size = basics.size()
        self.groups = rna_groups.check([range(size)] if self._auto else self._given, size)
        if self._auto:
            rna_groups.check_that_sets_can_be_added()
        self._reject_constraints(self._summed)
        self._values = ExchangedValues(self._summed)
        self.session = rna.start(self._options, self._described(), self.groups)
        with tf.init_scope():
            if basics.rank() == 0:
                self._act("assign", self._values.read())
            exchange.gather(None, "that the job's parameters are set")
            self._fetch()

    def _fetch(self) -> None:
        """Takes the job's parameters, on all ranks before any of them changes them again."""
        self._values.show(self._act("fetch", (), self._dtype, self._shapes()))
        exchange.gather(None, "that all ranks have the job's parameters")

    def _apply_one(self, optimizer: Any) -> native.RnaRound:
        read = super()._apply_one(optimizer)
        if_true(read.is_exchange, lambda: self._values.show(read.gradients))
        if_true(read.exchanges, lambda: self._act("exchange", self._values.read()))
        return read

    def drain(self, optimizer: Any) -> None:
        """Gives all ranks the job's parameters, and makes new groups if their times ask for it."""
        super().drain(optimizer)
        if self.session is None:
            return
        with tf.init_scope():
            self._act("bring", self._values.read())
            # A schedule goes on as the job does, not as the group: by the share of all ranks.
            progress = float(self._progress)
            everyone = exchange.gather(progress, "that all groups have brought what they changed")
            self._progress.assign(sum(everyone) / len(everyone))
            self._fetch()
            if self._auto:
                self._regroup(optimizer)

    def _regroup(self, optimizer: Any) -> None:
        timed = [self.statistics()[name] for name in ("steps", "step_seconds")]
        steps, seconds = timed[0] - self._timed[0], timed[1] - self._timed[1]
        everyone = exchange.gather([steps, seconds], "times of steps")
        if min(theirs for theirs, _ in everyone) < _LEAST_STEPS:
            return
        self._timed = (timed[0], timed[1])
        times = {rank: spent / count for rank, (count, spent) in enumerate(everyone)}
        groups = rna_groups.split(times)
        if sorted(groups) == sorted(self.groups):
            return
        if basics.rank() == 0:
            text = ", ".join(
                f"{group} ({1000 * sum(times[rank] for rank in group) / len(group):.0f} ms a step)"
                for group in groups
            )
            print(f"trepak: RNA goes on with groups {text}.", flush=True)
        self._before, self._copied_before = self.rounds(), self.statistics()["copy_seconds"]
        self.groups, self._timed = groups, (0, 0.0)
        rna.regroup(self.session, self._options, self._described(), groups)
        self._fetch()
        # Groups have taken different numbers of rounds, and the members of one must be alike.
        broadcast_variables(optimizer.variables, root_rank=0)
