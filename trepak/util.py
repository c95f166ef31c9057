"""The names of `horovod.tensorflow.util`; the last two need TensorFlow's own variables."""

from trepak.horovod_ext.old_names import (
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)

__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "refs_to_vars", "vars_to_refs"]
