"""Samples in chunks that move between ranks which train a Keras model (Chicle, section 5.1)."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.tf_plugins.chicle.chunked_fit import fitting
from trepak.tf_plugins.chicle.chunked_iterations import ChunkedIterations
from trepak.tf_plugins.chicle.cluster import Cluster, cluster_of_job
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.drawing import DRAWN
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.scheduling import Scheduler
from trepak.tf_plugins.model import keras_hooks
from trepak.tf_plugins.model.fit_parts import FitData

CHUNK_BYTES = 200 << 10  # as the paper has them for networks


class ChunkedDataset(FitData):
    """What `model.fit` takes as its data where chunks of samples move between ranks.

    An epoch is a pass over the samples of all ranks: each comes once, whichever rank has its chunk
    meanwhile. A rank's batches are in proportion to the samples that it has, and all ranks' batches
    of a step are together about `batch_size` times the number of ranks. With several ranks the
    model's optimizer has `sync=trepak.LocalSGD(H=…)`: after each average, and at each epoch's end,
    policies move chunks. One process alone shuffles its samples.

    Attributes:
        iterations: between which chunks move.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int = 32,
        chunk_bytes: int = CHUNK_BYTES,
        policies: Sequence[Policy] | None = None,
        seed: int = 0,
    ) -> None:
        """Cuts this rank's samples into chunks, and places them at random; a collective call.

        Args:
            x: this rank's samples: an array [samples, …], or a tuple, list or dict of them. float64
                becomes Keras' float type, as in `fit`. A rank may have none (arrays of length 0).
            y: targets, likewise.
            sample_weight: of each sample [samples], or a structure like that of `y`.
            batch_size: samples of a step, divided by the number of ranks.
            chunk_bytes: of a chunk, at most.
            policies: what moves chunks; by default `Rebalancing()`.
            seed: decides who gets which chunk, and all orders.

        Raises:
            ValueError: on all ranks, where one was given what doesn't go together, or something
                else than the others; or there are fewer chunks than ranks.
            HorovodInternalError: another rank has died or left.
        """
        cluster = cluster_of_job()
        self._batch_size = batch_size

        def cut() -> tuple[tuple[Any, Cutting], dict[str, str]]:
            given = _given(x, y, sample_weight)
            arrays = keras.tree.flatten(given)
            if batch_size < 1:
                raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
            cutting = Cutting(dict(zip(_names(arrays), arrays, strict=True)), [DRAWN], chunk_bytes)
            numbers = {"batch_size": batch_size, "chunk_bytes": chunk_bytes, "seed": seed}
            return (given, cutting), {
                **{name: str(int(value)) for name, value in numbers.items()},
                "samples": str([(path, *_kind(a)) for path, a in _paths(given)]),
            }

        (given, cutting), facts = cluster.together(cut, "the samples")
        _check_alike(facts)
        self._like = keras.tree.map_structure(lambda array: _Like(*_kind(array)), given)
        tasks = place(cutting, cluster.size, cluster, seed)
        if len(tasks.working) < cluster.size:
            raise ValueError(
                f"there are {len(tasks.sizes)} chunks for {cluster.size} ranks: give smaller "
                f"ones (chunk_bytes is {chunk_bytes}), or more samples."
            )
        self.iterations = ChunkedIterations(
            tasks,
            cluster,
            [Rebalancing()] if policies is None else policies,
            _names(keras.tree.flatten(given)),
            seed,
        )
        self._is_fitted = False
        # Their threads know of the policies alone.
        weakref.finalize(self, self.iterations.scheduler.close).atexit = False
        keras_hooks.install()

    @property
    def tasks(self) -> Tasks:
        """This rank's task with its chunks, and who has which chunk."""
        return self.iterations.tasks

    @property
    def scheduler(self) -> Scheduler:
        """Moves chunks as policies decide; `notify` tells them of events."""
        return self.iterations.scheduler

    @property
    def cluster(self) -> Cluster:
        """The ranks."""
        return self.iterations.cluster

    def __len__(self) -> int:
        """The steps of an epoch: of all ranks' samples, the same on all of them."""
        tasks = self.tasks
        steps = -(-sum(tasks.sizes) // (self._batch_size * len(tasks.working)))
        return min(steps, self.iterations.fewest())

    def statistics(self) -> dict[str, int]:
        """Returns counts.

        Of this rank `chunks`, `samples`, and `batch`, its samples of a step; of all ranks together
        `iterations`, and chunks `moved` in them.
        """
        store = self.iterations.batches.store
        return {
            "chunks": len(store.ids),
            "samples": store.samples,
            "batch": -(-store.samples // len(self)),
            "iterations": self.iterations.iterations,
            "moved": self.iterations.moved,
        }

    @contextlib.contextmanager
    def fitting(self, model: Any, arguments: dict[str, Any]) -> Iterator[None]:
        """See `FitData`."""
        self._is_fitted = True
        try:
            with fitting(self.iterations, len(self), model, arguments):
                yield
        finally:
            self._is_fitted = False

    def get_tf_dataset(self) -> tf.data.Dataset:
        """Returns what Keras iterates over.

        It takes no batch before Keras asks for it, so that none is taken before chunks have moved.

        Raises:
            RuntimeError: nobody is in `fit`.
        """
        if not self._is_fitted:
            raise RuntimeError(
                "a ChunkedDataset is what fit takes as x: evaluate, predict and validation_data "
                "take arrays."
            )
        signature = keras.tree.map_structure(lambda like: like.spec(), self._like)
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        made = tf.data.Dataset.from_generator(self._batches, output_signature=signature)
        return made.with_options(options)

    def _batches(self) -> Iterator[Any]:
        batches = self.iterations.batches
        if not batches.steps_left:  # Keras builds a model from a batch
            yield keras.tree.pack_sequence_as(self._like, batches.first(self._batch_size))
        while batches.steps_left:
            yield keras.tree.pack_sequence_as(self._like, batches.take())

    @property
    def batch_size(self) -> int:
        """Samples of a step, divided by the number of ranks."""
        return self._batch_size

    @property
    def num_batches(self) -> int:
        """See `__len__`; for Keras."""
        return len(self)

    @property
    def has_partial_batch(self) -> bool:
        """For Keras: batches may differ in size."""
        return True

    @property
    def partial_batch_size(self) -> None:
        """For Keras: by how much is not known before."""
        return None


class _Like:
    """What stands for an array in a structure of them."""

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape

    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec([None, *self.shape], self.dtype)


def _given(x: Any, y: Any, sample_weight: Any) -> Any:
    """Returns arrays in the structure in which `fit` wants them.

    Raises:
        ValueError: something is no array of samples.
    """
    if sample_weight is not None and y is None:
        raise ValueError("sample_weight weighs the losses of targets: give y as well.")
    parts = tuple(part for part in (x, y, sample_weight) if part is not None)
    if not parts or parts[0] is not x:
        raise ValueError("x must be an array of samples, or a structure of arrays, got None.")
    names = ("x", "y", "sample_weight")
    return tuple(_arrays(part, name) for part, name in zip(parts, names, strict=False))


def _arrays(part: Any, name: str) -> Any:
    if isinstance(part, dict):
        return {key: _arrays(value, f"{name}[{key!r}]") for key, value in part.items()}
    if isinstance(part, tuple | list):  # tf.data takes a list for a tensor
        return tuple(_arrays(value, f"{name}[{place}]") for place, value in enumerate(part))
    if hasattr(part, "tocsr"):
        raise ValueError(f"{name} is a sparse matrix: give dense arrays.")
    array = np.asarray(part)
    if not array.ndim:
        raise ValueError(f"{name} must be an array with one entry per sample, got {part!r}.")
    return array.astype(keras.config.floatx()) if array.dtype == np.float64 else array


def _names(arrays: Sequence[Any]) -> list[str]:
    """Returns the names of their fields in chunks."""
    return [str(place) for place in range(len(arrays))]


def _kind(array: np.ndarray) -> tuple[str, tuple[int, ...]]:
    return str(array.dtype), array.shape[1:]


def _paths(given: Any) -> list[tuple[Any, np.ndarray]]:
    return list(keras.tree.flatten_with_path(given))


def _check_alike(facts: Sequence[dict[str, str]]) -> None:
    for rank, theirs in enumerate(facts):
        for name, value in facts[0].items():
            if theirs[name] != value:
                raise ValueError(
                    f"rank 0 makes a ChunkedDataset with {name} = {value}, rank {rank} one with "
                    f"{theirs[name]}: give all ranks the same."
                )
