"""The iterations of ranks that train one model with batches from chunks (Chicle, section 3).

An iteration is the steps between two averages, or between more of them where these are short:
what is done between iterations takes milliseconds. Batches are drawn within it; between two, chunks
move as policies have decided.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle import reporting
from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.elastic_chunks import ElasticChunks
from trepak.tf_plugins.chicle.ledger import Move
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.scheduling import Scheduler
from trepak.tf_plugins.chicle.task_batches import TaskBatches
from trepak.tf_plugins.chicle.trainer import IterationMetrics, TaskMetrics

SECONDS = 0.5  # of an iteration, about, where averages come sooner
_MOST_AVERAGES = 64


class ChunkedIterations:
    """What ranks do with their chunks, one task on each, while they train.

    Attributes:
        tasks: this rank's, with its chunks, and who has which chunk.
        cluster: the ranks.
        scheduler: tells the policies, and moves chunks.
        batches: this rank's.
        last: what was done in the last iteration; None before the first one.
        iterations: how many have ended.
        averages: after how many averages the present one ends.
        moved: chunks that have changed hands, of all ranks.
        stops: whether this rank wants to stop; after `end`, whether any does.
    """

    def __init__(
        self,
        tasks: Tasks,
        cluster: Cluster,
        policies: Sequence[Policy],
        fields: Sequence[str],
        seed: int,
        elastic: ElasticChunks | None = None,
    ) -> None:
        """Begins between two iterations.

        Args:
            tasks: with chunks that have the state `DRAWN`.
            cluster: the ranks.
            policies: what decides between iterations; rank 0's are asked.
            fields: what is drawn of each sample.
            seed: decides the order of samples, with the task's number.
            elastic: keeps chunks whole while ranks come and go.
        """
        self.tasks, self.cluster = tasks, cluster
        ((self._task, store),) = tasks.stores.items()
        self._elastic = elastic
        self._told: list[Any] = []
        self.iterations = 0 if elastic is None else elastic.version
        rng = np.random.default_rng([seed, self._task, self.iterations])
        self.batches = TaskBatches(store, fields, rng)
        self.last: IterationMetrics | None = None
        self.moved, self.averages, self.stops = 0, 1, False
        self._began = time.perf_counter()
        self.scheduler = Scheduler(tasks, cluster, policies)  # last, as it starts threads

    @property
    def is_elastic(self) -> bool:
        """Whether ranks may come and go."""
        return self._elastic is not None

    def steps(self, batch_size: int) -> int:
        """Returns the steps of a pass over all samples; the same on all ranks.

        Args:
            batch_size: samples of a step, divided by the number of tasks.
        """
        sizes, ledger, working = self.tasks.sizes, self.tasks.ledger, self.tasks.working
        fewest = min(sum(sizes[c] for c in ledger.chunks_of(task)) for task in working)
        return min(-(-sum(sizes) // (batch_size * len(working))), fewest)

    def begin_pass(self, batch_size: int) -> None:
        """Begins a pass over all samples, or what is left of one that was interrupted.

        A collective call in an elastic job, for its first pass.

        Args:
            batch_size: samples of a step, divided by the number of tasks.
        """
        resumes = self._elastic is not None and self._elastic.is_amid_pass
        steps = self.steps(batch_size)
        if resumes:
            left = sum(self.cluster.gather(self.batches.count_undrawn(), "samples left"))
            steps = -(-left // (batch_size * len(self.tasks.working)))
        self._begin(steps, resumes)

    @contextlib.contextmanager
    def short_epochs(self) -> Iterator[None]:
        """Has Keras not warn of an epoch that is what an interrupted pass has left."""
        with warnings.catch_warnings():
            if self._elastic is not None and self._elastic.is_amid_pass:
                warnings.filterwarnings("ignore", message="Your input ran out of data")
            yield

    def begin(self) -> None:
        """Begins an iteration of the pass under way."""
        self._begin(0, False)

    def _begin(self, new_pass_of: int, resumes: bool) -> None:
        if self._elastic is not None:
            self._elastic.rounds.set_out(self.iterations)
        self.batches.begin_iteration(new_pass_of, resumes)
        self._began = time.perf_counter()
        self.scheduler.tell(self.last)

    def end(self, samples: int, seconds: float, averages: int, next_pass_of: int) -> None:
        """Ends an iteration, and moves what policies have decided; a collective call.

        Args:
            samples: of this rank.
            seconds: that it has computed for them.
            averages: that there were in it.
            next_pass_of: how many steps a pass has that begins next.

        Raises:
            LedgerError: a chunk has no owner, or several.
            ValueError: a policy has failed, on rank 0 with its error; or has decided a `Share`.
            HorovodInternalError: another rank has died or left.
        """
        store = self.batches.store
        self.batches.end_iteration()
        done = TaskMetrics(self._task, len(store.ids), store.samples, samples, seconds)
        is_new = self.batches.steps_left == 0
        left = store.samples if is_new else self.batches.left

        def tell() -> tuple[None, dict[str, Any]]:
            report = reporting.report([done], self.scheduler)
            told = None if self._elastic is None else self._elastic.rounds.tell()
            each = (time.perf_counter() - self._began) / averages
            wanted = min(max(1, round(SECONDS / each)), _MOST_AVERAGES)
            about = {"left": left, "told": told, "averages": wanted, "stops": self.stops}
            return None, {**report, **about}

        _, facts = self.cluster.together(tell, f"iteration {self.iterations}")
        tasks, plan = reporting.read(facts)
        self.last = IterationMetrics(self.iterations, tasks)
        self._told, self.averages = [fact["told"] for fact in facts], facts[0]["averages"]
        self.stops = any(fact["stops"] for fact in facts)
        self.iterations += 1
        if plan["shares"]:
            raise ValueError(
                "a policy has decided a Share, and batches follow from the samples that ranks "
                "have: leave out StragglerMitigation."
            )
        steps = next_pass_of if is_new else self.batches.steps_left
        can_give = {one["task"]: fact["left"] - steps for fact in facts for one in fact["tasks"]}
        moves = affordable(
            [Move(*move) for move in plan["moves"]], can_give, self.tasks.sizes, plan["leaving"]
        )
        self.moved += len(moves)
        self.scheduler.carry_out({**plan, "moves": moves})
        self.tasks.take_changes()

    def between(self) -> None:
        """Commits, and lets ranks come and go, where the job is elastic; a collective call.

        Raises:
            HostsUpdatedInterrupt: there is to be a rendezvous.
            HorovodInternalError: another rank has died or left.
        """
        if self._elastic is not None and self._told:
            told, self._told = self._told, []
            self._elastic.between(told, self.iterations, self.batches.steps_left > 0)


def affordable(
    moves: Sequence[Move],
    can_give: dict[int, int],
    sizes: Sequence[int],
    leaving: Sequence[int] = (),
) -> list[Move]:
    """Returns the moves that leave each task a sample for each step of the pass.

    So each sample comes once in a pass, and no batch is empty.

    Args:
        moves: that are planned.
        can_give: by task, how many samples it needs not keep.
        sizes: by chunk, how many samples it has.
        leaving: tasks that need none any more.
    """
    kept = []
    stay: set[int] = set()
    rest = dict(can_give)
    for move in moves:
        after = rest.get(move.source, 0) - sizes[move.chunk]
        if move.chunk in stay or (after < 0 and move.source not in leaving):
            stay.add(move.chunk)
            continue
        rest[move.source] = after
        kept.append(move)
    return kept
