"""Reduces a list of gradients over the ranks: the one place where gradients meet Horovod."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, collectives, exchange
from trepak.horovod_ext.variables import check_agreement, key


@dataclass(frozen=True)
class ReduceOptions:
    """How gradients are reduced; the defaults are Horovod's.

    Attributes:
        op: Average or Sum.
        compression: how dense gradients travel, `Compression.none` or `Compression.fp16`.
        sparse_as_dense: turn IndexedSlices into dense tensors first.
        gradient_predivide_factor: f splits the average: gradients are divided by f before the sum
            and multiplied by f / size after it.
        groups: number of groups that are reduced as one, or lists of variables; None is one group.
        process_set: the ranks that take part; a rank outside keeps its own gradients.
        scale_local_gradients: divide the gradients of local variables by the size.
        device_dense: device on which dense gradients are reduced.
        device_sparse: device on which IndexedSlices are gathered.
    """

    op: Any = collectives.Average
    compression: Any = collectives.Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    groups: Any = None
    process_set: basics.ProcessSet = basics.global_process_set
    scale_local_gradients: bool = True
    device_dense: str = ""
    device_sparse: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for options that are wrong or exclude each other."""
        if self.op not in (collectives.Average, collectives.Sum):
            raise ValueError("op must be Average or Sum for gradients.")
        if self.gradient_predivide_factor <= 0:
            raise ValueError(
                f"gradient_predivide_factor must be positive, got {self.gradient_predivide_factor}."
            )
        if self.gradient_predivide_factor != 1.0 and self.op != collectives.Average:
            raise ValueError(
                "gradient_predivide_factor splits an average: use it with op=Average, or leave it "
                "at 1.0."
            )
        if isinstance(self.groups, int) and self.groups < 0:
            raise ValueError(f"groups must not be negative, got {self.groups}.")


