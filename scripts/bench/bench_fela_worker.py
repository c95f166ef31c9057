"""One rank of the lab's part of `trepak bench fela`."""

from __future__ import annotations

import time
from typing import Any

import trepak

# isort: split
import keras
import numpy as np

import trepak.keras as hvd
from trepak.horovod_ext.fela import FelaWorker, Over, Token
from trepak.models import zoo
from trepak.scripts.bench import rank
from trepak.scripts.bench.fela_lab import Point, cuts_of
from trepak.scripts.bench.fela_trials import FELA
from trepak.tf_plugins.fela.listening import Listener

_OPTIONS: dict[str, dict[str, int]] = {"vgg19": {}, "googlenet": {"size": 32, "classes": 10}}


class _Steps(keras.callbacks.Callback):
    """When iterations were over.

    Attributes:
        ends: seconds, by iteration.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append(time.perf_counter())


class _Waits:
    """Notes how long after a report this worker has the token that it asks for.

    Attributes:
        seconds: of each token that came in the same iteration.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._asked = 0.0

    def begin(self) -> None:
        report, hear = FelaWorker.report, Listener.next

        def reported(worker: FelaWorker, token: int, loss: float = 0.0) -> None:
            self._asked = time.perf_counter()
            report(worker, token, loss)

        def heard(listener: Listener) -> Any:
            event = hear(listener)
            if isinstance(event, Token) and self._asked:
                self.seconds.append(time.perf_counter() - self._asked)
            if isinstance(event, Token | Over):
                self._asked = 0.0
            return event

        FelaWorker.report, Listener.next = reported, heard  # type: ignore


def measure(point: Point) -> dict[str, Any]:
    """Returns seconds, of iterations that count and of what `fit` does at its end, and counts."""
    model = zoo.build(
        point.setting.network,
        emulate="k40",
        shrink=point.shrink,
        stretch=point.stretch,
        activations=True,
        saturates=True,
        **_OPTIONS[point.setting.network],
    )
    waits, fela = _Waits(), None
    waits.begin()
    optimizer: Any = keras.optimizers.SGD(1e-3, momentum=0.9)
    if point.way == FELA:
        fela = _distributed(point, model)
    else:
        optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, "mse")
    batch = point.setting.rules["batches"][trepak.rank()]
    drawn = np.random.default_rng(trepak.rank())
    x, y = (
        drawn.standard_normal((batch * point.steps, shape[-1]), np.float32)
        for shape in (model.input_shape, model.output_shape)
    )
    steps = _Steps()
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), steps]
    model.fit(x, y, batch_size=batch, epochs=1, shuffle=False, verbose=0, callbacks=callbacks)
    end = time.perf_counter()
    times = np.diff(steps.ends)[-point.iterations - 1 : -1]
    counted = {} if fela is None else fela.statistics()
    return {
        "seconds": times.tolist(),
        "sharing": end - steps.ends[-2] - times.mean(),  # weights, with and after the last one
        "statistics": counted,
        "waits": waits.seconds,
    }


def _distributed(point: Point, model: keras.Model) -> trepak.Fela:
    setting = point.setting
    return trepak.Fela(
        model,
        partition=cuts_of(model),
        threshold=setting.rules["threshold"],
        weights=setting.weights,
        subset=None if setting.subset == setting.workers else setting.subset,
        depth_first=setting.depth_first,
        hierarchical=setting.hierarchical,
        recompute=setting.recompute,
    )


if __name__ == "__main__":
    rank.main(measure, process_sets="dynamic")
