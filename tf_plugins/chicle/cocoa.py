"""CoCoA: linear models of samples that many tasks have, by dual coordinate ascent in each.

Smith et al. 2018, with the sums of all tasks' changes (γ = 1) and σ′ = the number of tasks, as
Chicle has it (section 5.1). The models minimize ½‖w‖² + Σ C·loss(y, x·w).
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trepak.ops.loader import call, in_place
from trepak.tf_plugins.chicle.chunk import Field
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.trainer import Iteration, Solver, Trainer

DUALS = "alpha"
_SEED_BITS = 63


@dataclass(frozen=True)
class Problem:
    """One of the models that are fitted to the same samples.

    Attributes:
        loss: "hinge", "squared_hinge", "logistic" or "squared" (½(y − x·w)²).
        c: C, of each sample's loss, times the sample's weight.
        positive: the y that is +1, others being −1; None: y is a number to be predicted.
        bias: a last feature that all samples have; 0: none.
        target_center: is subtracted from y.
    """

    loss: str
    c: float
    positive: float | None = None
    bias: float = 0.0
    target_center: float = 0.0

    def described(self, column: int, sigma: float) -> dict[str, Any]:
        """Returns what native code reads."""
        positive = 0.0 if self.positive is None else self.positive
        about = dataclasses.asdict(self) | {"positive": positive}
        return {
            **about,
            "has_classes": self.positive is not None,
            "column": column,
            "sigma": sigma,
        }


@dataclass(frozen=True)
class Problems:
    """All models that are fitted to the same samples.

    Attributes:
        each: of them.
        features: of a sample, without the bias.
        center: of float64, is subtracted from each sample; empty: nothing is.
    """

    each: tuple[Problem, ...]
    features: int
    center: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))

    @property
    def shape(self) -> tuple[int, int]:
        """Of the weights: by model, those of features and the bias."""
        return len(self.each), self.features + (self.each[0].bias != 0)

    def state(self) -> list[Field]:
        """Returns what a sample has beside "x", "y" and "weight": its duals."""
        return [Field(DUALS, "float64", (len(self.each),), is_state=True)]


def seed_of(seed: int, iteration: int, task: int, model: int) -> int:
    """Returns what decides in which order a task takes its samples in an iteration."""
    sequence = np.random.SeedSequence([seed, iteration, task, model])
    return int(sequence.generate_state(1, np.uint64)[0]) >> (64 - _SEED_BITS)


class CocoaSolver(Solver):
    """A task's passes over its samples."""

    def __init__(self, task: int, store: ChunkStore, problems: Problems, seed: int) -> None:
        """Makes it; see `CocoaTrainer`."""
        super().__init__(store)
        self._task, self._problems, self._seed = task, problems, seed
        self._number: int = call("cocoa_make_solver", store=store.number)
        self._drop = weakref.finalize(self, call, "cocoa_drop_solver", solver=self._number)
        self._drop.atexit = False

    def solve(
        self, model: Sequence[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], int]:
        """Returns the change of the weights, and what the samples add to the objectives before."""
        weights = model[0]
        objectives, _ = self.evaluate(weights)
        change = np.empty_like(weights)
        count = max(1, round(self.store.samples * iteration.share))
        for column, problem in enumerate(self._problems.each):
            call(
                "cocoa_epoch",
                **self._about(problem, column, weights[column], float(iteration.tasks)),
                seed=seed_of(self._seed, iteration.number, self._task, column),
                count=count,
                change=in_place(change[column]),
            )
        return [change, objectives], count

    def evaluate(self, weights: np.ndarray, anew: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns what the task's samples add to the objectives, and to w = Σ βx.

        Args:
            weights: of all models, [models, features].
            anew: whether to compute w; it is zeros otherwise.

        Returns:
            By model, what is added to the losses and to the duality gap; and to Σ βx, in the
            weights' shape.
        """
        objectives = np.empty((len(weights), 2))
        sums = np.zeros_like(weights)
        for column, problem in enumerate(self._problems.each):
            told = call(
                "cocoa_evaluate",
                **self._about(problem, column, weights[column], 1.0),
                sum=in_place(sums[column] if anew else np.zeros(0)),
            )
            objectives[column] = told["losses"], told["gaps"]
        return objectives, sums

    def _about(
        self, problem: Problem, column: int, weights: np.ndarray, sigma: float
    ) -> dict[str, Any]:
        return {
            "solver": self._number,
            "problem": problem.described(column, sigma),
            "weights": in_place(weights),
            "center": in_place(self._problems.center),
        }


class CocoaTrainer(Trainer):
    """Adds up the tasks' changes, until the duality gap is small enough.

    Attributes:
        weights: w of each model, [models, features].
        gaps: by iteration, the relative duality gap of the worst model before it: that of primal
            and dual objective, as a part of the primal.
        primals: by iteration, the primal objectives of all models before it.
        iterations: how many were merged.
    """

    def __init__(
        self, problems: Problems, tol: float = 1e-4, max_iter: int = 1000, seed: int = 0
    ) -> None:
        """Begins with zeros.

        Args:
            problems: the models.
            tol: the relative duality gap that is small enough.
            max_iter: after so many iterations it ends anyway.
            seed: all orders of samples depend on it alone.
        """
        self._problems, self._tol, self._max_iter, self._seed = problems, tol, max_iter, seed
        self.weights = np.zeros(problems.shape)
        self.gaps: list[float] = []
        self.primals: list[np.ndarray] = []
        self.iterations = 0

    def solver(self, task: int, store: ChunkStore) -> CocoaSolver:
        """See `Trainer`."""
        return CocoaSolver(task, store, self._problems, self._seed)

    def no_update(self) -> list[np.ndarray]:
        """See `Trainer`."""
        return [np.zeros_like(self.weights), np.zeros((len(self.weights), 2))]

    def model(self) -> list[np.ndarray] | None:
        """See `Trainer`."""
        is_over = self.has_converged or self.iterations >= self._max_iter
        return None if is_over else [self.weights]

    @property
    def has_converged(self) -> bool:
        """Whether the last gap was small enough."""
        return bool(self.gaps) and self.gaps[-1] <= self._tol

    def merge(self, updates: list[np.ndarray], iteration: Iteration) -> None:
        """See `Trainer`."""
        change, objectives = updates
        primals, gap = self.judge(objectives)
        self.primals.append(primals)
        self.gaps.append(gap)
        self.weights = self.weights + change
        self.iterations += 1

    def judge(self, objectives: np.ndarray) -> tuple[np.ndarray, float]:
        """Returns the primal objectives at the weights, and the worst model's relative gap.

        Args:
            objectives: of all tasks together; see `CocoaSolver.evaluate`.
        """
        norms = 0.5 * np.einsum("mf,mf->m", self.weights, self.weights)
        primals = norms + objectives[:, 0]
        gaps = objectives[:, 1] / np.maximum(primals, np.finfo(float).tiny)
        return primals, float(gaps.max())

    def save(self) -> dict[str, np.ndarray]:
        """See `Trainer`."""
        return {
            "weights": self.weights,
            "gaps": np.asarray(self.gaps, float),
            "primals": np.asarray(self.primals, float).reshape(-1, len(self.weights)),
            "iterations": np.asarray(self.iterations),
        }

    def load(self, saved: dict[str, np.ndarray]) -> None:
        """See `Trainer`."""
        self.weights, self.gaps = saved["weights"], saved["gaps"].tolist()
        self.primals, self.iterations = list(saved["primals"]), int(saved["iterations"])

    def recover(self, solvers: Sequence[Solver], cluster: Cluster) -> None:
        """Makes w that of the duals that there are, w = Σ βx; see `Trainer`."""
        self._recover(solvers, cluster)

    def evaluate_anew(self, solvers: Sequence[Solver], cluster: Cluster) -> None:
        """Computes w from the duals, so that no error of rounding is left in it, and the last gap.

        A collective call. The iteration that follows a small gap may have made it larger. One pass
        over the samples does both: the gap is that of w with its error of rounding.
        """
        self.gaps[-1] = self.judge(self._recover(solvers, cluster))[1]

    def _recover(self, solvers: Sequence[Solver], cluster: Cluster) -> np.ndarray:
        """Makes w that of the duals; returns what all samples add to the objectives at the old."""
        told = [solver.evaluate(self.weights, anew=True) for solver in _cocoa(solvers)]
        nothing = np.zeros((len(self.weights), 2)), np.zeros_like(self.weights)
        parts = zip(*told or [nothing], strict=True)
        objectives, self.weights = cluster.sum([functools.reduce(np.add, some) for some in parts])
        return objectives

    def metrics(self) -> dict[str, Any]:
        """See `Trainer`."""
        return {"gap": self.gaps[-1], "primal": float(self.primals[-1].sum())}


def _cocoa(solvers: Sequence[Solver]) -> list[CocoaSolver]:
    return [solver for solver in solvers if isinstance(solver, CocoaSolver)]
