"""How gradients travel: the interface of every way beside Horovod's own collectives."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext.variables import tf_variable
from trepak.ops.loader import load


class GradientTransport(abc.ABC):
    """Carries gradients in two halves, so that training goes on between them.

    Passed as `transport=` to an optimizer. A gradient is pushed when it is there, and its sum is
    delivered when all ranks have pushed theirs. Each variable has a key, the same on all ranks,
    under which native code knows it.
    """

    _pull_seed: int | None = None  # None: the sums are asked for with each push

    def __repr__(self) -> str:
        """Names the transport and its options, by which ranks compare theirs."""
        options = {k: v for k, v in vars(self).items() if not k.startswith("_")}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in options.items())})"

    @abc.abstractmethod
    def start(self) -> None:
        """Gets ready; a collective call, and a cheap one when it has been made before."""

    def carries(self, dtype: Any) -> bool:
        """Tells whether dense gradients of this dtype can travel this way."""
        return dtype in (tf.float32, tf.float64)

    @abc.abstractmethod
    def register(self, key: int, variable: Any) -> None:
        """Hears of a variable whose gradients it is to carry.

        Args:
            key: its number, the same on all ranks.
            variable: a Keras or TensorFlow variable.
        """

    def push(
        self,
        keys: Sequence[int],
        variables: Sequence[Any],
        gradients: Sequence[Any],
        factor: float,
        average: bool,
    ) -> None:
        """Sends this rank's gradients of one step, each as soon as it is there, without waiting.

        Args:
            keys: those of the variables.
            variables: what was registered.
            gradients: a tensor for each.
            factor: what the sum over all ranks is multiplied with.
            average: divide it by the number of ranks, too.
        """
        handles = [tf_variable(variable).handle for variable in variables]
        pull = self._pull_seed is None
        for key, handle, gradient in zip(keys, handles, gradients, strict=True):
            load().trepak_push_gradient(
                handle, gradient, key=key, factor=factor, average=average, pull=pull
            )
        load().trepak_commit_step(
            handles, keys=list(keys), pull=not pull, seed=self._pull_seed or 0
        )

    def deliver(self, key: int, variable: Any) -> Any:
        """Returns the sum of the gradients of a variable that were pushed last.

        Raises:
            HorovodInternalError: a rank has left, or did not push in time; when the op runs.
        """
        value = tf_variable(variable)
        return load().trepak_deliver_gradient(
            value.handle, key=key, T=value.dtype, shape=list(value.shape)
        )

    def pending(self, keys: Sequence[int], variables: Sequence[Any]) -> Any:
        """Returns which gradients were pushed and not delivered: a bool tensor, [variables].

        Raises:
            HorovodInternalError: a step was interrupted after it had pushed some of its gradients,
                or those that were pushed can't come any more.
        """
        handles = [tf_variable(variable).handle for variable in variables]
        return load().trepak_pending_gradients(handles, keys=list(keys))