class GradientReducer:
    """Reduces gradients over a process set, keeping their order, None entries and sparsity.

    Calls are collective: every rank of the process set reduces the same variables in the same
    order. Used while a tf.function is traced, or eagerly; not thread-safe.
    """

    _streams = 0  # reducers made by this process; tells their collectives apart

    def __init__(self, options: ReduceOptions, name: str) -> None:
        """Makes a reducer; `name` begins the names of its collectives."""
        self.options = options
        self._name = re.sub(r"[^A-Za-z0-9_]", "_", name)  # what TensorFlow allows in an op's name
        self._stream = GradientReducer._streams
        GradientReducer._streams += 1
        self._local: set[Any] = set()
        self._agreed: set[tuple[Any, ...]] = set()

    def register_local(self, variable: Any) -> None:
        """Keeps a variable's gradients on this rank: they are scaled, but not reduced."""
        self._local.add(key(variable))

    def is_local(self, variable: Any) -> bool:
        """Tells whether a variable's gradients stay on this rank."""
        return key(variable) in self._local

    def agree(self, variables: Sequence[Any]) -> None:
        """Checks once that all ranks reduce the same variables; a collective call.

        Raises:
            ValueError: they don't; see `check_agreement`.
        """
        shared = tuple(v for v in variables if not self.is_local(v))
        known = tuple(key(v) for v in shared)
        # Elastic ranks join later, when this graph is long traced: their state's sync() checks.
        # A TensorFlow 1 style graph has no eager world around it to check in.
        if known in self._agreed or basics.is_elastic() or not exchange.is_possible():
            return
        if not self.options.process_set.included():
            return
        self._stream = check_agreement(
            shared, "the variables to train", self.options.process_set, self._stream
        )
        GradientReducer._streams = max(GradientReducer._streams, self._stream + 1)
        self._agreed.add(known)

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients reduced over the process set.

        Args:
            grads: tensors, IndexedSlices or None, one per variable.
            variables: the variables that the gradients belong to.

        Returns:
            A list aligned with `grads`; None stays None, IndexedSlices stay sparse (unless
            sparse_as_dense), local variables keep their own gradient.

        Raises:
            ValueError: the ranks' variables differ.
        """
        self.agree(variables)
        reduced = [self._densified(grad) for grad in grads]
        if not self.takes_part():
            return reduced
        shared = []
        for index, (grad, variable) in enumerate(zip(reduced, variables, strict=True)):
            if grad is None:
                continue
            if self.is_local(variable):
                reduced[index] = self._scaled_local(grad)
            else:
                shared.append(index)
        dense = [i for i in shared if not isinstance(reduced[i], tf.IndexedSlices)]
        for number, group in enumerate(self._grouped(dense, reduced, variables)):
            for index, tensor in zip(
                group, self._reduce_dense(group, reduced, number), strict=True
            ):
                reduced[index] = tensor
        for index in shared:
            if isinstance(reduced[index], tf.IndexedSlices):
                reduced[index] = self._gather_sparse(reduced[index], index)
        return reduced

    def takes_part(self) -> bool:
        """Tells whether this rank has others to reduce with."""
        process_set = self.options.process_set
        return process_set.included() and (basics.is_elastic() or process_set.size() > 1)

    def _densified(self, grad: Any) -> Any:
        sparse = isinstance(grad, tf.IndexedSlices)
        return tf.convert_to_tensor(grad) if sparse and self.options.sparse_as_dense else grad

    def _size(self, dtype: Any) -> Any:
        return tf.cast(basics.dynamic_size(self.options.process_set), dtype)

    def _scaled_local(self, grad: Any) -> Any:
        if not self.options.scale_local_gradients:
            return grad
        if isinstance(grad, tf.IndexedSlices):
            values = grad.values / self._size(grad.values.dtype)
            return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
        return grad / self._size(grad.dtype)

    def _grouped(
        self, indices: list[int], grads: Sequence[Any], variables: Sequence[Any]
    ) -> Iterator[list[int]]:
        """Splits indices as `groups` says, and by dtype: Horovod reduces one dtype per group."""
        for group in self._requested_groups(indices, variables):
            by_dtype: dict[Any, list[int]] = {}
            for index in group:
                by_dtype.setdefault(grads[index].dtype, []).append(index)
            yield from by_dtype.values()

    def _requested_groups(self, indices: list[int], variables: Sequence[Any]) -> list[list[int]]:
        groups = self.options.groups
        if not groups:
            return [indices]
        if isinstance(groups, int):
            size, extra = divmod(len(indices), groups)
            bounds = [i * size + min(i, extra) for i in range(groups + 1)]
            return [indices[a:b] for a, b in zip(bounds, bounds[1:], strict=False) if b > a]
        position = {key(variables[i]): i for i in indices}
        named = [[position.pop(key(v)) for v in g if key(v) in position] for g in groups]
        # A variable that no list names is a group of its own, as in Horovod.
        return [g for g in named if g] + [[i] for i in position.values()]

    def _reduce_dense(self, group: list[int], grads: Sequence[Any], number: int) -> list[Any]:
        options = self.options
        factor = options.gradient_predivide_factor
        return collectives.grouped_allreduce(
            [tf.convert_to_tensor(grads[i]) for i in group],
            op=options.op,
            compression=options.compression,
            prescale_factor=1.0 / factor,
            postscale_factor=factor,
            device_dense=options.device_dense,
            process_set=options.process_set,
            name=self.collective_name(f"dense_{number}"),
            ignore_name_scope=True,
        )

    def _gather_sparse(self, grad: tf.IndexedSlices, index: int) -> tf.IndexedSlices:
        """Concatenates all ranks' slices: the sum of what they stand for."""
        options = self.options
        with tf.device(options.device_sparse):
            values = grad.values
            if options.op == collectives.Average:
                values = values / self._size(values.dtype)
            values, indices = (
                collectives.allgather(
                    tensor,
                    name=self.collective_name(f"{part}_{index}"),
                    ignore_name_scope=True,
                    process_set=options.process_set,
                )
                for tensor, part in ((values, "values"), (grad.indices, "indices"))
            )
        return tf.IndexedSlices(values, indices, dense_shape=grad.dense_shape)

    def collective_name(self, part: str) -> str:
        """Returns the name of one of this reducer's collectives, the same on every rank."""
        return f"trepak_{self._name}_{self._stream}_{part}"
