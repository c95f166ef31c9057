"""One session of training by tokens: what is opened for one set of rules and batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.horovod_ext import basics
from trepak.horovod_ext.fela import FelaWorker, Over
from trepak.tf_plugins.fela.ages import Ages
from trepak.tf_plugins.fela.own_batch import BatchFormat
from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.reduction import Reduction
from trepak.tf_plugins.fela.rules import TokenRules
from trepak.tf_plugins.fela.token_loop import TokenLoop
from trepak.tf_plugins.fela.token_trainer import Iteration, TokenTrainer
from trepak.tf_plugins.fela.update import Update


class Session:
    """This rank's part of it: it asks for tokens, and updates the weights when iterations are over.

    Attributes:
        logs: of the last iteration that was applied; None before the first one.
    """

    def __init__(
        self,
        rules: TokenRules,
        batch_sizes: Sequence[int],
        first: int,
        partition: Partition,
        trainer: TokenTrainer,
        update: Update,
        batches: BatchFormat,
    ) -> None:
        """Opens it; a collective call.

        Args:
            rules: that hold as long as it is open.
            batch_sizes: by rank, the most samples of an iteration.
            first: the number of its first iteration among those of the training.
            partition: of the model.
            trainer: what trains tokens.
            update: what iterations change.
            batches: how samples and labels lie in chunks.
        """
        self._sub_models, self._update = partition.sub_models, update
        self._staleness = rules.staleness
        reduction = Reduction(rules.members(basics.size()))
        self._worker, self._reduction = FelaWorker(rules.on(batch_sizes)), reduction

        def trained(number: int, iteration: Iteration, sub_model: int) -> None:
            sums = iteration.sums[sub_model]
            reduction.start(number, sub_model, [*sums.gradients, *sums.state])

        self._loop = TokenLoop(
            self._worker, trainer, partition, batches, trained, first, rules.staleness
        )
        self._ages = Ages()
        self.logs: Any = None

    @property
    def is_open(self) -> bool:
        """Whether it can train on: not after Horovod was shut down."""
        return self._worker.is_open

    @property
    def is_partial(self) -> bool:
        """Whether some rank does not train some sub-model."""
        return self._reduction.is_partial

    def run(self, inputs: Sequence[Any], labels: Sequence[Any]) -> list[Over]:
        """Begins an iteration with this rank's samples; returns those that are over since.

        They are to be applied before the next one.

        Raises:
            HorovodInternalError: a rank has died, left, or kept the others waiting too long.
        """
        self._ages.begin(self._update.rate() if self._staleness else None)
        return self._loop.run(inputs, labels)

    def apply(self, ended: Sequence[Over]) -> None:
        """Applies iterations that have ended, in their order.

        Their sums are waited for, so that weights lack no update that could be had: all ranks hear
        at once that a sub-model is trained, whatever they are doing.

        Raises:
            HorovodInternalError: a rank has died, or left.
            ValueError: an iteration has no samples.
        """
        for over in ended:
            sums = self._reduction.finish(over.iteration, self._worker.check)
            check_that_any(over.samples)
            mine = [self._sub_models[i] for i in sums]
            is_stale = self._staleness > 0
            rate = self._ages.apply()
            with self._update.at(rate if is_stale else None):
                self.logs = self._update.apply(
                    mine, list(sums.values()), over.samples, over.loss, is_stale
                )

    def finish(self) -> None:
        """Ends all iterations that this rank has begun, and applies them (SSP).

        Raises:
            HorovodInternalError: a rank has died, left, or kept the others waiting too long.
        """
        self.apply(self._loop.finish())

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted."""
        return self._worker.statistics() | {
            "waiting_seconds": self._loop.waiting_seconds,
            "most_stale": self._ages.most_stale,
            "stale_iterations": self._ages.stale,
        }

    def give_up(self, why: str) -> None:
        """Says that this rank can't train on: the others' calls fail, and say why."""
        if self.is_open:
            self._worker.give_up(why)

    def close(self) -> None:
        """Ends this rank's part of it."""
        self._reduction.close()
        self._worker.close()


def check_that_any(samples: int) -> None:
    """Raises ValueError if all ranks together have no samples; the same on all."""
    if not samples:
        raise ValueError(
            "no rank has a sample in this batch, whose mean loss would be 0 / 0: leave empty "
            "batches out of the data."
        )
