"""Where trepak changes what Keras does for models with distributed optimizers; others see nothing.

`fit` gets a callback that compares the ranks, an epoch that was ended early leaves its data ready
for the next one, `jit_compile="auto"` means False, and what a callback has put in a method's place
goes when `fit` or `evaluate` ends.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.trainers.trainer import Trainer

from trepak.horovod_ext import basics, config
from trepak.tf_plugins.callbacks.comparison import Comparison, KeepsAlike
from trepak.tf_plugins.model.counted_samples import count_samples
from trepak.tf_plugins.model.distributed_models import (
    check_rows,
    is_distributed,
    optimizers_of,
    process_set_of,
)
from trepak.tf_plugins.model.fit_parts import FitData, added
from trepak.tf_plugins.model.keras_changes import change
from trepak.tf_plugins.model.lockstep import out_of_lockstep
from trepak.tf_plugins.model.tracing import reject_replicas
from trepak.tf_plugins.model.turns import one_at_a_time

READS = "_get_metrics_result_or_logs"  # where Keras reads results, once per epoch and evaluation
_AUTO = "_trepak_auto_jit_compile"


@functools.cache
def install() -> None:
    """Puts the changes in place, once; call it where something distributed is made."""
    change(Trainer, "compile", _compiling, "jit_compile='auto' chooses XLA on GPUs")
    change(
        TensorFlowTrainer,
        "make_train_function",
        _making,
        "optimizers may become distributed after compile()",
    )
    change(TensorFlowTrainer, "fit", _fitting, "nothing else runs before all callbacks begin")
    reads = "what callbacks put in the place where results are read stays after an exception"
    for method in ("fit", "evaluate"):
        change(TensorFlowTrainer, method, _restoring, reads)
    left = "an epoch of known length that stop_training ends early spoils the next one's data"
    change(EpochIterator, "__iter__", _beginning, left)


def _compiling(plain: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(plain)

    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = signature.bind(self, *args, **kwargs).arguments.get("jit_compile", "auto")
        done = plain(self, *args, **kwargs)
        setattr(self, _AUTO, asked == "auto")
        _leave_xla_out(self)
        return done

    return compile


def _leave_xla_out(model: Any) -> None:
    """Has Keras not choose XLA, as it does on GPUs: it cannot compile collectives."""
    # Unmarked is what was compiled before the first distributed optimizer was made.
    if getattr(model, _AUTO, True) and any(map(is_distributed, optimizers_of(model))):
        model.jit_compile = False


def _making(plain: Callable[..., Any]) -> Callable[..., Any]:
    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        _leave_xla_out(self)  # optimizers may have come after compile()
        check_rows(self)
        count_samples(self)
        return plain(self, *args, **kwargs)

    return make_train_function


def _fitting(plain: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(plain)

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        comparison = _comparison(self, bound.arguments)
        data = bound.arguments["x"]
        if comparison is None and not isinstance(data, FitData):
            return plain(self, *args, **kwargs)
        with contextlib.ExitStack() as during:
            if comparison is not None:
                with self.distribute_strategy.scope():
                    reject_replicas()
                during.enter_context(one_at_a_time())
            if isinstance(data, FitData):
                during.enter_context(data.fitting(self, bound.arguments))
            if comparison is not None:
                during.enter_context(added(bound.arguments, comparison, self))
                during.enter_context(_cleared(self))
                comparison.begin(self)
            return plain(*bound.args, **bound.kwargs)

    return fit


def _restoring(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Has `fit` or `evaluate` leave where results are read as it was, also after an exception."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(self).get(READS)
        try:
            return plain(self, *args, **kwargs)
        finally:
            put_back(self, before)

    return call


def put_back(model: Any, before: Any) -> None:
    """Gives a model back what stood for its reading of results; None: the method of its class."""
    if before is None:
        model.__dict__.pop(READS, None)
    else:
        model.__dict__[READS] = before


@contextlib.contextmanager
def _cleared(model: Any) -> Iterator[None]:
    """Takes away what belongs to one `fit` alone, also where an exception ends it."""
    try:
        yield
    except BaseException:
        for one in filter(is_distributed, optimizers_of(model)):
            one._trepak.interrupted = True
        raise
    finally:
        out_of_lockstep(model)


def _comparison(model: Any, arguments: dict[str, Any]) -> Comparison | None:
    """Returns the callback that compares the ranks of a model, if several train it together."""
    callbacks = arguments["callbacks"]
    given = getattr(callbacks, "callbacks", None) or keras.tree.flatten(callbacks or [])
    keeping = [one for one in given if isinstance(one, KeepsAlike)]
    distributed = any(map(is_distributed, optimizers_of(model)))
    if not (distributed or keeping) or not basics.is_initialized():
        return None
    broadcast = keeping[-1] if keeping else None
    given_set = None if broadcast is None else broadcast.process_set
    process_set = given_set or process_set_of(model)
    if not process_set.included() or (process_set.size() == 1 and not basics.is_elastic()):
        return None
    every = int(config.value("TREPAK_COMPARE_STEPS"))
    begin, end = arguments["initial_epoch"], arguments["epochs"]
    return Comparison(process_set, broadcast, end, begin, every)


def _beginning(plain: Callable[..., Any]) -> Callable[..., Any]:
    def begin_epoch(self: Any) -> Any:
        # It has an iterator still where an epoch of a known length was left in its midst.
        if self._epoch_iterator is not None and self._current_iterator is not None:
            _end_epoch(self)
        return plain(self)

    return begin_epoch


def _end_epoch(epochs: Any) -> None:
    """Ends the data of an epoch that a callback has ended early, as Keras does at its own end."""
    if epochs._epoch_iterator.gi_frame is None:
        return  # it has ended by itself
    epochs._epoch_iterator.close()
    epochs.data_adapter.on_epoch_end()
