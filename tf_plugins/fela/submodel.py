"""A sub-model: a part of the user's model, computed from given values (Section III-A, SM-i)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.backend import get_keras_mask, set_keras_mask
from keras.src.backend.common import global_state
from keras.src.layers.layer import CallContext
from keras.src.models.functional import operation_fn

from trepak.tf_plugins.callbacks.state_average import ids_of_weights
from trepak.tf_plugins.fela import sample_noise
from trepak.tf_plugins.fela.cuts import Crossing
from trepak.tf_plugins.fela.graph import layers_in

_CALL = "current_call_ctx"  # where Keras has the call under way


class Computed(NamedTuple):
    """What a sub-model has computed for a batch.

    Attributes:
        outputs: as `SubModel.outputs`; those of the last sub-model have their Keras masks.
        state: new values of `SubModel.state`.
        loss: a scalar of Keras' floatx: what layers added, such as activity regularizers. Like
            them, it is taken for a mean over the batch.
    """

    outputs: list[Any]
    state: list[Any]
    loss: Any


class SubModel:
    """Some calls of a model's operations, between two cuts.

    It reads no variable and writes none: values come and go as tensors. Calls may come from several
    threads.

    Attributes:
        nodes: Keras' nodes of the calls, in the order in which they run.
        layers: those of the model that are called here, each once.
        trainable: their trainable variables, as they are when this is made.
        state: their other variables: moving statistics, frozen weights, seeds.
        averaged: of the state, what training changes without gradients, such as moving statistics.
        inputs: what crosses the cut before it; of the first sub-model, the model's inputs.
        outputs: what crosses the cut behind it; of the last one, the model's outputs.
    """

    def __init__(
        self,
        nodes: Sequence[Any],
        inputs: Sequence[Crossing],
        outputs: Sequence[Crossing],
        noises: dict[int, tuple[Any, int]],
        is_last: bool = True,
    ) -> None:
        """Makes a sub-model of consecutive nodes; `noises` is the graph's."""
        self._is_last = is_last
        self.nodes = tuple(nodes)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        operations = _each_once(node.operation for node in self.nodes)
        self.layers = tuple(one for one in operations if isinstance(one, keras.Layer))
        self.trainable = _each_once(v for one in self.layers for v in one.trainable_variables)
        self.state = _each_once(v for one in self.layers for v in one.non_trainable_variables)
        weights = set().union(*map(ids_of_weights, self.layers))
        self._averages = [_is_moving(one) and id(one) not in weights for one in self.state]
        self.averaged = tuple(self.averaged_of(self.state))
        inner = _each_once(one for layer in self.layers for one, _ in layers_in(layer))
        self._noises = [noises[id(layer)] for layer in inner if id(layer) in noises]

    def forward(
        self,
        trainable: Sequence[Any],
        state: Sequence[Any],
        inputs: Sequence[Any],
        sample_ids: Any = None,
        iteration: Any = None,
    ) -> Computed:
        """Computes a batch as the model does with `training=True`.

        Args:
            trainable: values for `self.trainable`.
            state: values for `self.state`.
            inputs: a tensor for each of `self.inputs`: its shape with a batch in front.
            sample_ids: int64, (batch,): each sample's number in the batch of all ranks; only
                layers that draw random numbers need it.
            iteration: int64, a scalar, likewise.

        Raises:
            ValueError: not as many values as variables or inputs, or no sample_ids where a layer
                needs them.
        """
        variables = [*self.trainable, *self.state]
        values = [*trainable, *state]
        if len(values) != len(variables) or len(inputs) != len(self.inputs):
            raise ValueError(
                f"the sub-model that begins with {self.nodes[0].operation.name!r} has "
                f"{len(self.trainable)} trainable variables, {len(self.state)} others and "
                f"{len(self.inputs)} inputs; got {len(trainable)}, {len(state)} and {len(inputs)}."
            )
        draws = None if sample_ids is None else sample_noise.Draws(sample_ids, iteration)
        scope = keras.StatelessScope(list(zip(variables, values, strict=True)), collect_losses=True)
        with scope, _in_a_call(), sample_noise.drawing(self._noises, draws):
            outputs = self._run(inputs)
        return Computed(
            outputs,
            [scope.get_current_value(variable) for variable in self.state],
            _sum(scope.losses),
        )

    def averaged_of(self, state: Sequence[Any]) -> list[Any]:
        """Returns what belongs to `self.averaged`, of values for `self.state`."""
        return [one for one, is_one in zip(state, self._averages, strict=True) if is_one]

    def regularization(self, trainable: Sequence[Any]) -> Any:
        """Returns the weight regularizers' loss, a scalar of Keras' floatx.

        It does not depend on samples: an iteration counts it once.

        Args:
            trainable: values for `self.trainable`.
        """
        pairs = zip(self.trainable, trainable, strict=True)
        return _sum([one.regularizer(value) for one, value in pairs if one.regularizer is not None])

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        made: dict[int, Any] = {}
        for into, value in zip(self.inputs, inputs, strict=True):
            made[id(into.tensor)] = keras.ops.convert_to_tensor(value, dtype=into.dtype)
        for into in self.inputs:
            mask = made.get(id(get_keras_mask(into.tensor)))
            if mask is not None:
                set_keras_mask(made[id(into.tensor)], mask)
        for node in self.nodes:
            args, kwargs = node.arguments.fill_in(made)
            outputs = operation_fn(node.operation, training=True)(*args, **kwargs)
            for tensor, value in zip(node.outputs, keras.tree.flatten(outputs), strict=True):
                made[id(tensor)] = value
                mask = get_keras_mask(tensor)
                if mask is not None:
                    made[id(mask)] = get_keras_mask(value)
        if not self._is_last:
            self._check_outputs(made)
        return [made[id(out.tensor)] for out in self.outputs]

    def _check_outputs(self, made: dict[int, Any]) -> None:
        """Raises ValueError for what only shows when a layer runs, and can't cross a cut."""
        for out in self.outputs:
            value = made[id(out.tensor)]
            if not isinstance(value, tf.Tensor):
                raise ValueError(
                    f"the output of {out.name!r} is a {type(value).__name__}, and only dense "
                    "tensors cross a cut: cut elsewhere, or make it dense before."
                )
            if get_keras_mask(value) is not None and get_keras_mask(out.tensor) is None:
                raise ValueError(
                    f"the output of {out.name!r} gets a mask inside of it, which can't cross a "
                    "cut: cut elsewhere, or call its layers in the model itself."
                )


@contextmanager
def _in_a_call() -> Iterator[None]:
    """Lets layers be called as in a model's call: an outermost call forgets losses of before."""
    before = global_state.get_global_attribute(_CALL)
    global_state.set_global_attribute(_CALL, CallContext(entry_layer=None))
    try:
        yield
    finally:
        global_state.set_global_attribute(_CALL, before)


def _is_moving(variable: Any) -> bool:
    return bool(tf.as_dtype(variable.dtype).is_floating)


def _each_once(things: Iterable[Any]) -> tuple[Any, ...]:
    return tuple({id(one): one for one in things}.values())


def _sum(losses: Sequence[Any]) -> Any:
    """Returns the sum of losses as Keras' `compute_loss` takes it."""
    dtype = keras.config.floatx()
    sums = [tf.reduce_sum(tf.cast(loss, dtype)) for loss in losses]
    return tf.add_n(sums) if sums else tf.zeros([], dtype)
