"""Samples in chunks that move between ranks which train a Keras model (Chicle, section 5.1)."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from trepak.tf_plugins.chicle import chunked_samples
from trepak.tf_plugins.chicle.chunked_fit import fitting
from trepak.tf_plugins.chicle.chunked_iterations import ChunkedIterations
from trepak.tf_plugins.chicle.chunked_options import ChunkedOptions
from trepak.tf_plugins.chicle.chunked_samples import Structure, check_alike
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster, cluster_of_job
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.drawing import DRAWN
from trepak.tf_plugins.chicle.elastic_chunks import ElasticChunks
from trepak.tf_plugins.chicle.elastic_rounds import ElasticRounds
from trepak.tf_plugins.chicle.horovod_rounds import HorovodHosts, is_elastic
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.scheduling import Scheduler
from trepak.tf_plugins.chicle.sources import Source
from trepak.tf_plugins.model import keras_hooks
from trepak.tf_plugins.model.elastic import MovingData
from trepak.tf_plugins.model.fit_parts import FitData
from trepak.tf_plugins.model.member_state import MemberState, say

CHUNK_BYTES = 200 << 10  # as the paper has them for networks


class ChunkedDataset(FitData, MovingData):
    """What `model.fit` takes as its data where chunks of samples move between ranks.

    An epoch is a pass over the samples of all ranks: each comes once, whichever rank has its chunk
    meanwhile. A rank's batches are in proportion to the samples that it has, and all ranks' batches
    of a step are together about `batch_size` times the number of ranks. With several ranks the
    model's optimizer has `sync=trepak.LocalSGD(H=…)`: after each average, and at each epoch's end,
    policies move chunks. One process alone shuffles its samples.

    In an elastic job it is given a source, and is part of the state:
    `trepak.elastic.KerasState(model, data=dataset, epoch=0)`. Ranks then come and go between two
    iterations, and each sample still comes once in a pass.

    Attributes:
        iterations: between which chunks move; in an elastic job, once the state was synchronized.
    """

    iterations: ChunkedIterations

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int = 32,
        chunk_bytes: int = CHUNK_BYTES,
        policies: Sequence[Policy] | None = None,
        seed: int = 0,
        commit_seconds: float = 10.0,
        replicas: bool = False,
    ) -> None:
        """Cuts this rank's samples into chunks, and places them at random; a collective call.

        Args:
            x: this rank's samples: an array [samples, …], or a tuple, list or dict of them. float64
                becomes Keras' float type, as in `fit`. A rank may have none (arrays of length 0).
                Or a `trepak.chicle.Source` of x, y and perhaps weights, of which each rank reads
                its part; in an elastic job it must be one, and is read later.
            y: targets, likewise; none with a source.
            sample_weight: of each sample [samples], or a structure like that of `y`.
            batch_size: samples of a step, divided by the number of ranks.
            chunk_bytes: of a chunk, at most.
            policies: what moves chunks; by default `Rebalancing()`.
            seed: decides who gets which chunk, and all orders.
            commit_seconds: of an elastic job, between two commits; what was trained since the last
                one is trained again after a failure.
            replicas: of an elastic job, whether the next rank keeps a copy of each chunk, so that
                those of a rank that has died are not read again.

        Raises:
            ValueError: on all ranks, where one was given what doesn't go together, or something
                else than the others; or there are fewer chunks than ranks.
            HorovodInternalError: another rank has died or left.
        """
        policies = [Rebalancing()] if policies is None else policies
        self._options = ChunkedOptions(
            batch_size, chunk_bytes, policies, seed, commit_seconds, replicas
        )
        self._source = x if isinstance(x, Source) else None
        self._arrays = x, y, sample_weight
        self._is_fitted = False
        self._elastic: ElasticChunks | None = None
        self._structure: Structure | None = None
        self._first_cut: tuple[tuple[int, int], Cutting] | None = None
        keras_hooks.install()
        if is_elastic():
            self._check_source()
            rounds = ElasticRounds(self._cut_once, seed, commit_seconds, replicas, say)
            self._elastic = ElasticChunks(rounds)
        else:
            cluster = cluster_of_job()
            cutting = self._cut_alike(cluster)
            self._go_on(place(cutting, cluster.size, cluster, seed), cluster)
            self._arrays = None, None, None

    def _check_source(self) -> None:
        if self._source is None:
            raise ValueError(
                "ranks of an elastic job must be able to read any samples: give ChunkedDataset a "
                "source, e.g. trepak.chicle.Arrays(x, y) of all samples, or NpyFiles(path, path)."
            )

    def _cut(self, part: int, parts: int) -> Cutting:
        """Returns how a part of the samples is cut, and learns how they are put together."""
        x, y, sample_weight = self._arrays
        if self._source is not None:
            if y is not None or sample_weight is not None:
                raise ValueError("a source has targets and weights, too: leave y, sample_weight.")
            x, y, sample_weight = self._source.samples(part, parts)
        self._options.check()
        given = chunked_samples.given(x, y, sample_weight)
        self._structure = Structure.of(given)
        return Cutting(self._structure.fields(given), [DRAWN], self._options.chunk_bytes)

    def _cut_once(self, part: int, parts: int) -> Cutting:
        """Returns how a part is cut: anew, unless that is known from the beginning."""
        known, self._first_cut = self._first_cut, None
        return known[1] if known and known[0] == (part, parts) else self._cut(part, parts)

    def _cut_alike(self, cluster: Cluster) -> Cutting:
        def cut() -> tuple[Cutting, dict[str, str]]:
            cutting = self._cut(cluster.rank, cluster.size)
            assert self._structure is not None
            return cutting, self._options.facts() | {"samples": self._structure.told()}

        cutting, facts = cluster.together(cut, "the samples")
        check_alike(facts)
        return cutting

    def _go_on(self, tasks: Tasks, cluster: Cluster, has_joined: bool = False) -> None:
        """Takes over the tasks of a round. A rank that has joined in vain ends; others go on."""
        working = set(tasks.working)
        if len(working) < cluster.size and not (has_joined and tasks.stores.keys() <= working):
            raise ValueError(
                f"there are {len(tasks.sizes)} chunks for {cluster.size} ranks: give smaller "
                f"ones (chunk_bytes is {self._options.chunk_bytes}), or more samples."
            )
        if cluster.rank == 0:
            self._options.warn_of_few(len(tasks.sizes), len(working))
        assert self._structure is not None
        self.iterations = ChunkedIterations(
            tasks,
            cluster,
            self._options.policies,
            self._structure.names,
            self._options.seed,
            self._elastic,
        )
        # Their threads know of the policies alone.
        self._close = weakref.finalize(self, self.iterations.scheduler.close)
        self._close.atexit = False

    def join(self, state: MemberState, save: Callable[[], Arrays]) -> Arrays | None:
        """See `MovingData`."""
        if self._elastic is None:
            raise ValueError(
                "a ChunkedDataset is part of a state in elastic jobs only: start the job with "
                "`trepak elastic`, and make the dataset after trepak.init()."
            )
        if hasattr(self, "iterations"):
            self._close()
        cluster = cluster_of_job()
        saved = self._elastic.join(cluster, HorovodHosts(state), save)
        if saved is not None:
            self._structure = Structure.read(self._elastic.structure)
            self._go_on(self._elastic.tasks, cluster, has_joined=True)
        return saved

    def begin(self) -> None:
        """See `MovingData`."""
        assert self._elastic is not None
        cluster = cluster_of_job()
        self._first_cut = (cluster.rank, cluster.size), self._cut_alike(cluster)
        assert self._structure is not None
        self._elastic.begin(self._structure.told())
        self._go_on(self._elastic.tasks, cluster)

    def commit_soon(self) -> None:
        """See `MovingData`."""
        assert self._elastic is not None
        self._elastic.rounds.wants_commit = True

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
        return self.iterations.steps(self.batch_size)

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
        if not hasattr(self, "iterations"):
            raise ValueError(
                "in an elastic job a ChunkedDataset is part of the state: make "
                "trepak.elastic.KerasState(model, data=dataset, epoch=0), and call fit in a "
                "function that trepak.elastic.run decorates."
            )
        self._is_fitted = True
        try:
            with (
                self.iterations.short_epochs(),
                fitting(self.iterations, self.batch_size, model, arguments),
            ):
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
        assert self._structure is not None
        signature, options = self._structure.signature(), tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        options.autotune.enabled = False  # else TensorFlow 2.21 holds up who ends an old iterator
        made = tf.data.Dataset.from_generator(self._batches, output_signature=signature)
        return made.with_options(options)

    def _batches(self) -> Iterator[Any]:
        batches, structure = self.iterations.batches, self._structure
        assert structure is not None
        if not batches.steps_left:  # Keras builds a model from a batch
            yield structure.packed(batches.first(self.batch_size))
        while batches.steps_left:
            yield structure.packed(batches.take())

    @property
    def batch_size(self) -> int:
        """Samples of a step, divided by the number of ranks."""
        return self._options.batch_size

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
