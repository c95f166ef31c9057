"""What a linear model's training is made of.

Samples as they are read, what all ranks must know of them, and CoCoA.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problems
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.glm_agreement import agree, agreed_facts
from trepak.tf_plugins.chicle.trainer import Iteration, Solver, Trainer

_FACT = "fact "  # begins the names of what is saved of the samples
_AGREED = "what all were asked for"


@dataclass(frozen=True)
class Samples:
    """Some samples.

    Attributes:
        x: [samples, features], of float32 or float64: an array, or a SciPy sparse matrix.
        y: numbers, or classes.
        weight: of each sample's loss.
    """

    x: Any
    y: np.ndarray
    weight: np.ndarray

    def fields(self) -> dict[str, Any]:
        """Returns what chunks are cut from."""
        return {"x": self.x, "y": self.y, "weight": self.weight}


class LinearTask(abc.ABC):
    """What a kind of linear model says of its training."""

    @abc.abstractmethod
    def read(self, part: int, parts: int) -> Samples:
        """Returns a part of the samples, as they were given, and checked."""

    @abc.abstractmethod
    def described(self, mine: Samples, cluster: Cluster) -> Arrays:
        """Returns what a rank must know of all samples, the same on all; a collective call.

        Args:
            mine: this rank's samples.
            cluster: the ranks.
        """

    @abc.abstractmethod
    def encoded(self, samples: Samples, facts: Arrays) -> Samples:
        """Returns samples as the solvers take them, y and weight of float64.

        Args:
            samples: that were read.
            facts: what `described` has returned.
        """

    @abc.abstractmethod
    def problems(self, facts: Arrays) -> Problems:
        """Returns the models that are fitted."""


class GlmTrainer(Trainer):
    """CoCoA, of problems that are known once the samples were read.

    Attributes:
        facts: what `LinearTask.described` has returned.
        cocoa: the trainer of the weights.
    """

    facts: Arrays
    cocoa: CocoaTrainer

    def __init__(self, model: Any, task: LinearTask, seed: int) -> None:
        """Makes it; `begin` or `load` follows.

        Args:
            model: the estimator, with `tol`, `max_iter` and `chunk_bytes`.
            task: its kind.
            seed: of rank 0 it is all ranks'.
        """
        self._model, self._task, self._seed = model, task, seed
        self._read: tuple[tuple[int, int], Samples] | None = None  # until it is cut

    def begin(self, cluster: Cluster) -> None:
        """Reads this rank's samples, and finds out about all; see `Trainer`.

        Raises:
            ValueError: a rank's samples are wrong, or ranks were asked for different models.
        """
        part = cluster.rank, cluster.size
        mine = agree(self._model, lambda: self._task.read(*part), cluster)
        self._read = part, mine
        seed = cluster.gather(self._seed, "the seed")[0]
        agreed = np.asarray(agreed_facts(self._model, mine.x))
        facts = {
            "seed": np.asarray(seed),
            "features": np.asarray(mine.x.shape[1]),
            "dtype": np.asarray(str(mine.x.dtype)),
            _AGREED: agreed,
        }
        self._make(facts | self._task.described(mine, cluster))

    def cut(self, part: int, parts: int) -> Cutting:
        """Returns how a part of the samples is cut, which is read for it unless `begin` has."""
        known, self._read = self._read, None
        is_known = known is not None and known[0] == (part, parts)
        samples = known[1] if known is not None and is_known else self._task.read(part, parts)
        fields = self._task.encoded(samples, self.facts).fields()
        return Cutting(fields, self._problems.state(), self._model.chunk_bytes)

    def save(self) -> Arrays:
        """See `Trainer`."""
        return {_FACT + name: array for name, array in self.facts.items()} | self.cocoa.save()

    def load(self, saved: Arrays) -> None:
        """See `Trainer`.

        Raises:
            ValueError: the others fit another model.
        """
        facts = {k.removeprefix(_FACT): v for k, v in saved.items() if k.startswith(_FACT)}
        theirs, x = str(facts[_AGREED]), np.zeros((0, int(facts["features"])))
        mine = agreed_facts(self._model, x, str(facts["dtype"]))
        if theirs != mine:
            raise ValueError(f"this rank was asked for {mine}, and joins others that fit {theirs}.")
        self._make(facts)
        self.cocoa.load({k: v for k, v in saved.items() if not k.startswith(_FACT)})

    def _make(self, facts: Arrays) -> None:
        self.facts, self._problems = facts, self._task.problems(facts)
        model, seed = self._model, int(facts["seed"])
        self.cocoa = CocoaTrainer(self._problems, model.tol, model.max_iter, seed)

    def solver(self, task: int, store: ChunkStore) -> Solver:
        """See `Trainer`."""
        return self.cocoa.solver(task, store)

    def no_update(self) -> list[np.ndarray]:
        """See `Trainer`."""
        return self.cocoa.no_update()

    def model(self) -> list[np.ndarray] | None:
        """See `Trainer`."""
        return self.cocoa.model()

    def merge(self, updates: list[np.ndarray], iteration: Iteration) -> None:
        """See `Trainer`."""
        self.cocoa.merge(updates, iteration)

    def metrics(self) -> dict[str, Any]:
        """See `Trainer`."""
        return self.cocoa.metrics()

    def recover(self, solvers: Sequence[Solver], cluster: Cluster) -> None:
        """See `Trainer`."""
        self.cocoa.recover(solvers, cluster)

    def conclude(self, solvers: Sequence[Solver], cluster: Cluster) -> None:
        """Computes w from the duals, and the gap; it may be too large again. See `Trainer`."""
        self.cocoa.evaluate_anew(solvers, cluster)
