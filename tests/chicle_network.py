"""A network of threads: elastic trainings whose ranks join, get notice and die as a schedule says.

Each rank is a thread with an elastic training of its own. What they exchange goes through this
network, which lets a rank die amid any exchange: some of the others then have its result, and some
an error, as with real sockets.
"""

from __future__ import annotations

import ast
import functools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

from trepak.horovod_ext.chunk_mover import Arrived, Expected, Outgoing
from trepak.tf_plugins.chicle.chunk import Chunk
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster
from trepak.tf_plugins.chicle.elastic_training import ElasticTraining
from trepak.tf_plugins.chicle.job_trainings import JobTrainings
from trepak.tf_plugins.chicle.members import ResourceManager
from trepak.tf_plugins.chicle.training import Training

_SECONDS = 90.0  # that any wait may take


def _one_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.RLock()

    @functools.wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return function(*args, **kwargs)

    return locked


# np.load parses. Python 3.11 mixes up how deep threads are that do so at once, and raises
# SystemError (its issue 106905).
ast.parse = _one_at_a_time(ast.parse)


class Killed(BaseException):
    """This rank dies here."""


class Removed(Exception):
    """The rendezvous is without this rank, or all others have ended."""


@dataclass
class Meeting:
    """The ranks between two rendezvous, and what each has brought to each exchange."""

    members: list[Member]
    brought: dict[int, dict[int, Any]] = field(default_factory=dict)
    served: dict[int, list[int]] = field(default_factory=dict)  # ranks that get a broken result
    is_broken: bool = False


class Member(ResourceManager):
    """A rank: its host, what it was told, when it dies, and the trainings that it has ended."""

    def __init__(self, network: Network, host: str) -> None:
        self.network, self.host = network, host
        self.why: str | None = None
        self.exchanges_left: int | None = None  # until it dies
        self.is_gone = self.is_waiting = self.is_refused = False
        self.trained: list[Training] = []
        self.outcome: Any = None

    def notice(self) -> str | None:
        return self.why

    def withdraw(self, hosts: Sequence[str]) -> None:
        with self.network.changed:
            staying = {one.host for one in self.network.members if not one.why and not one.is_gone}
            if staying.intersection(hosts, self.network.hosts):
                self.network.hosts.discard(self.host)
                self.network.has_news = True
            else:
                self.is_refused = True

    def is_over(self) -> bool:
        return self.is_refused and not any(
            one.why is None and not one.is_gone for one in self.network.members
        )

    def has_changed(self) -> bool:
        return self.network.has_news

    def meet(self) -> None:
        pass  # the network has no news after the rendezvous

    def expected_hosts(self) -> dict[str, int]:
        return dict.fromkeys(self.network.hosts, 1)


