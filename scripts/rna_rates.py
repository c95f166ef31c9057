"""Learning rates and targets of `trepak bench rna`: the best for ranks that wait for one another.

Prints, for each task and learning rate, the held-out loss as bulk synchronous training goes on. No
times are in it, so one process computes all ranks' gradients as one batch.
"""

from __future__ import annotations

import argparse

import trepak.keras  # noqa: F401  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np

from trepak.scripts.rna_cases import cases
from trepak.scripts.uneven.tasks import task

_EVERY = 6  # steps


def losses(name: str, rate: float, batch: int, steps: int, seed: int) -> list[float]:
    """Returns the held-out loss after every few steps of momentum SGD, until so many."""
    given = task(name)
    keras.utils.set_random_seed(seed)
    model = given.build()
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps // _EVERY):
        for _ in range(_EVERY):
            chosen = rng.choice(len(given.train[0]), batch, replace=False)
            model.train_on_batch(given.train[0][chosen], given.train[1][chosen])
        loss = model.evaluate(*given.test, batch_size=len(given.test[0]), verbose=0)
        found.append(float(loss))
    return found


def main() -> None:
    """Prints them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--case", help="this one alone")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0025 * 2**i for i in range(7)])
    options = parser.parse_args()
    for case in cases(options.ranks):
        if options.case not in (None, case.name):
            continue
        for rate in options.rates:
            curves = [
                losses(case.task, rate, case.batch * options.ranks, options.steps, seed)
                for seed in range(options.seeds)
            ]
            loss = np.median(curves, axis=0)
            shown = "  ".join(f"{loss[i]:.3f}" for i in range(3, len(loss), 4))
            print(f"{case.name} at {rate:g}, every {4 * _EVERY} steps: {shown}", flush=True)


if __name__ == "__main__":
    main()
