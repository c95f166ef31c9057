"""What takes part in `fit`: data that acts between steps, and callbacks that are added."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.trainers.data_adapters.data_adapter import DataAdapter


class FitData(DataAdapter, abc.ABC):  # type: ignore[misc]  # Keras has no types
    """What `fit` takes as `x`, and tells of it that it begins and ends."""

    @abc.abstractmethod
    def fitting(
        self, model: Any, arguments: dict[str, Any]
    ) -> contextlib.AbstractContextManager[Any]:
        """Returns what is entered before `fit` begins, and left when it ends, by an error too.

        Args:
            model: that is to be trained.
            arguments: of `fit`, by name; a callback may be added to them.
        """


@contextlib.contextmanager
def added(
    arguments: dict[str, Any], callback: Any, model: Any, first: bool = False
) -> Iterator[None]:
    """Puts a callback behind, or before, those that `fit` was given, for the while of the block."""
    given = arguments.get("callbacks")
    if not isinstance(given, keras.callbacks.CallbackList):
        others = keras.tree.flatten(given or [])
        arguments["callbacks"] = [callback, *others] if first else [*others, callback]
        yield
        return
    callback.set_model(model)
    callback.set_params(given.params)
    given.callbacks.insert(0 if first else len(given.callbacks), callback)
    try:
        yield
    finally:
        given.callbacks.remove(callback)
