"""An elastic fit of a linear model: writes each iteration's rank, size and pid to $OUT/log.

Ranks read a LIBSVM file. Until there is a file $OUT/enough, an iteration takes its time, and a
hundredth of the samples, so that no training is over before. In the end each rank writes what it
has fitted to $OUT/done.<pid>.
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


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(SAMPLES, FEATURES)).round(4)
    return x, (x @ rng.normal(size=FEATURES) + rng.normal(size=SAMPLES) > 0).astype(float)


def objective(weights: np.ndarray) -> float:
    """The primal objective of the hinge loss, without an intercept."""
    x, y = samples()
    margins = np.where(y == 1, 1, -1) * (x @ weights)
    return float(0.5 * weights @ weights + C * np.maximum(0, 1 - margins).sum())


def fit(x: Any, y: Any = None) -> Any:
    from trepak.glm import LinearSVC

    model = LinearSVC(
        C, loss="hinge", fit_intercept=False, tol=TOL, chunk_bytes=4096, random_state=0
    )
    return model.fit(x, y)


def main() -> None:
    sitecustomize.release()
    hvd.init()
    plain = CocoaSolver.solve

    def slow(self: Any, model: Any, iteration: Any) -> Any:
        if not (OUT / "enough").exists():
            time.sleep(PAUSE)
            iteration = dataclasses.replace(iteration, share=0.01)
        with (OUT / "log").open("a") as log:
            log.write(
                f"iteration {iteration.number} rank {hvd.rank()} size {hvd.size()} pid "
                f"{os.getpid()} chunks {len(self.store.ids)} host {membership.host()}\n"
            )
        return plain(self, model, iteration)

    CocoaSolver.solve = slow  # type: ignore[method-assign]
    model = fit(chicle.LibsvmFile(OUT / "samples.svm", FEATURES))
    told = {
        "rank": hvd.rank(),
        "size": hvd.size(),
        "objective": objective(model.coef_[0]),
        "gap": model.duality_gap_,
        "iterations": model.n_iter_,
    }
    (OUT / f"done.{os.getpid()}").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
