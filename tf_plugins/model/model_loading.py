"""Loads a saved Keras model, ready to be trained on by all ranks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import keras
import numpy as np
from keras.src.legacy.saving.legacy_h5_format import load_optimizer_weights_from_hdf5_group

from trepak.horovod_ext.collectives import Compression
from trepak.tf_plugins.model.distributed_models import is_distributed
from trepak.tf_plugins.optimizer.wrappers import DistributedOptimizer

_STATE = "optimizer_weights"  # Keras' name of a group in .h5 files


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model and makes its optimizer, with its saved state, a DistributedOptimizer.

    Call it on the rank that has the file, or on all ranks; it is no collective call.

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
    if model.optimizer is not None and Path(filepath).suffix in (".h5", ".hdf5"):
        _load_optimizer_state(model, filepath)
    if model.optimizer is not None and not is_distributed(model.optimizer):
        DistributedOptimizer(model.optimizer, compression=compression)
    return model


def _load_optimizer_state(model: Any, path: Any) -> None:
    """Loads what Keras 3 leaves out of an .h5 file: it builds the optimizer for no variables."""
    optimizer = model.optimizer
    if optimizer._trainable_variables or not model.trainable_variables:
        return
    optimizer.built = False
    optimizer.build(model.trainable_variables)
    with h5py.File(path) as file:
        found = load_optimizer_weights_from_hdf5_group(file) if _STATE in file else []
        values = [np.asarray(value) for value in found]  # while the file is open
    shapes = [tuple(variable.shape) for variable in optimizer.variables]
    if [value.shape for value in values] == shapes:
        optimizer.set_weights(values)
    else:
        optimizer.iterations.assign(0)
        warnings.warn(
            f"{path} holds no state that fits the optimizer, which starts anew: save models as "
            ".keras files, which keep it.",
            stacklevel=3,
        )
