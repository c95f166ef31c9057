"""Reduces a list of gradients over the ranks: the one place where gradients meet Horovod."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, collectives, exchange, sparse, step_probe
from trepak.horovod_ext.collective_lanes import Collectives
from trepak.horovod_ext.gradient_groups import grouped
from trepak.horovod_ext.reduce_options import ReduceOptions
from trepak.horovod_ext.reduced_sites import ReducedSites
from trepak.horovod_ext.variables import key, make_known, outside_graph, tf_variable

_KEY_BITS = 16  # of a transport's key, for the variables of one reducer


def _kind(grad: Any) -> str:
    if grad is None:
        return "no gradient"
    return "a sparse gradient" if isinstance(grad, tf.IndexedSlices) else "a gradient"


class GradientReducer:
    """Reduces gradients over a process set, keeping their order, None entries and sparsity.

    Calls are collective: every rank of the process set reduces the same variables in the same
    order. Used while a tf.function is traced, or eagerly; not thread-safe.
    """

    def __init__(self, options: ReduceOptions, name: str) -> None:
        """Makes a reducer; `name` begins the names of its collectives."""
        self.options = options
        self._name = re.sub(r"[^A-Za-z0-9_]", "_", name)  # what TensorFlow allows in an op's name
        self._sites = ReducedSites(options.process_set)
        self.local: set[Any] = set()  # keys of variables whose gradients stay on this rank
        # Carries what is pushed, also where no transport was asked for: in overlapped steps.
        self.transport = options.transport or Collectives()
        self._keys: dict[Any, int] = {}  # of variables, for the transport
        self._turn: Any = None  # the variable by which reductions in one graph take turns

    def register_local(self, variable: Any) -> None:
        """Keeps a variable's gradients on this rank: they are scaled, but not reduced."""
        self.local.add(key(variable))

    def is_local(self, variable: Any) -> bool:
        """Tells whether a variable's gradients stay on this rank."""
        return key(variable) in self.local

    def agree(self, grads: Sequence[Any], variables: Sequence[Any]) -> int:
        """Checks once that all ranks reduce the same kinds of gradients of the same variables.

        A collective call, the first time.

        Returns:
            A number that tells these variables' reductions from others of this reducer.

        Raises:
            ValueError: they don't; see `check_agreement`.
        """
        kept = [not self.is_local(variable) for variable in variables]
        shared = list(itertools.compress(variables, kept))
        return self._sites.agree(shared, [_kind(grad) for grad in itertools.compress(grads, kept)])

    def agree_on(self, variables: Sequence[Any]) -> None:
        """Checks once that all ranks are about to apply gradients of the same variables.

        A collective call, the first time.

        Raises:
            ValueError: they aren't; see `check_agreement`.
        """
        self._sites.agree(variables, ["a gradient to apply"] * len(variables))

    def agreement(self) -> list[int]:
        """Returns what ranks must have agreed on alike; see `ReducedSites.agreement`."""
        return self._sites.agreement()

    def meet(self) -> None:
        """Begins among the ranks that an elastic job has now; a collective call."""
        self._sites.meet()
        self.transport.start()

    def forget(self) -> None:
        """Has the next reduction agree anew; for all ranks together, and graphs traced anew."""
        self._sites.forget()
        self._keys.clear()
        if self.options.transport is None:
            self.transport = Collectives()  # the old keys' lanes are nobody's any more

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients reduced over the process set.

        Args:
            grads: tensors, IndexedSlices or None, one per variable.
            variables: the variables that the gradients belong to.

        Returns:
            A list aligned with `grads`; None stays None, IndexedSlices stay sparse (unless
            sparse_as_dense), local variables keep their own gradient.

        Raises:
            ValueError: the ranks' variables, or which of them have gradients, differ.
        """
        reduced = [self._densified(grad) for grad in grads]
        site = self.agree(reduced, variables)
        # Steps of some ranks alone would look to the others as if nobody had ever waited.
        marked = self.options.process_set.process_set_id == 0
        if marked:
            reduced, ready = step_probe.mark_ready(reduced)
        if self.takes_part():
            self._reduce_in_place(reduced, variables, site)
        else:
            reduced = self.own(reduced)
        return step_probe.mark_done(reduced, ready) if marked else reduced

    def own(self, grads: Sequence[Any]) -> list[Any]:
        """Returns this rank's gradients in the form in which reduced ones are applied.

        Args:
            grads: tensors, IndexedSlices or None.

        Returns:
            The same; IndexedSlices name each row once, or are dense with sparse_as_dense.
        """
        return [sparse.merged(self._densified(grad)) for grad in grads]

    def _reduce_in_place(self, reduced: list[Any], variables: Sequence[Any], site: int) -> None:
        shared = []
        for index, (grad, variable) in enumerate(zip(reduced, variables, strict=True)):
            if grad is None:
                continue
            if self.is_local(variable):
                reduced[index] = self._scaled_local(grad)
            else:
                shared.append(index)
        pushes = self.options.transport is not None
        carried = [i for i in shared if pushes and self.is_carried(reduced[i], variables[i])]
        if carried:
            which = [variables[index] for index in carried]
            self.push([reduced[index] for index in carried], which)
            for index, variable in zip(carried, which, strict=True):
                reduced[index] = self.deliver(variable)
        rest = [index for index in shared if index not in set(carried)]
        if rest:
            with self._in_turn() as done:
                self._reduce_shared(reduced, rest, variables, site)
                done.extend(reduced[index] for index in rest)

    def _reduce_shared(
        self, reduced: list[Any], shared: list[int], variables: Sequence[Any], site: int
    ) -> None:
        dense = [i for i in shared if not isinstance(reduced[i], tf.IndexedSlices)]
        which = [variables[i] for i in dense]
        dtypes = [reduced[i].dtype for i in dense]
        for number, places in enumerate(grouped(self.options.groups, which, dtypes)):
            group = [dense[place] for place in places]
            tensors = self._reduce_dense(group, reduced, f"{site}_dense_{number}")
            for index, tensor in zip(group, tensors, strict=True):
                reduced[index] = tensor
        gathered = [i for i in shared if isinstance(reduced[i], tf.IndexedSlices)]
        if gathered:
            slices = self._sum_sparse([reduced[i] for i in gathered], f"{site}_sparse")
            for index, one in zip(gathered, slices, strict=True):
                reduced[index] = one

    def is_carried(self, grad: Any, variable: Any) -> bool:
        """Tells whether a gradient can be pushed, and delivered later."""
        options = self.options
        return (
            grad is not None
            and not isinstance(grad, tf.IndexedSlices)
            and options.process_set.process_set_id == 0
            and options.compression is collectives.Compression.none
            and self.transport.carries(grad.dtype)
            and hasattr(tf_variable(variable), "handle")
        )

    def keys_of(self, variables: Sequence[Any]) -> list[int]:
        """Returns the keys of variables, under which the transport and native code know them."""
        self.transport.start()
        for variable in variables:
            if key(variable) not in self._keys:
                number = (self._sites.stream << _KEY_BITS) + len(self._keys)
                make_known(number, variable)
                self.transport.register(number, variable)
                self._keys[key(variable)] = number
        return [self._keys[key(variable)] for variable in variables]

    def push(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Sends the gradients of one step by the transport, without waiting.

        Args:
            grads: tensors that `is_carried` approves of.
            variables: the variables that they belong to.
        """
        options = self.options
        factor = options.gradient_predivide_factor
        if factor != 1.0:
            grads = [grad / factor for grad in grads]
        average = options.op == collectives.Average
        keys = self.keys_of(variables)
        self.transport.push(keys, variables, grads, factor, average)

    def deliver(self, variable: Any) -> Any:
        """Returns a variable's gradient that was pushed last, reduced over all ranks."""
        return self.transport.deliver(self.keys_of([variable])[0], variable)

    def pending(self, variables: Sequence[Any]) -> Any:
        """Returns which variables' gradients were pushed and not delivered; bool, [variables]."""
        return self.transport.pending(self.keys_of(variables), variables)

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[list[Any]]:
        """Lets one reduction of this reducer run at a time, in program order.

        Horovod tells collectives apart by name alone, and its ops are not stateful: the same one in
        two functions of a graph would run at once, and give one function the other's result. Ops on
        the same variable are ordered by TensorFlow.

        Yields:
            A list to which the block adds what it made.
        """
        done: list[Any] = []
        if tf.executing_eagerly() or not exchange.is_possible():
            yield done
            return
        if self._turn is None:
            with outside_graph():
                self._turn = tf.Variable(0, trainable=False, name="trepak_turn")
        with tf.control_dependencies([self._turn.assign_add(1)]):
            yield done
        tensors = [getattr(made, "values", made) for made in done]
        with tf.control_dependencies(tensors):
            self._turn.assign_add(1)

    def takes_part(self) -> bool:
        """Tells whether this rank has others to reduce with."""
        process_set = self.options.process_set
        return process_set.included() and (basics.is_elastic() or process_set.size() > 1)

    def _densified(self, grad: Any) -> Any:
        is_sparse = isinstance(grad, tf.IndexedSlices)
        return tf.convert_to_tensor(grad) if is_sparse and self.options.sparse_as_dense else grad

    def _size(self, dtype: Any) -> Any:
        return tf.cast(basics.dynamic_size(self.options.process_set), dtype)

    def _scaled_local(self, grad: Any) -> Any:
        grad = sparse.merged(grad)
        if not self.options.scale_local_gradients:
            return grad
        if isinstance(grad, tf.IndexedSlices):
            values = grad.values / self._size(grad.values.dtype)
            return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
        return grad / self._size(grad.dtype)

    def _reduce_dense(self, group: list[int], grads: Sequence[Any], part: str) -> list[Any]:
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
            name=self.collective_name(part),
            ignore_name_scope=True,
        )

    def _sum_sparse(self, slices: list[tf.IndexedSlices], part: str) -> list[tf.IndexedSlices]:
        options = self.options
        average = options.op == collectives.Average
        with tf.device(options.device_sparse):
            name = self.collective_name(part)
            return sparse.sum_over_ranks(slices, average, name, options.process_set)

    def collective_name(self, part: str) -> str:
        """Returns the name of one of this reducer's collectives, the same on every rank."""
        return f"trepak_{self._name}_{self._sites.stream}_{part}"
