"""The tasks of an elastic job: their chunks stay whole while ranks come, leave and die.

After each change the ranks call the roll (`roll_call.py`), and go on from the latest state that all
of them have. Chunks that were lost with a rank are made again from the source. Their state is what
the next rank has kept of it since the last commit, or the one that has given them away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trepak.tf_plugins.chicle.chunk import Chunk
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.kept_states import KeptStates, known, write
from trepak.tf_plugins.chicle.ledger import Ledger, LedgerError
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Situation, TasksJoined
from trepak.tf_plugins.chicle.replicas import REPLICA, Replicas
from trepak.tf_plugins.chicle.roll_call import Present, Roll, call_roll
from trepak.tf_plugins.chicle.supply import Supply

_SIZES, _PARTS, _SEED = "chunk sizes", "chunks of parts", "seed"


class Joined(NamedTuple):
    """What the ranks go on with.

    Attributes:
        version: the iteration that they go on from.
        saved: what was saved with it.
        lost: the ids of chunks that nobody had.
        copied: of these, how many were taken from copies; the others were read again.
        begun_anew: of these, those whose state of the last commit was lost, too.
        is_unsound: whether the trainer is to `recover`, and a commit to follow.
    """

    version: int
    saved: Arrays
    lost: list[int]
    copied: int
    begun_anew: list[int]
    is_unsound: bool


class ElasticTasks:
    """This rank's task, over all changes of the job.

    Attributes:
        tasks: since the last `join`.
        number: this rank's own; None before the first `join`.
        at: the iteration after which the chunks have the state that they have now; None: amid one.
    """

    def __init__(
        self, supply: Supply, seed: int = 0, checked: bool = False, replicas: bool = False
    ) -> None:
        """Makes one without chunks.

        Args:
            supply: makes chunks.
            seed: who gets which chunk depends on it; rank 0's counts, as the training begins.
            checked: see `ChunkStore`.
            replicas: whether the next rank keeps a copy of each chunk; see `Replicas`.
        """
        self._replicas = Replicas(replicas)
        self._supply, self._seed, self._checked = supply, seed, checked
        self._store = ChunkStore(checked)
        self.tasks: Tasks | None = None
        self.number: int | None = None
        self.at: int | None = None
        self._next_number = 0
        self._is_unsound = False
        self._committed: int | None = None
        # By version: what was saved, and the chunks' state on this rank and the one before it.
        self._saved: dict[int, Arrays] = {}
        self._kept = KeptStates()

    def join(
        self, cluster: Cluster, save: Callable[[], Arrays], is_leaving: bool = False
    ) -> Joined | None:
        """Calls the roll, makes the chunks whole, and commits; a collective call of all ranks.

        Args:
            cluster: the ranks that there are now.
            save: returns what belongs to the state of now; asked where that is what all go on from.
            is_leaving: whether this rank was given notice.

        Returns:
            What all ranks go on with; None: nobody has begun, and all are to call `begin`.

        Raises:
            LedgerError: a chunk has several owners, or ranks have no state in common.
            ValueError: the source can't be read, or does not have the same samples any more.
            HorovodInternalError: another rank has died or left; call it again with those there are.
        """
        for arrived in cluster.take_arrived():
            self._take_in(Chunk(arrived.chunk), arrived.task)
        versions = {v for v in (self._committed, self.at) if v is not None}
        mine = Present(
            self.number,
            self._next_number,
            self._store.ids if versions else [],
            sorted(versions),
            self._kept.told(),
            sorted(self._replicas.held),
            is_leaving,
            self._is_unsound,
        )
        told = cluster.gather([dataclasses.asdict(mine), self._supply.chunks], "the roll")
        everyone = [Present(**present) for present, _ in told]
        roll = call_roll(everyone, max(chunks for _, chunks in told))
        if roll.version is None:
            return None
        saved = self._shared(roll, cluster, save)
        self._go_back(roll.version, saved)
        self.number = next(task for task, rank in roll.ranks.items() if rank == cluster.rank)
        self._next_number = roll.next_task
        lost, anew = self._made_whole(roll, cluster)
        is_unsound = bool(anew) or any(one.is_unsound for one in everyone)
        self._is_unsound = is_unsound
        self._committed = self.at = roll.version
        self._fill(roll, cluster)
        # What others had kept of the chunks' state went with those who left, or is of old places.
        self.commit(cluster, saved)
        self._is_unsound = is_unsound  # until what the trainer has then made of it is committed
        copied = len(set(roll.copies) & set(lost))
        return Joined(roll.version, saved, lost, copied, anew, is_unsound)

    def _fill(self, roll: Roll, cluster: Cluster) -> None:
        """Gives tasks without chunks their share, at random of every old one (section 4.5)."""
        assert self.tasks is not None
        tasks = self.tasks
        joined = (TasksJoined(tuple(task for task in roll.new if task not in tasks.working)),)
        everyone = tuple(tasks.ranks)
        ledger = Ledger.of(tasks.ledger.owners)
        situation = Situation(ledger, everyone, frozenset(), joined, None, tasks.sizes)
        # The same on all ranks, since all have the same ledger and draw the same numbers.
        policy = ElasticScaling([self._seed, roll.next_task, len(everyone)])
        tasks.move(policy.decide(situation), cluster)
        tasks.take_changes()

    def begin(self, cluster: Cluster, saved: Arrays) -> Joined:
        """Reads all chunks, gives them to tasks at random, and commits; a collective call.

        Args:
            cluster: the ranks.
            saved: what belongs to the state of the beginning; the same on all ranks.

        Raises:
            ValueError: the source can't be read.
            HorovodInternalError: another rank has died or left; call `join` again.
        """
        cutting, _ = cluster.together(
            lambda: (self._supply.part(cluster.rank, cluster.size), None), "how samples are cut"
        )
        told = cluster.gather([cutting.sizes, self._seed], "the parts' chunks")
        self._supply.sizes, self._seed = [sizes for sizes, _ in told], told[0][1]
        self.tasks = place(cutting, cluster.size, cluster, self._seed, self._checked)
        for rank in range(cluster.size):
            if rank not in self.tasks.ranks:
                self.tasks.add(rank, rank, rank == cluster.rank)
        self.number, self._next_number, self.at = cluster.rank, cluster.size, 0
        self._store = self.tasks.stores[self.number]
        self.commit(cluster, saved)
        return Joined(0, saved, [], 0, [], False)

    def commit(self, cluster: Cluster, saved: Arrays) -> None:
        """Makes the state of now what a failure leads back to; a collective call, between two.

        A rank may end it while others fail in it. The others have that state, too, as they have not
        gone on from it, so that the roll finds it on all.

        Args:
            cluster: the ranks.
            saved: what belongs to it.

        Raises:
            HorovodInternalError: another rank has died or left.
        """
        assert self.at is not None
        self._kept.keep(self.at, self._store, cluster)
        self._replicas.bring_up(self._store, cluster)
        before = self._committed
        self._saved[self.at] = saved
        cluster.gather(self.at, "the commit")
        self._store.commit()
        self._committed, self._is_unsound = self.at, False
        self._kept.forget_but([before, self.at])
        self._saved = {v: one for v, one in self._saved.items() if v in (before, self.at)}

    def _shared(self, roll: Roll, cluster: Cluster, save: Callable[[], Arrays]) -> Arrays:
        """Returns what was saved with a version, and learns how samples were cut."""
        mine: Arrays = {}
        if cluster.rank == roll.giver:
            assert roll.version is not None
            had = self._saved.get(roll.version)
            mine = dict(save() if had is None else had)
            mine[_SIZES] = np.asarray([size for part in self._supply.sizes for size in part])
            mine[_PARTS] = np.asarray([len(part) for part in self._supply.sizes])
            mine[_SEED] = np.asarray(self._seed)
        saved = dict(cluster.gather_arrays(mine, "the state")[roll.giver])
        sizes, parts, self._seed = saved.pop(_SIZES), saved.pop(_PARTS), int(saved.pop(_SEED))
        each = np.split(sizes, np.cumsum(parts)[:-1])
        self._supply.sizes = [[int(size) for size in part] for part in each]
        return saved

    def _go_back(self, version: int, saved: Arrays) -> None:
        """Gives this rank's chunks the state of a version; another roll may follow."""
        self._saved = {version: saved}
        self._kept.forget_but([version])
        if self.at == version:
            self._store.commit()
        elif self._committed == version:
            self._store.restore()
        else:  # it is new, and has had nothing that counts
            self._store = ChunkStore(self._checked)
            return
        self._committed = self.at = version

    def _made_whole(self, roll: Roll, cluster: Cluster) -> tuple[list[int], list[int]]:
        """Drops what another has, makes what nobody has, and checks that all ranks agree.

        Returns:
            The ids of chunks that were made, and of those of them whose state was lost.
        """
        assert self.number is not None and roll.version is not None
        for chunk in self._store.ids:
            if roll.owners[chunk] != self.number:
                self._store.take(chunk)
        ledger = Ledger.of(roll.owners)
        lost = ledger.unowned()
        states: Arrays = {}
        if lost:
            mine = self._kept.of(lost, roll.version)
            for theirs in cluster.gather_arrays(mine, "lost state"):
                states |= theirs
            readers = sorted(roll.ranks)
            for chunk, part in zip(lost, self._supply.parts_of(lost), strict=True):
                ledger.assign(chunk, roll.copies.get(chunk, readers[part % len(readers)]))
            cluster.together(lambda: self._read(ledger, lost, states), "lost chunks")
        sizes = [size for part in self._supply.sizes for size in part]
        self.tasks = Tasks({self.number: self._store}, ledger, roll.ranks, sizes)
        self.tasks.leaving = set(roll.leaving)
        digests = cluster.gather(ledger.digest(), "the ledger")
        if len(set(digests)) > 1:
            raise LedgerError(f"the ranks' ledgers differ after the roll: {digests}.")
        return lost, sorted(set(lost) - known(states))

    def _read(self, ledger: Ledger, lost: list[int], states: Arrays) -> tuple[None, None]:
        assert self.number is not None
        mine = [chunk for chunk in lost if chunk in set(ledger.chunks_of(self.number))]
        copies = [self._replicas.take(chunk) for chunk in mine if chunk in self._replicas.held]
        others = [chunk for chunk in mine if chunk not in {copy.id for copy in copies}]
        for chunk in [*copies, *self._supply.made(others)]:
            write(states, chunk)
            self._store.add(chunk)
        self._store.commit()
        return None, None

    def _take_in(self, chunk: Chunk, task: int) -> None:
        """Takes a chunk that has come in a move that failed; it may be here already."""
        if task == REPLICA:
            self._replicas.add(chunk)
        elif chunk.id not in self._store.ids:
            self._store.add(chunk)
