"""A model's training under Fela on this rank: from a batch of `fit` to an update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.broadcasting import broadcast_variables
from trepak.horovod_ext.fela import FelaWorker
from trepak.tf_plugins.fela.ages import Ages
from trepak.tf_plugins.fela.agreed import agreed_beginning
from trepak.tf_plugins.fela.compiled import check, check_staleness, check_subset
from trepak.tf_plugins.fela.own_batch import BatchFormat, float_specs_of
from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.reduction import Reduction, is_any_under_way
from trepak.tf_plugins.fela.rules import TokenRules
from trepak.tf_plugins.fela.token_loop import TokenLoop
from trepak.tf_plugins.fela.token_trainer import Iteration, TokenTrainer
from trepak.tf_plugins.fela.update import Update

_ROOT = 0  # is in every conditional subset


class Training:
    """What one compiled model has of Fela.

    Attributes:
        rules: that the next session has; it opens with the next batch after `close`.
        batch_sizes: by rank, of the session; none before the first one.
    """

    def __init__(self, model: Any, partition: Partition, rules: TokenRules) -> None:
        """Makes it of a compiled model; nothing is opened before the first batch.

        Raises:
            ValueError: the model can't be trained so; says why.
        """
        check(model)
        self._model, self._partition, self.rules = model, partition, rules
        self.batch_sizes: list[int] = []
        self._batches = BatchFormat(partition)
        self._update = Update(model, partition, self._batches)
        self._trainer = TokenTrainer(
            partition, self._update.loss, self._update.scale, bool(model.run_eagerly)
        )
        self._open: tuple[FelaWorker, TokenLoop, Reduction] | None = None
        self._ages = Ages()
        self._logs: Any = None
        self._is_apart = False  # ranks outside of a conditional subset have weights of before
        for cut, sub_model in zip(partition.cuts, partition.sub_models, strict=False):
            if not float_specs_of(sub_model.outputs):
                raise ValueError(
                    f"behind layer {cut!r} no floating-point tensor crosses the cut, so that no "
                    "gradient could go back: cut elsewhere."
                )

    def step(self, iterator: Iterator[Any], by_itself: bool = False) -> Any:
        """Trains on a batch: Keras' train function; returns logs.

        Args:
            iterator: its next batch.
            by_itself: it is not one of `fit`, whose first one the others are measured by: ranks
                agree on each batch.

        Raises:
            ValueError: this batch is larger than the first one of `fit`, or nobody has a sample.
            StopIteration: there is no more data.
            HorovodInternalError: a rank has died, left, or kept the others waiting too long.
        """
        if self._open is not None and not self._open[0].is_open:
            self.abandon()  # Horovod was shut down since
        data = next(iter(iterator))
        in_lockstep = isinstance(iterator, list)  # ranks agree before each step
        try:
            if by_itself:
                self._end_if_outgrown(int(keras.tree.flatten(data)[0].shape[0]))
            inputs, labels = self._batches.split(data)
            _, loop, _ = self._opened(data, int(inputs[0].shape[0]), bool(labels))
            self._check_batch(int(inputs[0].shape[0]))
            self._ages.begin(self._update.rate() if self.rules.staleness else None)
            self._ages.ended += loop.run(inputs, labels)
            self._apply()
            if by_itself or in_lockstep:  # else who finishes could wait for who is to agree
                self._finish()
            return self._logs or self._model.get_metrics_result()
        except BaseException as error:  # an interrupt, too: others would wait for this rank
            self.give_up(error)
            raise

    def _check_batch(self, samples: int) -> None:
        rank = basics.rank()
        if samples > self.batch_sizes[rank]:
            raise ValueError(
                f"rank {rank} has a batch of {samples} samples, where the first one of fit had "
                f"{self.batch_sizes[rank]}, for which tokens were made: let fit begin with the "
                "largest batch, or call train_on_batch."
            )

    def finish(self) -> None:
        """Ends all iterations that this rank has begun, and applies them (SSP).

        Other ranks need not call it.
        """
        if self._open is None or not self._open[0].is_open:
            return
        try:
            self._finish()
        except BaseException as error:
            self.give_up(error)
            raise

    def _finish(self) -> None:
        assert self._open is not None
        self._ages.ended += self._open[1].finish()
        self._apply()

    def _apply(self) -> None:
        """Applies iterations that have ended, in their order.

        Their sums are waited for, so that weights lack no update that could be had: all ranks hear
        at once that a sub-model is trained, whatever they are doing.
        """
        assert self._open is not None
        worker, _, reduction = self._open
        for over in self._ages.ended[:]:
            sums = reduction.finish(over.iteration, worker.check)
            _check_that_any(over.samples)
            self._is_apart = reduction.is_partial
            mine = [self._partition.sub_models[i] for i in sums]
            is_stale = self.rules.staleness > 0
            rate = self._ages.apply()
            with self._update.at(rate if is_stale else None):
                self._logs = self._update.apply(
                    mine, list(sums.values()), over.samples, over.loss, is_stale
                )

    def flush(self) -> None:
        """Gives all ranks the weights of conditional sub-models.

        A collective call after iterations in which not all ranks trained all sub-models.
        """
        self.finish()
        if not self._is_apart:
            return
        self._is_apart = False
        for_all = [*self._model.optimizer.variables]
        for sub_model in self._partition.sub_models:
            for_all += [*sub_model.trainable, *sub_model.averaged]
        broadcast_variables(for_all, _ROOT)

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted; nothing before the first batch."""
        if self._open is None:
            return {}
        worker, loop, _ = self._open
        return worker.statistics() | {
            "waiting_seconds": loop.waiting_seconds,
            "most_stale": self._ages.most_stale,
            "stale_iterations": self._ages.stale,
        }

    def close(self) -> None:
        """Ends the session, if there is one; a collective call. The next batch opens another."""
        if self.rules.subset is not None:  # an error may have left some ranks behind
            self._is_apart = any(exchange.gather(self._is_apart, "whether Fela's ranks are apart"))
        self.flush()
        self.abandon()

    def give_up(self, error: BaseException) -> None:
        """Ends this rank's part of the session for an error, and tells the others of it."""
        if self._open is not None and self._open[0].is_open:
            self._open[0].give_up(f"training failed with {type(error).__name__}: {error}")
        self.abandon()

    def abandon(self) -> None:
        """Ends this rank's part of the session."""
        if self._open is not None:
            worker, _, reduction = self._open
            self._open = None
            reduction.close()
            worker.close()
        self._batches.forget()

    def _end_if_outgrown(self, samples: int) -> None:
        """Ends the session if a rank's batch is larger than what it was opened for.

        A collective call.
        """
        outgrown = self._open is None or samples > self.batch_sizes[basics.rank()]
        if any(exchange.gather(outgrown, "whether Fela's batches have grown")):
            self.close()

    def _agree_on_seeds(self) -> None:
        """Gives all ranks the first one's: a sample's mask is the same wherever it is drawn."""
        states = [v for one in self._partition.sub_models for v in one.state]
        seeds = [v for v in states if not tf.as_dtype(v.dtype).is_floating]
        if seeds:
            broadcast_variables(seeds, _ROOT)

    def _opened(
        self, data: Any, samples: int, has_labels: bool
    ) -> tuple[FelaWorker, TokenLoop, Reduction]:
        if self._open is None:
            if not has_labels:
                raise ValueError(f"model {self._model.name!r} is trained without labels: give y.")
            iterations = int(self._model.optimizer.iterations)
            self.batch_sizes, first = agreed_beginning(
                samples, iterations, is_any_under_way(), self.rules, self._partition.cuts
            )
            _check_that_any(sum(self.batch_sizes))
            if self.rules.is_partial(basics.size()):
                check_subset(self._model)
            if self.rules.staleness:
                check_staleness(self._model, self.rules.staleness)
            # A rank may see no token of the last sub-model, whose training would build metrics.
            self._model._symbolic_build(data_batch=data)
            self._model.optimizer.ensure_built(self._model.trainable_variables)
            self._agree_on_seeds()
            self._update.expect(sum(self.batch_sizes))
            reduction = Reduction(self.rules.members(basics.size()))
            worker = FelaWorker(self.rules.on(self.batch_sizes))

            def trained(number: int, iteration: Iteration, sub_model: int) -> None:
                sums = iteration.sums[sub_model]
                reduction.start(number, sub_model, [*sums.gradients, *sums.state])

            loop = TokenLoop(
                worker,
                self._trainer,
                self._partition,
                self._batches,
                trained,
                first,
                self.rules.staleness,
            )
            self._ages, self._logs = Ages(), None
            self._open = worker, loop, reduction
        return self._open


def _check_that_any(samples: int) -> None:
    """Raises ValueError if all ranks together have no samples; the same on all."""
    if not samples:
        raise ValueError(
            "no rank has a sample in this batch, whose mean loss would be 0 / 0: leave empty "
            "batches out of the data."
        )
