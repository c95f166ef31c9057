"""Loads a saved Keras model, ready to be trained on by all ranks."""

from __future__ import annotations

from typing import Any

import keras

from trepak.horovod_ext.collectives import Compression
from trepak.tf_plugins.distributed_optimizer import is_distributed
from trepak.tf_plugins.wrappers import DistributedOptimizer


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model and makes its optimizer, with its saved state, a DistributedOptimizer.

    Args:
        filepath: see `keras.saving.load_model`.
        custom_optimizers: optimizer classes of your own that the file may name.
        custom_objects: see `keras.saving.load_model`.
        compression: see `DistributedOptimizer`.
        legacy_opts: must be False: Keras 3 has no legacy optimizers.

    Raises:
        ValueError: `legacy_opts`, or the file is no Keras model.
    """
    if legacy_opts:
        raise ValueError("Keras 3 has no keras.optimizers.legacy; load the model with tf_keras.")
    objects = {cls.__name__: cls for cls in custom_optimizers or ()} | (custom_objects or {})
    model = keras.saving.load_model(filepath, custom_objects=objects)
    if model.optimizer is not None and not is_distributed(model.optimizer):
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
