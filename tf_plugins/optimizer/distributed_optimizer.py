"""DistributedOptimizer: any Keras 3 optimizer, applying gradients reduced over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext.variables import key, outside_graph
from trepak.tf_plugins.optimizer.counted_passes import CountedPasses
from trepak.tf_plugins.optimizer.distribution import Distribution


class DistributedMixin(CountedPasses):
    """Overrides `apply`, which `fit`, `train_on_batch` and custom loops all end in.

    Mixed in front of an optimizer's own class. Reducing there, once per real step, puts clipping,
    weight decay, EMA and constraints after the reduction, where they act alike on all ranks.
    """

    _accumulating: Any = None  # variables of the Keras accumulation step being traced

    @tf.autograph.experimental.do_not_convert  # may be called from a user's tf.function
    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Reduces the gradients over all ranks and applies them; see `keras.Optimizer.apply`."""
        grads = list(grads)
        if self._trepak.delegating or not grads:
            super().apply(grads, trainable_variables)  # type: ignore[misc]
            return
        variables = self._variables_of(grads, trainable_variables)
        self._trepak.agree(self)
        computed, self._trepak.computed = self._trepak.computed, None
        if computed == _here(variables):
            self._apply_plainly(grads, variables)
        elif (accumulator := self._trepak.accumulator) is not None:

            def apply_sums(sums: list[Any]) -> None:
                self._count_passes(accumulator.passes - 1)  # applying counts the last one
                self._reduce_and_apply(sums, variables)

            accumulator.step(
                grads, variables, apply_sums, lambda: self._count_passes(accumulator.counter)
            )
        else:
            self._reduce_and_apply(grads, variables)

    def _variables_of(self, grads: list[Any], variables: Any) -> list[Any]:
        """Returns the variables of the gradients; builds the optimizer, outside any tf.cond."""
        if variables is None:
            if not self.built:  # type: ignore[attr-defined]
                raise ValueError(
                    "apply() got no variables and the optimizer is not built. Pass "
                    "trainable_variables, or call optimizer.build(variables) first."
                )
            variables = self._trainable_variables  # type: ignore[attr-defined]
        variables = list(variables)
        if len(grads) != len(variables):
            raise ValueError(f"got {len(grads)} gradients for {len(variables)} variables.")
        self.ensure_built(variables)
        return variables

    def ensure_built(self, variables: Sequence[Any]) -> None:
        """Builds the optimizer for these variables, unless it is built."""
        if not self.built:  # type: ignore[attr-defined]
            with outside_graph(), keras.name_scope(self.name):  # type: ignore[attr-defined]
                self.build(variables)  # type: ignore[attr-defined]

    @tf.autograph.experimental.do_not_convert
    def begin_step(self) -> None:
        """Opens a step of a custom loop: call it first in the function that holds the step.

        Applies the gradients that the step before has pushed, each when it has come; this step's
        own are then pushed only. So the transfer of one layer's gradients overlaps the computing of
        others. `flush()` applies what is left.

        Raises:
            ValueError: the optimizer is not built.
        """
        self._trepak.step.begin(self)

    def count_samples(self, samples: Any) -> None:
        """Says how many samples a batch has, in a custom loop, before its gradients are applied.

        For `sync=LocalSGD(…)`, where ranks weigh as much as their samples; others don't ask. `fit`
        and `train_on_batch` say it themselves.

        Args:
            samples: an integer, or a tensor of one.
        """
        self._trepak.step.count(samples)

    def flush(self) -> None:
        """Applies gradients that wait for a later step; a collective call.

        Where ranks apply their own gradients, they go on from what they have made together.
        """
        self._trepak.step.drain(self)

    def statistics(self) -> dict[str, Any]:
        """Returns what `sync=` has counted on this rank so far, by name; its page has the names."""
        return self._trepak.step.statistics()  # type: ignore[no-any-return]

    def _reduce_and_apply(self, grads: list[Any], variables: list[Any]) -> None:
        self._trepak.step.apply(self, grads, variables)

    def _apply_plainly(self, grads: list[Any], variables: list[Any]) -> None:
        super().apply(grads, variables)  # type: ignore[misc]

    def _keras_accumulates(self) -> bool:
        return bool(getattr(self, "gradient_accumulation_steps", None))

    # With `gradient_accumulation_steps`, Keras sums gradients inside apply() and clips the mean in
    # the pass that ends a step, and only there: that is where the one reduction belongs.

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> None:
        self._accumulating = None
        if self._keras_accumulates():
            self._accumulating = list(trainable_variables)
            self._trepak.reducer.agree(grads, self._accumulating)
        super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        if self._accumulating is not None:
            grads = self._trepak.step.reduce(grads, self._accumulating)
        return super()._clip_gradients(grads)  # type: ignore[misc]

    @tf.autograph.experimental.do_not_convert
    def compute_gradients(
        self, loss: Any, var_list: Sequence[Any], tape: tf.GradientTape | None = None
    ) -> list[tuple[Any, Any]]:
        """Returns (gradient, variable) pairs, reduced over all ranks, for `apply_gradients`.

        The next `apply_gradients` for these variables, in the same function, takes what it is given
        as it is, clipped or otherwise changed. Where gradients are summed over several passes they
        are this rank's own, and `apply_gradients` reduces the sums.

        Args:
            loss: a function that returns the loss, or the loss itself with the `tape` that saw it.
            var_list: the variables.
            tape: a tape to record on, or that has recorded.

        Raises:
            ValueError: a loss that is no function, and no tape.
        """
        if callable(loss):
            with tape or tf.GradientTape() as tape:
                loss = loss()
        if tape is None:
            raise ValueError("compute_gradients() needs a function as loss, or the tape.")
        variables = list(var_list)
        grads = tape.gradient(loss, variables)
        if self._trepak.accumulator is None and not self._keras_accumulates():
            grads = self._trepak.step.reduce(grads, variables)
            self._trepak.computed = _here(variables)
        return list(zip(grads, variables, strict=True))

    def _compute_gradients(
        self, loss: Any, var_list: Sequence[Any], grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """Horovod's older name of `compute_gradients`."""
        return self.compute_gradients(loss, var_list, tape)

    @property
    def _agg_helper(self) -> Any:
        """Horovod's name of what sums gradients over passes; None where nothing does."""
        return self._trepak.accumulator

    @classmethod
    def from_config(cls, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Returns an optimizer that is distributed alike, and shares nothing with this one."""
        optimizer = super().from_config(config, *args, **kwargs)  # type: ignore[misc]
        optimizer._trepak = cls._trepak.renewed()
        return optimizer

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Returns an optimizer of the same settings, that is distributed alike."""
        # As Keras copies an optimizer: without its state, which belongs to the other's variables.
        memo[id(self)] = type(self).from_config(self.get_config())  # type: ignore[attr-defined]
        return memo[id(self)]

    def register_local_var(self, var: Any) -> None:
        """Keeps a variable local to this rank: its gradients are not reduced, only scaled.

        Args:
            var: a Keras or TensorFlow variable.
        """
        self._trepak.reducer.register_local(var)


def _here(variables: Sequence[Any]) -> Any:
    """Returns what tells in which graph, or eagerly, and of what gradients were computed."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return graph, [key(variable) for variable in variables]


def distributed_class(cls: type, distribution: Distribution, mixin: type) -> type:
    """Returns a subclass of an optimizer class that reduces, under the same name.

    Saved files name the class, so they must find the plain one again, with or without trepak.
    """
    public = getattr(keras.optimizers, cls.__name__, None) is cls
    module = "keras.optimizers" if public else cls.__module__
    attributes = {"_trepak": distribution, "__module__": module, "__doc__": cls.__doc__}
    return type(cls.__name__, (mixin, cls), attributes)
