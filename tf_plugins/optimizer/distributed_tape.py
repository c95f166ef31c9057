"""DistributedGradientTape: a tf.GradientTape whose gradients are reduced over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics, collectives
from trepak.horovod_ext.gradient_reducer import GradientReducer
from trepak.horovod_ext.gradient_transport import GradientTransport
from trepak.horovod_ext.reduce_options import ReduceOptions
from trepak.horovod_ext.variables import key
from trepak.tf_plugins.model.tracing import reject_xla


class DistributedTape(tf.GradientTape):
    """A tape that reduces what `gradient` returns; made by `DistributedGradientTape`."""

    _options: ReduceOptions
    _local: list[Any]

    def register_local_source(self, source: Any) -> None:
        """Keeps a source local to this rank: its gradient is not reduced, only scaled."""
        self._local.append(source)

    # AutoGraph would otherwise convert all that is called here, in seconds, to the same code.
    @tf.autograph.experimental.do_not_convert
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Returns the gradients reduced over all ranks, structured as `sources`.

        Args:
            target: see `tf.GradientTape.gradient`.
            sources: see `tf.GradientTape.gradient`.
            output_gradients: see `tf.GradientTape.gradient`.
            use_generic_names: accepted for Horovod scripts; names never depend on the sources'.
            kwargs: further arguments of `tf.GradientTape.gradient`.

        Raises:
            ValueError: the ranks' sources differ, or XLA is to compile this.
            HorovodInternalError: a rank has left the job.
        """
        grads = super().gradient(target, sources, output_gradients, **kwargs)
        reject_xla()
        flat = tf.nest.flatten(grads, expand_composites=False)
        reducer = _tape_reducer(self._options, self._local)
        reduced = reducer.reduce(flat, tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[Any], list[Any]]:
        """Returns the (source, gradient) pairs of local sources, and those of all others."""
        grads = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(sources, grads, strict=True))
        reducer = _tape_reducer(self._options, self._local)
        local = [pair for pair in pairs if reducer.is_local(pair[0])]
        shared = [pair for pair in pairs if not reducer.is_local(pair[0])]
        return local, shared


@tf.autograph.experimental.do_not_convert
def DistributedGradientTape(  # noqa: N802  (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = collectives.Compression.none,
    sparse_as_dense: bool = False,
    op: Any = collectives.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: basics.ProcessSet = basics.global_process_set,
    scale_local_gradients: bool = True,
    transport: GradientTransport | None = None,
) -> Any:
    """Makes a tape reduce its gradients over all ranks; the options are those of ReduceOptions.

    Args:
        gradtape: the tape; it is changed in place and returned.
        device_dense: see `ReduceOptions`.
        device_sparse: see `ReduceOptions`.
        compression: see `ReduceOptions`.
        sparse_as_dense: see `ReduceOptions`.
        op: see `ReduceOptions`.
        gradient_predivide_factor: see `ReduceOptions`.
        num_groups: the older name of an integer `groups`.
        groups: see `ReduceOptions`.
        process_set: see `ReduceOptions`.
        scale_local_gradients: see `ReduceOptions`.
        transport: see `ReduceOptions`.

    Raises:
        ValueError: options that are wrong or exclude each other, or a transport in an elastic job.
    """
    if transport is not None and basics.is_elastic():
        raise ValueError(
            "a tape's transport= does not work in elastic jobs: give it to DistributedOptimizer, "
            "which an elastic state starts anew with the ranks that there are."
        )
    options = ReduceOptions(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups or num_groups or None,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        device_dense=device_dense,
        device_sparse=device_sparse,
        transport=transport,
    )
    cls = type(gradtape)
    attributes = {"_options": options, "_local": [], "__doc__": cls.__doc__}
    gradtape.__class__ = type(cls.__name__, (DistributedTape, cls), attributes)
    return gradtape


_tape_reducers: dict[Any, GradientReducer] = {}


def reducers_of_tapes() -> list[GradientReducer]:
    """Returns the reducers of all tapes of this process."""
    return list(_tape_reducers.values())


def local_to_tapes() -> set[Any]:
    """Returns the keys of the sources whose gradients tapes leave on each rank."""
    return set().union(*(reducer.local for reducer in reducers_of_tapes()))


def _tape_reducer(options: ReduceOptions, local: Sequence[Any]) -> GradientReducer:
    """Returns one reducer for all tapes alike: a tape lives one step, its reducer the whole job."""
    groups = options.groups
    if isinstance(groups, list):
        groups = tuple(tuple(key(variable) for variable in group) for group in groups)
    settings = tuple((vars(options) | {"groups": groups}).values())
    kind = (settings, frozenset(key(source) for source in local))
    if kind not in _tape_reducers:
        _tape_reducers[kind] = GradientReducer(options, "DistributedGradientTape")
        for source in local:
            _tape_reducers[kind].register_local(source)
    return _tape_reducers[kind]


@tf.autograph.experimental.do_not_convert
def PartialDistributedGradientTape(  # noqa: N802  (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = collectives.Compression.none,
    sparse_as_dense: bool = False,
    op: Any = collectives.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: basics.ProcessSet = basics.global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
    transport: GradientTransport | None = None,
) -> Any:
    """Makes a tape reduce all gradients but those of some layers, which stay local.

    Args:
        gradtape: the tape; it is changed in place and returned.
        device_dense: see `ReduceOptions`, as all that follow but one.
        device_sparse: see there.
        compression: see there.
        sparse_as_dense: see there.
        op: see there.
        gradient_predivide_factor: see there.
        num_groups: the older name of an integer `groups`.
        groups: see there.
        process_set: see there.
        local_layers: a Keras layer or a list of them.
        scale_local_gradients: see there.
        transport: see there.

    Raises:
        ValueError: `local_layers` holds something else, or options that exclude each other.
    """
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
        transport,
    )
    for variable in local_variables(local_layers):
        tape.register_local_source(variable)
    return tape


def local_variables(local_layers: Sequence[Any] | Any | None) -> list[Any]:
    """Returns the trainable weights of a layer or a list of layers.

    Raises:
        ValueError: something is not a Keras layer.
    """
    if local_layers is None:
        return []
    layers = [local_layers] if isinstance(local_layers, keras.layers.Layer) else list(local_layers)
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"local_layers must be Keras layers, got {type(layer)!r}.")
    return [variable for layer in layers for variable in layer.trainable_weights]
