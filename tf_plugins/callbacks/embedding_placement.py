"""EmbeddingPlacement: counts accesses to rows of embeddings, then places rows in fast memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding
from trepak.tf_plugins.layers.embedding_tiers import POLICIES, Placed, sample_labels
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, detach

_COUNTED = ("rows_looked_up", "fast_rows", "fast_bytes", "bytes", "moves", "evictions")


@dataclasses.dataclass
class Placement:
    """What lies in fast memory, of all ranks and all layers together.

    Attributes:
        step: after which it was placed.
        alpha: the share of fast memory, m_G / (m_G + m_H) of the thesis.
        rows: of all tables.
        fast_rows: of these, in fast memory.
        expected: the share of the warm-up's accesses that rows in fast memory had; NaN: there was
            no warm-up.
        measured: the share of rows looked up after that which lay there; NaN until `fit` has ended.
        moves: of rows between memory and files, after that.
        evictions: of these, out of memory.
    """

    step: int
    alpha: float
    rows: int
    fast_rows: int
    expected: float
    measured: float = float("nan")
    moves: int = 0
    evictions: int = 0


class EmbeddingPlacement(keras.callbacks.Callback):
    """Places the rows of all `DistributedEmbedding` layers that have a `folder=`.

    On all ranks, or on none. In the warm-up, the first `warmup_steps` of training, accesses to rows
    are counted. After it, after the same step on all ranks, each rank fills its `fast_bytes` with
    those rows of its own, of all tables of a layer together, that were accessed most; ranks have
    equal budgets. With a `policy`, rows are scored from then on, and every `every` steps those with
    larger scores take the place of others of their table: the lowest score leaves fast memory
    first. A row that leaves moves to the layer's file; no row is lost, and training goes on as it
    would without tiers, bit for bit. (Rows beyond a layer's `row_limit` are another thing: they
    start afresh. They are those with the lowest scores as well.)

    Policies: "score", equation 6.3 of the thesis: each step w becomes
    (1 - decay) w + decay (p positive + n negative), where p and n are the numbers of positive and
    negative samples in which the row occurs; "lru": the row that was used least recently leaves;
    "lfu": the one that was used least often since the placement.

    Attributes:
        placement: the `Placement`, the same on all ranks; None before it.
    """

    def __init__(
        self,
        warmup_steps: int,
        placement: str = "hot",
        *,
        seed: int = 0,
        policy: str | None = None,
        every: int = 1000,
        decay: float = 0.01,
        labels: bool | Callable[[Any], Any] = False,
        positive: float = 1.0,
        negative: float = 1.0,
        verbose: int = 1,
    ) -> None:
        """Makes the callback.

        Args:
            warmup_steps: for how many steps accesses are counted, over all calls of `fit`.
            placement: "hot", or "random", with which the thesis compares it (section 6.3.4).
            seed: of the random placement.
            policy: "score", "lru" or "lfu"; None: rows stay where the placement has put them.
            every: steps between two replacements.
            decay: beta of "score".
            labels: for "score": whether p and n are counted by the labels that `fit` has, or a
                function that makes labels of them: one for each sample, above 0.5 if it is
                positive. It costs one more exchange a step. False: all samples count as positive,
                those of one rank's batch as one.
            positive: what a positive sample weighs, k of the equation.
            negative: what a negative sample weighs, l of the equation.
            verbose: 1 prints the placement and what came of it, on rank 0; 0 prints nothing.

        Raises:
            ValueError: an argument is out of bounds, or goes with another one.
        """
        super().__init__()
        if placement not in ("hot", "random"):
            raise ValueError(f"placement must be 'hot' or 'random', got {placement!r}.")
        if warmup_steps < (1 if placement == "hot" else 0):
            raise ValueError(
                "warmup_steps must be at least 1, or 0 with placement='random', got "
                f"{warmup_steps}."
            )
        if policy is not None and policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}.")
        if every < 1 or not 0 < decay < 1 or positive < 0 or negative < 0:
            raise ValueError(
                "every must be at least 1, decay between 0 and 1, positive and negative at least "
                f"0, got {every}, {decay}, {positive} and {negative}."
            )
        if labels is not False and policy != "score":
            raise ValueError(f"labels= goes with policy='score', not with {policy!r}.")
        self._warmup_steps, self._kind, self._seed = warmup_steps, placement, seed
        self._policy, self._every, self._decay = policy, every, decay
        self._labels, self._weights = labels, (positive, negative)
        self._verbose = verbose
        self._layers: list[Any] = []
        self._steps = 0  # of all calls of fit
        self._batches = 0  # of this epoch
        self._replaced = 0  # at which step
        self._is_counting = False
        self._before = np.zeros(len(_COUNTED))  # what was counted at the placement
        self.placement: Placement | None = None

    def set_model(self, model: Any) -> None:
        """Has labels counted, before Keras makes the training step."""
        super().set_model(model)
        if self._labels is not False:
            attach(model, ModelHook("labels", {"train_step": self._labelled}, retraces=True))

    def _labelled(self, model: Any, train_step: Any) -> Any:
        def step(data: Any) -> Any:
            _, labels, _ = keras.utils.unpack_x_y_sample_weight(data)
            if callable(self._labels):
                labels = self._labels(labels)
            if not tf.is_tensor(labels):
                raise ValueError(
                    f"labels=True needs one tensor of labels, and fit has {type(labels).__name__}: "
                    "give labels= a function that makes one of them."
                )
            with sample_labels(labels, *self._weights):
                return train_step(data)

        return step

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins the warm-up.

        Raises:
            ValueError: the model has no DistributedEmbedding, or one has no folder.
        """
        found = self.model._flatten_layers(include_self=False)
        layers = [one for one in found if isinstance(one, DistributedEmbedding)]
        if not layers or any(layer.storage.folder is None for layer in layers):
            raise ValueError(
                "EmbeddingPlacement places the rows of DistributedEmbedding layers with a folder=; "
                f"the layers of the model {self.model.name!r} are "
                f"{[(layer.name, layer.storage.folder) for layer in layers]}."
            )
        self._layers = layers
        self._batches = 0
        self._begin_counting()

    def _begin_counting(self) -> None:
        is_built = all(layer.tables is not None for layer in self._layers)
        if self.placement is None and not self._is_counting and is_built and self._warmup_steps:
            self._track("lfu")
            self._is_counting = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Counts batches anew."""
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Places rows when the warm-up is over; a collective call then."""
        self._begin_counting()  # of a model that its first batch has built
        # With steps_per_execution, `batch` is the last of several.
        self._steps += batch + 1 - self._batches
        self._batches = batch + 1
        if self.placement is None:
            if self._steps >= self._warmup_steps:
                self._place()
        elif self._policy is not None and self._steps - self._replaced >= self._every:
            self._replaced = self._steps
            self._on_all_ranks(lambda layer: layer.tables.tiers.replace())

    def on_train_end(self, logs: Any = None) -> None:
        """Says what came of the placement; a collective call."""
        if self._labels is not False:
            detach(self.model, "labels")
        if self.placement is None:
            self._tell(
                f"Embedding placement: fit ended after {self._steps} of {self._warmup_steps} "
                "warm-up steps; nothing was placed."
            )
            return
        now = self._counted() - self._before
        change = dict(zip(_COUNTED, now.tolist(), strict=True))
        self.placement.measured = change["fast_rows"] / max(1.0, change["rows_looked_up"])
        self.placement.moves = int(change["moves"])
        self.placement.evictions = int(change["evictions"])
        self._tell(
            f"Embedding placement, step {self._steps}: measured hit share "
            f"{self.placement.measured:.4f} (expected {self.placement.expected:.4f}), "
            f"{self.placement.moves:,} moves of rows, {self.placement.evictions:,} out of memory."
        )

    def _place(self) -> None:
        seed = self._seed if self._kind == "random" else None
        placed = self._on_all_ranks(lambda layer: layer.tables.tiers.place(seed))
        self._is_counting = False
        self._track(self._policy or "none")
        self._before, self._replaced = self._counted(), self._steps
        counted = dict(zip(_COUNTED, self._before.tolist(), strict=True))
        alpha = counted["fast_bytes"] / max(1.0, counted["bytes"])
        expected = placed.fast_scores / placed.scores if placed.scores else float("nan")
        self.placement = Placement(self._steps, alpha, placed.rows, placed.fast_rows, expected)
        self._tell(
            f"Embedding placement, {self._kind}, after {self._steps} steps: "
            f"{placed.fast_rows:,} of {placed.rows:,} rows in fast memory, alpha {alpha:.4f} "
            f"({counted['fast_bytes'] / 2**20:,.1f} of {counted['bytes'] / 2**20:,.1f} MiB), "
            f"expected hit share {expected:.4f}, as in the warm-up."
            + ("" if placed.fast_rows else " Give the layer a larger fast_bytes=.")
        )

    def _track(self, policy: str) -> None:
        by_labels = self._labels is not False and policy == "score"
        for layer in self._layers:
            layer.tables.tiers.track(policy, self._decay, by_labels)

    def _on_all_ranks(self, move: Callable[[Any], Placed]) -> Placed:
        """Moves rows; a rank that can't, for its disk is full say, tells the others."""
        problem = ""
        placed: list[tuple[Any, ...]] = []
        try:
            placed = [dataclasses.astuple(move(layer)) for layer in self._layers]
        except tf.errors.OpError as error:
            problem = str(error)
        told = exchange.gather([problem, placed], "placed rows")
        for theirs, _ in told:
            if theirs:
                raise RuntimeError(f"rows of embeddings could not be placed: {theirs}")
        each = [one for _, mine in told for one in mine]
        return Placed(*(sum(column) for column in zip(*each, strict=True)))

    def _counted(self) -> Any:
        """Returns the sums of what all ranks have counted, by _COUNTED; a collective call."""
        found = [layer.tables.statistics() for layer in self._layers]
        mine = [sum(one[name] for one in found) for name in _COUNTED]
        return np.sum(exchange.gather(mine, "placement statistics"), axis=0)

    def _tell(self, text: str) -> None:
        if self._verbose and basics.rank() == 0:
            print(text, flush=True)
