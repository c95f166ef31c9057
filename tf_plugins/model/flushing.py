"""Has a model finish what it left for the next step, wherever somebody looks at its weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras

from trepak.tf_plugins.model.fit_parts import added
from trepak.tf_plugins.model.model_hooks import Wrap

# What shows the weights, or works with them, from outside a training step.
_SHOWS_WEIGHTS = (
    "make_test_function",  # evaluate, test_on_batch
    "make_predict_function",  # predict, predict_on_batch
    "get_weights",
    "set_weights",
    "save_own_variables",  # save, save_weights
    "load_own_variables",
    "export",
)

Act = Callable[[Any], None]  # on a model


def flushing_methods(flush: Act, begin: Act) -> dict[str, Wrap]:
    """Returns wrappers for a hook's methods: they flush before weights are seen, and after epochs.

    Args:
        flush: finishes what is left; it may be nothing.
        begin: called when `fit` begins.
    """
    methods: dict[str, Wrap] = dict.fromkeys(_SHOWS_WEIGHTS, _before(flush))
    return methods | {"train_on_batch": after(flush), "fit": _after_epochs(flush, begin)}


def _before(flush: Act) -> Wrap:
    def wrap(model: Any, plain: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            flush(model)
            return plain(*args, **kwargs)

        return method

    return wrap


def after(flush: Act) -> Wrap:
    """Returns a wrapper that flushes when a method is done."""

    def wrap(model: Any, plain: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            flush(model)
            return result

        return method

    return wrap


def _after_epochs(flush: Act, begin: Act) -> Wrap:
    def wrap(model: Any, fit: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            # Before all other callbacks at the end of an epoch: they may look at the weights.
            callback = keras.callbacks.LambdaCallback(
                on_train_begin=lambda logs: begin(model),
                on_epoch_end=lambda epoch, logs: flush(model),
                on_train_end=lambda logs: flush(model),
            )
            bound = inspect.signature(fit).bind(*args, **kwargs)
            with added(bound.arguments, callback, model, first=True):
                return fit(*bound.args, **bound.kwargs)

        return method

    return wrap
