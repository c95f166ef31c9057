"""Learning rates and targets of `trepak bench rna` and `elastic_bsp`: the best ones for BSP.

Prints, for each task and learning rate, the held-out loss and accuracy as bulk synchronous training
goes on. No times are in it, so one process computes all ranks' gradients as one batch.
"""

from __future__ import annotations

import argparse

import trepak.keras  # noqa: F401  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np

from trepak.scripts.bench import elastic_bsp_cases, rna_cases
from trepak.scripts.bench.uneven.cases import Case
from trepak.scripts.bench.uneven.tasks import Task, task

_EVERY = 6  # steps
_SHOWN = 4  # of these
_RANKS = 8  # of RNA's cases


def curve(given: Task, rate: float, batch: int, steps: int, seed: int) -> list[tuple[float, float]]:
    """Returns held-out loss and accuracy after every few steps of momentum SGD, until so many."""
    keras.utils.set_random_seed(seed)
    model = given.build()
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps // _EVERY):
        for _ in range(_EVERY):
            chosen = rng.choice(len(given.train[0]), batch, replace=False)
            model.train_on_batch(given.train[0][chosen], given.train[1][chosen])
        held_out = model.evaluate(*given.test, batch_size=len(given.test[0]), verbose=0)
        found.append((float(held_out[0]), float(held_out[1])))
    return found


def show(case: Case, rate: float, steps: int, seeds: int) -> None:
    """Prints the medians of a case's curves with one rate."""
    given, batch = task(case.task), case.batch * len(case.ranks)
    curves = [curve(given, rate, batch, steps, seed) for seed in range(seeds)]
    medians = np.median(curves, axis=0)[_SHOWN - 1 :: _SHOWN]
    shown = "  ".join(f"{loss:.3f} {accuracy:.3f}" for loss, accuracy in medians)
    print(f"{case.name} at {rate:g}, every {_SHOWN * _EVERY} steps: {shown}", flush=True)


def main() -> None:
    """Prints them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", choices=["rna", "elastic_bsp"], default="rna")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--case", help="this one alone")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0025 * 2**i for i in range(7)])
    options = parser.parse_args()
    of_bench = rna_cases.cases(_RANKS) if options.bench == "rna" else elastic_bsp_cases.cases()
    for case in of_bench:
        if options.case in (None, case.name):
            for rate in options.rates:
                show(case, rate, options.steps, options.seeds)


if __name__ == "__main__":
    main()
