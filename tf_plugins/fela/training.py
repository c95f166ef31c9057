"""A model's training under Fela on this rank: from a batch of `fit` to an update."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.agreement import Fact
from trepak.horovod_ext.broadcasting import broadcast_variables
from trepak.tf_plugins.fela.agreed import agreed_beginning
from trepak.tf_plugins.fela.compiled import check, check_staleness, check_subset
from trepak.tf_plugins.fela.own_batch import BatchFormat, float_specs_of
from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.reduction import is_any_under_way
from trepak.tf_plugins.fela.rules import TokenRules
from trepak.tf_plugins.fela.session import Session, check_that_any
from trepak.tf_plugins.fela.token_trainer import TokenTrainer
from trepak.tf_plugins.fela.update import Update

_ROOT = 0  # is in every conditional subset


class Training:
    """What one compiled model has of Fela.

    Attributes:
        rules: that the next session has; it opens with the next batch after `close`.
        batch_sizes: by rank, of the session; none before the first one.
        session: the one that is open.
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
        self._update = Update(model, partition)
        self._trainer = TokenTrainer(
            partition, self._update.loss, self._update.scale, bool(model.run_eagerly)
        )
        self.session: Session | None = None
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
        if self.session is not None and not self.session.is_open:
            self.abandon()  # Horovod was shut down since
        data = next(iter(iterator))
        in_lockstep = isinstance(iterator, list)  # ranks agree before each step
        try:
            if by_itself:
                self._end_if_outgrown(int(keras.tree.flatten(data)[0].shape[0]))
            inputs, labels = self._batches.split(data)
            session = self._opened(data, int(inputs[0].shape[0]), bool(labels))
            self._check_batch(int(inputs[0].shape[0]))
            ended = session.run(inputs, labels)
            # Also if the update fails. Before all have begun an iteration, it ends on no rank.
            self._is_apart = session.is_partial
            session.apply(ended)
            if by_itself or in_lockstep:  # else who finishes could wait for who is to agree
                session.finish()
            return session.logs or self._model.get_metrics_result()
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
        if self.session is None or not self.session.is_open:
            return
        try:
            self.session.finish()
        except BaseException as error:
            self.give_up(error)
            raise

    def flush(self) -> None:
        """Gives all ranks the weights of conditional sub-models.

        A collective call after iterations in which not all ranks trained all sub-models.
        """
        self.finish()
        if not self._is_apart:
            return
        for_all = [*self._model.optimizer.variables]
        for sub_model in self._partition.sub_models:
            for_all += [*sub_model.trainable, *sub_model.averaged]
        broadcast_variables(for_all, _ROOT)
        self._is_apart = False

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted; nothing before the first batch."""
        return {} if self.session is None else self.session.statistics()

    def close(self) -> None:
        """Ends the session, if there is one; a collective call. The next batch opens another."""
        if self.rules.subset is not None:  # an error may have left some ranks behind
            self._is_apart = any(exchange.gather(self._is_apart, "whether Fela's ranks are apart"))
        self.flush()
        self.abandon()

    def give_up(self, error: BaseException) -> None:
        """Ends this rank's part of the session for an error, and tells the others of it."""
        if self.session is not None:
            self.session.give_up(f"training failed with {_in_one_line(error)}")
        self.abandon()

    def abandon(self) -> None:
        """Ends this rank's part of the session."""
        session, self.session = self.session, None
        if session is not None:
            session.close()
        self._batches.forget()
        if basics.is_elastic():  # all ranks get rank 0's weights before they train on
            self._is_apart = False

    def _end_if_outgrown(self, samples: int) -> None:
        """Ends the session if a rank's batch is larger than what it was opened for.

        A collective call.
        """
        outgrown = self.session is None or samples > self.batch_sizes[basics.rank()]
        if any(exchange.gather(outgrown, "whether Fela's batches have grown")):
            self.close()

    def _opened(self, data: Any, samples: int, has_labels: bool) -> Session:
        if self.session is None:
            iterations = int(self._model.optimizer.iterations)
            sizes, first = agreed_beginning(samples, iterations, is_any_under_way(), self._facts())
            if not has_labels:  # on all ranks, as they have just agreed
                raise ValueError(f"model {self._model.name!r} is trained without labels: give y.")
            check_that_any(sum(sizes))
            if self.rules.is_partial(basics.size()):
                check_subset(self._model)
            if self.rules.staleness:
                check_staleness(self._model, self.rules.staleness)
            # A rank may see no token of the last sub-model, whose training would build metrics.
            self._model._symbolic_build(data_batch=data)
            self._model.optimizer.ensure_built(self._model.trainable_variables)
            self._agree_on_seeds()
            self._update.expect(sum(sizes))
            self.session = Session(
                self.rules,
                sizes,
                first,
                self._partition,
                self._trainer,
                self._update,
                self._batches,
            )
            self.batch_sizes = sizes
        return self.session

    def _facts(self) -> Sequence[Fact]:
        """Returns what ranks read each other's tokens and chunks by."""
        same = "give all ranks the same"
        return [
            Fact("Fela's partition, by the numbers of layers", self._partition.places, same),
            *(
                Fact(f"Fela's {name}", value, same)
                for name, value in dataclasses.asdict(self.rules).items()
            ),
            Fact("what a sample has of y and sample_weight", self._batches.form, same),
        ]

    def _agree_on_seeds(self) -> None:
        """Gives all ranks the first one's: a sample's mask is the same wherever it is drawn."""
        states = [v for one in self._partition.sub_models for v in one.state]
        seeds = [v for v in states if not tf.as_dtype(v.dtype).is_floating]
        if seeds:
            broadcast_variables(seeds, _ROOT)


def _in_one_line(error: BaseException) -> str:
    """Returns what others are told of an error: without the stack that AutoGraph writes into it."""
    said = re.split(r"\n +\w+(?:Error|Exception): ", str(error))[-1]
    return " ".join([f"{type(error).__name__}:", *said.split()])
