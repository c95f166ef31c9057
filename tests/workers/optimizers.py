"""Every optimizer of keras.optimizers, distributed, against one process."""

from __future__ import annotations

from typing import Any

import exactness
import harness
import keras

# These divide by a root of tiny second moments, or take a sign: rounding grows beyond float32's.
LOOSE = {"Adafactor", "Adadelta", "Lion", "Lamb", "Muon"}


def classes() -> list[Any]:
    found = []
    for name in sorted(vars(keras.optimizers)):
        cls = getattr(keras.optimizers, name)
        base = keras.optimizers.Optimizer
        if isinstance(cls, type) and issubclass(cls, base) and cls is not base:
            found.append(cls)
    return found


def comparison(cls: Any) -> harness.Case:
    def make() -> Any:
        if cls is keras.optimizers.LossScaleOptimizer:
            return cls(keras.optimizers.Adam())
        if cls is keras.optimizers.MultiOptimizer:
            biases = {".*bias": keras.optimizers.SGD(0.05)}
            return cls(keras.optimizers.OptimizerMap(keras.optimizers.Adam(), biases))
        return cls()

    rtol, atol = (1e-3, 1e-4) if cls.__name__ in LOOSE else (exactness.RTOL, exactness.ATOL)
    return exactness.comparison(make, rtol=rtol, atol=atol)


for optimizer_class in classes():
    harness.add(__name__, optimizer_class.__name__, comparison(optimizer_class))