class Network:
    """Brings ranks together, and breaks when one of them dies.

    Attributes:
        hosts: those of the next rendezvous.
        lines: that rank 0 has shown.
    """

    def __init__(self, seed: int, ranks: int) -> None:
        """Begins; the first rendezvous is of so many ranks."""
        self._ranks = ranks
        self.changed = threading.Condition()
        self.rng = np.random.default_rng(seed)
        self.hosts: set[str] = set()
        self.members: list[Member] = []
        self.has_news = self.is_over = False
        self.lines: list[str] = []
        self._meeting = Meeting([])
        self._threads: list[threading.Thread] = []

    def add(
        self, make: Callable[[Member], ElasticTraining], after: Any = None, trainings: int = 1
    ) -> Member:
        """Starts a rank on a new host, whose script has so many trainings."""
        with self.changed:
            member = Member(self, f"host{len(self.members)}")
            self.members.append(member)
            self.hosts.add(member.host)
            self.has_news = True
        thread = threading.Thread(
            target=self._run, args=(member, make, after, trainings), daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return member

    def remove(self, member: Member) -> None:
        """Leaves a host out of the next rendezvous, as a discovery script does."""
        with self.changed:
            self.hosts.discard(member.host)
            self.has_news = True

    def disturb(
        self, rng: np.random.Generator, kinds: Sequence[str], join: Callable[[], object]
    ) -> None:
        """Has one of these happen to a random rank: "join", "notice", "remove" or "kill"."""
        there = [m for m in self.members if not m.is_gone and m.exchanges_left is None]
        staying = [m for m in there if not m.why and m.host in self.hosts]
        what = rng.choice(kinds)
        if what == "join" and len(there) < 5:
            join()
        elif len(staying) > 2:
            one = staying[int(rng.integers(len(staying)))]
            if what == "notice":
                one.why = "SIGTERM"
            elif what == "remove":
                self.remove(one)
            else:
                one.exchanges_left = int(rng.integers(0, 30))

    def wait(self) -> list[Any]:
        """Returns what came of each rank, once all have ended."""
        for thread in self._threads:
            thread.join(_SECONDS)
            assert not thread.is_alive(), f"a rank hangs: {[m.outcome for m in self.members]}"
        return [member.outcome for member in self.members]

    def _run(
        self,
        member: Member,
        make: Callable[[Member], ElasticTraining],
        after: Any,
        trainings: int,
    ) -> None:
        job, cluster = JobTrainings(self.lines.append), None
        try:
            for _ in range(trainings):
                number, training = job.begin(), make(member)
                while len(member.trained) == number:
                    try:
                        cluster = cluster or self._rendezvous(member)
                        then = functools.partial(after, cluster) if after else None
                        member.trained.append(job.round(number, training, cluster, then))
                    except (HorovodInternalError, HostsUpdatedInterrupt):
                        cluster = None
            member.outcome = member.trained[-1]
        except Removed as removed:
            has_begun = training.rounds._tasks.tasks is not None
            stores = training.rounds.tasks.stores if has_begun else {}
            held = sum(len(store.ids) for store in stores.values())
            member.outcome = ("left", held, str(removed))
        except Killed:
            member.outcome = ("died",)
        except BaseException as error:
            member.outcome = ("failed", error)
        with self.changed:
            member.is_gone = True
            self.is_over |= not isinstance(member.outcome, tuple)
            self._meeting.is_broken |= member in self._meeting.members
            self.changed.notify_all()

    def _rendezvous(self, member: Member) -> Ranks:
        """Waits for all ranks that there are; those of before keep their order."""
        with self.changed:
            self._meeting.is_broken |= member in self._meeting.members
            member.is_waiting = True
            self.changed.notify_all()

            def is_settled() -> bool:
                there = [one for one in self.members if not one.is_gone]
                is_whole = len(self.members) >= self._ranks and all(o.is_waiting for o in there)
                return not member.is_waiting or self.is_over or is_whole

            assert self.changed.wait_for(is_settled, _SECONDS), "a rendezvous takes too long"
            if member.is_waiting and not self.is_over:  # the last one to come
                self._meet()
            if member.is_waiting or member not in self._meeting.members:
                raise Removed("the job is over" if member.is_waiting else "it was withdrawn")
            return Ranks(self, self._meeting, member)

    def _meet(self) -> None:
        there = [one for one in self.members if not one.is_gone]
        before = [one for one in self._meeting.members if one in there]
        joining = [one for one in there if one not in before]
        self._meeting = Meeting([one for one in [*before, *joining] if one.host in self.hosts])
        self.has_news = False
        for one in there:
            one.is_waiting = False
        self.changed.notify_all()


class Ranks(Cluster):
    """What a rank has of the network, from one rendezvous to the next."""

    def __init__(self, network: Network, meeting: Meeting, member: Member) -> None:
        self._network, self._meeting, self.member = network, meeting, member
        self.rank, self.size = meeting.members.index(member), len(meeting.members)
        self._number = 0
        self._arrived: list[Arrived] = []

    def _exchange(self, what: Any, breaks_fully: bool = False) -> list[Any]:
        """Returns what all ranks have brought, or fails as a collective does."""
        network, meeting, number = self._network, self._meeting, self._number
        self._number += 1
        with network.changed:
            dies = self.member.exchanges_left == 0
            if self.member.exchanges_left:
                self.member.exchanges_left -= 1
            meeting.brought.setdefault(number, {})[self.rank] = what
            if dies:  # having brought its part: some others get the result
                others = [rank for rank in range(self.size) if rank != self.rank]
                count = 0 if breaks_fully else int(network.rng.integers(0, self.size))
                meeting.served[number] = network.rng.permutation(others)[:count].tolist()
                meeting.is_broken = self.member.is_gone = True
                network.changed.notify_all()
                raise Killed
            network.changed.notify_all()

            def is_there() -> bool:
                return len(meeting.brought[number]) == self.size or meeting.is_broken

            assert network.changed.wait_for(is_there, _SECONDS), "an exchange takes too long"
            complete = len(meeting.brought[number]) == self.size
            served = meeting.served.get(number)
            if not complete or (served is not None and self.rank not in served):
                raise HorovodInternalError("a rank has died")
            return [meeting.brought[number][rank] for rank in range(self.size)]

    def wait_for_others(self) -> None:
        """Returns once all other ranks have brought their part of the next exchange."""
        brought, number = self._meeting.brought, self._number

        def are_there() -> bool:
            return len(brought.get(number, {})) == self.size - 1

        with self._network.changed:
            assert self._network.changed.wait_for(are_there, _SECONDS), "the others don't come"

    def gather(self, fact: Any, about: str) -> list[Any]:
        told = self._exchange([about, json.loads(json.dumps(fact))])
        assert {what for what, _ in told} == {about}, told
        return [fact for _, fact in told]

    def sum(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        everyone = self._exchange([np.array(array) for array in arrays])
        return [np.sum(some, axis=0) for some in zip(*everyone, strict=True)]

    def gather_arrays(self, arrays: Arrays, about: str) -> list[Arrays]:
        return self._exchange({name: np.array(array) for name, array in arrays.items()})

    def pass_on(self, arrays: Arrays, about: str) -> Arrays:
        return self.gather_arrays(arrays, about)[self.rank - 1]

    def move(self, outgoing: Sequence[Outgoing], expected: Sequence[Expected]) -> list[Arrived]:
        """Moves copies; where a rank dies meanwhile, what had come by then is kept."""
        brought = self._exchange([(one, _copy(one.chunk)) for one in outgoing], breaks_fully=True)
        wanted = {one.id for one in expected}
        mine = [
            Arrived(chunk.id, one.task, chunk)  # type: ignore[arg-type]
            for rank in brought
            for one, chunk in rank
            if one.rank == self.rank
        ]
        assert {one.id for one in mine} == wanted
        arrived = [Arrived(one.id, one.task, one.chunk.release()) for one in mine]
        try:
            self._exchange(None)
        except HorovodInternalError:
            self.member.network_arrived = arrived  # type: ignore[attr-defined]
            raise
        return arrived

    def take_arrived(self) -> list[Arrived]:
        arrived: list[Arrived] = getattr(self.member, "network_arrived", [])
        self.member.network_arrived = []  # type: ignore[attr-defined]
        return arrived


class _Copy(Chunk):
    """A chunk that can be handed over by its number."""

    def release(self) -> int:
        self._drop.detach()
        return self.number


def _copy(number: int) -> _Copy:
    """Returns a copy of a chunk that another one owns."""
    source = _Copy(number)
    source.release()
    return source.copy()  # type: ignore[return-value]
