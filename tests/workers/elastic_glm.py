"""Elastic fits of linear models: writes each iteration's rank, size and pid to $OUT/log.

Ranks read a LIBSVM file, and fit $FITS models one after the other. Until there is a file
$OUT/enough.<number of the fit>, an iteration takes its time, and a hundredth of the samples, so
that no training is over before. After each fit they write $OUT/ended.<number>, and they wait for
$OUT/begin.<number> before a further one. In the end each rank writes what it has fitted to
$OUT/done.<pid>.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import sitecustomize

import trepak.keras as hvd
from trepak import chicle
from trepak.horovod_ext import membership
from trepak.tf_plugins.chicle.cocoa import CocoaSolver

OUT = Path(os.environ.get("OUT", "."))
PAUSE = float(os.environ.get("PAUSE", "0.2"))  # of each iteration, until it is enough
SAMPLES, FEATURES = 2000, 12
C, TOL = 0.003, 1e-6  # which takes two tasks some 40 iterations
FITS = int(os.environ.get("FITS", "1"))


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(SAMPLES, FEATURES)).round(4)
    return x, (x @ rng.normal(size=FEATURES) + rng.normal(size=SAMPLES) > 0).astype(float)


def cost(fit: int) -> float:
    """C of a fit; another one in each."""
    return C / (1 + fit)


def objective(weights: np.ndarray, c: float = C) -> float:
    """The primal objective of the hinge loss, without an intercept."""
    x, y = samples()
    margins = np.where(y == 1, 1, -1) * (x @ weights)
    return float(0.5 * weights @ weights + c * np.maximum(0, 1 - margins).sum())


def fit(x: Any, y: Any = None, c: float = C) -> Any:
    from trepak.glm import LinearSVC

    how = {"tol": TOL, "chunk_bytes": 4096, "random_state": 0, "replicas": True}
    return LinearSVC(c, loss="hinge", fit_intercept=False, **how).fit(x, y)


def main() -> None:
    sitecustomize.release()
    hvd.init()
    plain, number = CocoaSolver.solve, 0

    def slow(self: Any, model: Any, iteration: Any) -> Any:
        if not (OUT / f"enough.{number}").exists():
            time.sleep(PAUSE)
            iteration = dataclasses.replace(iteration, share=0.01)
        with (OUT / "log").open("a") as log:
            log.write(
                f"fit {number} iteration {iteration.number} rank {hvd.rank()} size {hvd.size()} "
                f"pid {os.getpid()} chunks {len(self.store.ids)} host {membership.host()}\n"
            )
        return plain(self, model, iteration)

    CocoaSolver.solve = slow  # type: ignore[method-assign]
    fitted = []
    for number in range(FITS):
        while number > 0 and not (OUT / f"begin.{number}").exists():
            time.sleep(0.05)
        model = fit(chicle.LibsvmFile(OUT / "samples.svm", FEATURES), c=cost(number))
        told = {
            "objective": objective(model.coef_[0], cost(number)),
            "gap": model.duality_gap_,
            "iterations": model.n_iter_,
            "weights": model.coef_[0].tolist(),
        }
        fitted.append(told)
        (OUT / f"ended.{number}").touch()
    about = {"rank": hvd.rank(), "size": hvd.size(), "fits": fitted}
    (OUT / f"done.{os.getpid()}").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
