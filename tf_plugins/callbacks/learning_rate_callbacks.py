"""Learning-rate schedule and warm-up callbacks, for Keras 3's `learning_rate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.model.distributed_models import asynchronous_steps, process_set_of
from trepak.tf_plugins.model.model_hooks import goes_ahead


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier` between two epochs.

    With `staircase` the multiplier is asked once per epoch, with whole epochs; without, before each
    batch, with `epoch + batch / steps_per_epoch`.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        process_set: basics.ProcessSet | None = None,
    ) -> None:
        """Makes the callback.

        Args:
            initial_lr: learning rate at the start of training.
            multiplier: a function of the epoch, or a number m, which means m ** (epoch - start).
            start_epoch: first epoch in which the rate is set.
            end_epoch: epoch from which on it is left alone; None for never.
            staircase: once per epoch, or before every batch.
            momentum_correction: scale the momentum term by new / old rate where the rate changes
                (section 3 of "Accurate, Large Minibatch SGD"). Not in each batch where ranks go
                at their own pace, as with `sync=RNA()` or `Fela(model, staleness=1)`.
            steps_per_epoch: batches per epoch, where Keras does not know them.
            process_set: the ranks that train together, which all have the callback; by default
                those of the model's optimizer. Other ranks go by their own batches.

        Raises:
            ValueError: `initial_lr` is None.
        """
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is required: the learning rate at the start of training.")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = self._given_steps = steps_per_epoch
        self.current_epoch = 0
        self._process_set = process_set
        self._set = process_set or basics.global_process_set
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor = float(multiplier)
            self.multiplier = lambda epoch: factor ** (epoch - start_epoch)

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds out the number of batches per epoch, if it is needed: a collective call then.

        Raises:
            ValueError: it is needed and unknown.
            TypeError: the optimizer's learning rate is a schedule, or one of several.
        """
        self._set = self._process_set or process_set_of(self.model)
        optimizer = self._optimizer()
        if isinstance(optimizer, keras.optimizers.MultiOptimizer):
            raise TypeError(
                f"{type(self).__name__} cannot set the rates inside a MultiOptimizer; give those "
                "optimizers schedules."
            )
        if not isinstance(optimizer._learning_rate, keras.Variable):
            raise TypeError(
                f"{type(self).__name__} sets the learning rate, but the optimizer's is a schedule: "
                "give the optimizer a number, or leave the callback out."
            )
        if not self.staircase:
            self.steps_per_epoch = self._fewest_steps()

    def _fewest_steps(self) -> int:
        """Returns the fewest of all ranks: so many are run, and all must set the same rates."""
        mine = self._given_steps or self.params.get("steps")
        ranks, everyone = [basics.rank()], [mine]
        if self._set.included():
            ranks = list(self._set.ranks)
            everyone = exchange.gather(mine, "steps per epoch of the learning rate", self._set)
        if None in everyone:
            raise ValueError(
                f"{type(self).__name__} does not know the number of batches per epoch on rank "
                f"{ranks[everyone.index(None)]}; pass steps_per_epoch."
            )
        return int(min(everyone))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets the rate of the epoch, with `staircase`."""
        self.current_epoch = epoch
        if self.staircase and self._is_due():
            self._adjust(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate of the batch, without `staircase`."""
        if not self.staircase and self._is_due():
            assert self.steps_per_epoch is not None
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)

    def _is_due(self) -> bool:
        ended = self.end_epoch is not None and self.current_epoch >= self.end_epoch
        return self.current_epoch >= self.start_epoch and not ended

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Logs the learning rate as `lr`."""
        if logs is not None:
            logs["lr"] = float(self._optimizer().learning_rate)

    def _optimizer(self) -> Any:
        optimizer = self.model.optimizer
        return getattr(optimizer, "inner_optimizer", optimizer)

    def _adjust(self, epoch: float) -> None:
        optimizer = self._optimizer()
        old = float(optimizer.learning_rate)
        new = self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        # The momentum itself is compiled into the step as a number; what it multiplies is not.
        # Ranks at their own pace begin a batch at different rounds: replicas would part.
        together = not asynchronous_steps(self.model) and not goes_ahead(self.model)
        corrects = self.momentum_correction and (self.staircase or together)
        if corrects and old > 0 and new != old:
            for velocity in _velocities(optimizer):
                velocity.assign(velocity * (new / old))


def _velocities(optimizer: Any) -> list[Any]:
    """Returns the momentum variables that hold past gradients times the learning rate."""
    known = isinstance(optimizer, keras.optimizers.SGD | keras.optimizers.RMSprop)
    if not known or not optimizer.momentum or not optimizer.built:
        return []
    velocities = getattr(optimizer, "momentums", None)
    return list(optimizer._momentums if velocities is None else velocities)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size` to `initial_lr` over the first epochs.

    lr(epoch) = initial_lr / size * (epoch * (size - 1) / warmup_epochs + 1), as in "Accurate, Large
    Minibatch SGD: Training ImageNet in 1 Hour" (section 2.2).
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
        process_set: basics.ProcessSet | None = None,
    ) -> None:
        """Makes the callback.

        Args:
            initial_lr: learning rate at the end of the warm-up.
            warmup_epochs: epochs that the warm-up lasts.
            momentum_correction: see `LearningRateScheduleCallback`.
            steps_per_epoch: batches per epoch, where Keras does not know them.
            verbose: 1 prints a line on the first rank when the warm-up is over.
            process_set: see `LearningRateScheduleCallback`; its size is the one that counts. For a
                rank outside of it there is nothing to warm up.
        """

        def multiplier(epoch: float) -> float:
            # A batch earlier, so that the rate at an epoch's end is a round number.
            assert self.steps_per_epoch is not None
            epoch += 1.0 / self.steps_per_epoch
            size = self._set.size() if self._set.included() else 1
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
            process_set=process_set,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Logs the learning rate, and says when the warm-up is over."""
        super().on_epoch_end(epoch, logs)
        speaks = self._set.included() and basics.rank() == self._set.ranks[0]
        if self.verbose and speaks and epoch == (self.end_epoch or 0) - 1:
            rate = float(self._optimizer().learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")
