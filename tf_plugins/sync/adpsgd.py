"""AD-PSGD: replicas that average with one another (Lian et al., ICML 2018), as a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import adpsgd, exchange, step_probe
from trepak.horovod_ext.stragglers import RoundsOfRank
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.asynchronous_step import LocalStep
from trepak.tf_plugins.sync.sync_model import SyncModel


@dataclass(frozen=True)
class ADPSGD(SyncModel):
    """Asynchronous decentralized parallel SGD: each rank trains a replica of its own.

    After a step an even rank averages its parameters with those of an odd one, drawn at random,
    unless it is still averaging; both go on meanwhile. Nobody waits for anybody. The model is the
    average of all replicas: that is what `flush` shows, and what is evaluated and saved; training
    goes on with the replicas.

    Attributes:
        seed: of the draws.
    """

    seed: int = 0

    def step_for(self, distribution: Distribution) -> Replica:
        """Returns the replica of one optimizer; see `SyncModel.step_for`."""
        return Replica(distribution, self.seed)


class Replica(LocalStep):
    """This rank's parameters: native code has them, the variables show what training goes on from.

    Weights that are set from outside count as a change: set them on all ranks after a `flush`, and
    they are the new average.
    """

    system = "adpsgd"

    def __init__(self, distribution: Distribution, seed: int) -> None:
        """Makes it; see `Step`."""
        super().__init__(distribution)
        self._seed = seed

    def _exchange(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        ready_grads, ready = step_probe.mark_ready(grads)
        optimizer._apply_plainly(ready_grads, list(variables))
        self._bring("add")
        step_probe.mark_done([], ready, at_own_pace=True)
        self._values.show(self._taken("load"))

    def _start(self, variables: Sequence[Any]) -> None:
        self.session = adpsgd.start({"seed": self._seed, **self._values.described()})
        with tf.init_scope():
            self._bring("assign")
            exchange.gather(None, "that all replicas are set")  # before any is averaged

    def rounds(self) -> RoundsOfRank:
        """Returns how often this rank has averaged: a round is an averaging of two."""
        if self.session is None:
            return super().rounds()
        count = self.statistics()["averagings"]
        return RoundsOfRank(count, count, 2 * count, 0, 0)

    def drain(self, optimizer: Any) -> None:
        """Shows the average of all replicas; see `Step`."""
        if self.session is None:
            return
        with tf.init_scope():
            self._bring("bring")  # weights that were set since
            self._act("settle")
            # Averagings move parameters between ranks until all have settled.
            exchange.gather(None, "that all replicas have settled")
            self._values.show(self._means(self._taken("load")))
            self._bring("show")
