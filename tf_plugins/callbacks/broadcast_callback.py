"""The callback that keeps ranks together: equal weights, equal numbers of steps, equal state."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.broadcasting import broadcast_variables
from trepak.horovod_ext.variables import check_agreement, key
from trepak.tf_plugins.callbacks.beginning import build_together
from trepak.tf_plugins.callbacks.comparison import KeepsAlike
from trepak.tf_plugins.callbacks.epoch_limit import EpochLimit
from trepak.tf_plugins.callbacks.state_average import average_state
from trepak.tf_plugins.model import keras_hooks
from trepak.tf_plugins.model.distributed_models import (
    asynchronous_steps,
    diverging_steps,
    flush,
    is_distributed,
    optimizers_of,
    process_set_of,
)
from trepak.tf_plugins.model.layer_state import broadcast_layer_state, finalize
from trepak.tf_plugins.model.lockstep import BATCHES_AT_HAND, go_in_lockstep, out_of_lockstep
from trepak.tf_plugins.model.model_hooks import attached
from trepak.tf_plugins.model.sync_batch_norm import SyncBatchNormalization

# Python looks `model.fit` up before it makes the callbacks that are passed to it.
keras_hooks.install()


class BroadcastGlobalVariablesCallback(KeepsAlike):
    """Starts all ranks from one rank's weights and optimizer state, and keeps them in step.

    Beyond Horovod's callback of this name:

    - it copies before the first step of each `fit`, so that the first step counts, and by position;
    - it copies what layers hold outside of variables, too: vocabularies, bins, means;
    - ranks agree on the number of steps per epoch: the smallest of all (uneven shards end cleanly).
      Where one does not know it beforehand, they agree before every step, at the price of a small
      exchange. Where ranks go at their own pace (`sync=RNA()`), they don't;
    - what waits in the optimizer is applied before validation, at the end of each epoch and of the
      training (`DistributedOptimizer.flush`);
    - non-trainable state (BatchNorm's moving statistics) is averaged over the ranks before
      validation, saving and the end of each epoch;
    - what ranks must have alike is compared (`Comparison`, which `fit` adds).
    """

    def __init__(
        self,
        root_rank: int,
        device: str = "",
        local_variables: Any = None,
        process_set: basics.ProcessSet | None = None,
    ) -> None:
        """Makes the callback.

        Args:
            root_rank: the rank whose values are copied.
            device: the device to copy on; "" lets TensorFlow choose.
            local_variables: a variable, or a list of them, that each rank keeps its own of.
            process_set: the ranks that train together; by default those of the model's optimizer.

        Raises:
            ValueError: `local_variables` holds something else.
        """
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.process_set = process_set
        self.broadcast_done = False
        self.local = set()
        self._set: basics.ProcessSet = basics.global_process_set
        self._limit = EpochLimit()
        self._state_is_averaged = False
        self._in_training = False
        self._in_lockstep = False  # ranks agree before each step
        single = isinstance(local_variables, keras.Variable | tf.Variable)
        for variable in [local_variables] if single else local_variables or []:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Leaves a Keras or TensorFlow variable out of the broadcast.

        Raises:
            ValueError: `var` is something else.
        """
        if not isinstance(var, keras.Variable | tf.Variable):
            raise ValueError(f"local variables must be Keras or TF variables, got {type(var)!r}.")
        self.local.add(key(var))

    def on_train_begin(self, logs: Any = None) -> None:
        """Copies the weights and agrees on the steps.

        Raises:
            ValueError: the root is not one of the ranks, or the ranks' models differ.
        """
        self._set = self.process_set or process_set_of(self.model)
        self.broadcast_done = self._state_is_averaged = not self._set.included()
        self._in_training = self._set.included()
        self._limit.batches = None
        if not self._set.included():
            return  # others train this model together, and this rank for itself
        self._check_root()
        self._check_model()
        out_of_lockstep(self.model)
        self._in_lockstep = False
        if build_together(self.model, self._set):
            self._broadcast()
        else:
            self._broadcast_layers()  # what no variable holds is there before the first batch
        flush(self.model)  # weights that were set since the last steps are those of all ranks now
        unknown = not self._goes_at_own_pace() and not self._agree_on_steps()
        self._in_lockstep = unknown and not attached(self.model, "pipeline")  # which agrees itself
        if self._in_lockstep:
            go_in_lockstep(self.model, self._average, self._set)

    def on_test_begin(self, logs: Any = None) -> None:
        """Applies what waits in the optimizer, and averages the state, where ranks differ."""
        if self._in_training and self._goes_at_own_pace():
            self._average()

    def on_train_end(self, logs: Any = None) -> None:
        """Applies what waits."""
        self._in_training = False
        flush(self.model)
        out_of_lockstep(self.model)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Notes that the state moves again."""
        self._state_is_averaged = not self._set.included()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Copies the weights of a model that was not built before; ends an epoch that must end."""
        if not self.broadcast_done:
            flush(self.model)  # ranks may have applied different numbers of rounds
        self._broadcast()
        self._limit.after_batch(self.model, batch)
        steps = self._limit.batches or self.params.get("steps")
        if steps and batch + 1 >= steps and not self._goes_at_own_pace():
            if self._in_lockstep:  # others, who don't know how many there are, ask for more
                exchange.gather(0, BATCHES_AT_HAND, self._set)
            self._average()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages the state; lets training go on into the next epoch."""
        self._limit.after_epoch(self.model)
        # Validation, which some ranks may leave out, moves what layers update in inference too.
        self._state_is_averaged = not self._set.included()
        self._average()

    def _check_root(self) -> None:
        if self.root_rank not in self._set.ranks:
            raise ValueError(
                f"root_rank {self.root_rank} is not one of the ranks that train this model, "
                f"{list(self._set.ranks)} (this is rank {basics.rank()}): name one of them, "
                f"BroadcastGlobalVariablesCallback({self._set.ranks[0]})."
            )

    def _goes_at_own_pace(self) -> bool:
        return bool(asynchronous_steps(self.model))

    def _check_model(self) -> None:
        optimizers = optimizers_of(self.model)
        if self._set.size() > 1 and optimizers and not any(map(is_distributed, optimizers)):
            warnings.warn(
                "the model's optimizer is not distributed: unless its train_step reduces gradients "
                "(hvd.DistributedGradientTape), every rank trains for itself. Wrap it: "
                "model.compile(optimizer=hvd.DistributedOptimizer(optimizer), …).",
                stacklevel=2,
            )
        layers = self.model._flatten_layers(include_self=False)
        together = [one for one in layers if isinstance(one, SyncBatchNormalization)]
        training = [one.name for one in together if one.trainable]
        if self._set.size() > 1 and training and diverging_steps(self.model):
            raise ValueError(
                f"layer {training[0]} normalizes the batches of all ranks together, so each step "
                "waits for all of them, which ranks that go at their own pace, or apply their own "
                "gradients, don't: use "
                "keras.layers.BatchNormalization (its statistics are averaged at the ends of "
                "epochs), or sync=trepak.BSP()."
            )

    def _broadcast(self) -> None:
        if self.broadcast_done:
            return
        compiled = self.model.optimizer
        if is_distributed(compiled) and not compiled.built:
            compiled.ensure_built(self.model.trainable_variables)
        weights = [v for v in self.model.weights if key(v) not in self.local]
        state = [v for optimizer in optimizers_of(self.model) for v in optimizer.variables]
        check_agreement(weights, "the variables of the model", self._set, unnamed=state)
        shared = weights + [v for v in state if key(v) not in self.local]
        with tf.device(self.device):
            broadcast_variables(shared, self.root_rank, self._set)
        changed = finalize(self.model)
        self._broadcast_layers(changed)
        self.broadcast_done = True

    def _broadcast_layers(self, changed: bool = False) -> None:
        if broadcast_layer_state(self.model, self.root_rank, self._set) or changed:
            self._trace_anew()

    def _trace_anew(self) -> None:
        """Forgets functions that were traced with what layers held before."""
        self.model.make_train_function(force=True)
        self.model.test_function = self.model.predict_function = None

    def _agree_on_steps(self) -> bool:
        """Limits every rank's epochs to the fewest steps that any rank has data for.

        Returns:
            Whether all ranks know their number of steps; if not, nothing is limited.
        """
        steps = exchange.gather(self.params.get("steps"), "steps per epoch", self._set)
        self._limit.batches = None
        if None in steps:
            return len(steps) == 1
        fewest, most = min(steps), max(steps)
        poorest = self._set.ranks[steps.index(fewest)]
        if fewest == most:
            return True
        per_execution = self.model.steps_per_execution
        self._limit.batches = fewest // per_execution * per_execution
        if not self._limit.batches:
            raise ValueError(
                f"rank {poorest} has {fewest} batches per epoch, fewer than "
                f"steps_per_execution={per_execution}. Give it more data or lower "
                "steps_per_execution."
            )
        if basics.rank() == self._set.ranks[0]:
            print(
                f"trepak: ranks have {fewest} to {most} batches per epoch (rank {poorest} the "
                f"fewest); every rank runs {self._limit.batches}.",
                flush=True,
            )
        return True

    def _average(self) -> None:
        # Before any exchange: ranks that still train may need this one's gradients.
        flush(self.model)
        if not self._state_is_averaged:
            local = [v for v in self.model.weights if key(v) in self.local]
            average_state(self.model, self._set, local_variables=local)
            self._state_is_averaged = True
