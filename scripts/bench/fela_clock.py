"""Virtual time: what happens when, and how long bytes take on links that share."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

RATE = 10e9 / 8  # bytes a second of a link, each way
LATENCY = 1e-4  # seconds of a message of a few hundred bytes, one way

_CLOSE = 1e-12  # of a second: what is left then is rounding


class Clock:
    """Does what is due, in the order of time; of one moment, in the order in which it was said."""

    def __init__(self) -> None:
        """Begins at second 0."""
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._said = 0

    def at(self, second: float, do: Callable[[], None]) -> None:
        """Has something done at a second that is not over."""
        self._said += 1
        heapq.heappush(self._due, (max(second, self.now), self._said, do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Has something done so much later."""
        self.at(self.now + seconds, do)

    def run(self) -> None:
        """Goes on until nothing is due."""
        while self._due:
            self.now, _, do = heapq.heappop(self._due)
            do()

    def stop(self) -> None:
        """Forgets what is due."""
        self._due.clear()


@dataclass(eq=False)
class _Flow:
    links: tuple[int, ...]
    left: float
    done: Callable[[], None]
    rate: float = 0.0


class Links:
    """A link each way between each worker and one switch that is never the bottleneck.

    Flows get max-min fair rates: a flow is as fast as its slowest link lets it, and what it leaves
    of the others goes to the rest. That is what TCP's flows come to, and chunks of tokens share
    links with gradients in this way. A ring allreduce is one flow over both links of all of its
    members, whose steps are taken together.
    """

    def __init__(self, clock: Clock, workers: int, rate: float = RATE) -> None:
        """Makes idle links."""
        self._clock, self._workers, self._rate = clock, workers, rate
        self._flows: list[_Flow] = []
        self._since = 0.0
        self._version = 0
        self._settling = False
        self.sent = 0.0  # bytes, over all links out

    def send(self, source: int, target: int, count: float, done: Callable[[], None]) -> None:
        """Sends bytes to another worker, and says when they are there."""
        self.sent += count
        self._begin((source, self._workers + target), count, done)

    def reduce(self, members: Iterable[int], count: float, done: Callable[[], None]) -> None:
        """Sums bytes of these workers by a ring allreduce, and says when all have the sum."""
        out = list(members)
        self.sent += len(out) * ring_bytes(count, len(out))
        links = (*out, *(self._workers + one for one in out))
        latency = 2 * (len(out) - 1) * LATENCY
        self._clock.after(latency, partial(self._begin, links, ring_bytes(count, len(out)), done))

    def _begin(self, links: tuple[int, ...], count: float, done: Callable[[], None]) -> None:
        if count <= 0:
            self._clock.after(0.0, done)
            return
        self._advance()
        self._flows.append(_Flow(links, count, done))
        self._settle_soon()

    def _settle_soon(self) -> None:
        if not self._settling:  # once for all that begins or ends in a moment
            self._settling = True
            self._clock.after(0.0, self._settle)

    def _advance(self) -> None:
        seconds = self._clock.now - self._since
        self._since = self._clock.now
        if seconds > 0:
            for flow in self._flows:
                flow.left -= flow.rate * seconds

    def _settle(self) -> None:
        self._settling = False
        self._advance()
        self._share()
        self._version += 1
        version = self._version
        first = min((flow.left / flow.rate for flow in self._flows), default=math.inf)
        if first < math.inf:
            self._clock.after(max(0.0, first), partial(self._end, version))

    def _end(self, version: int) -> None:
        if version != self._version:
            return  # rates have changed since
        self._advance()
        over = [flow for flow in self._flows if flow.left <= flow.rate * _CLOSE + 1e-6]
        self._flows = [flow for flow in self._flows if flow not in over]
        for flow in over:
            flow.done()
        self._settle_soon()

    def _share(self) -> None:
        """Fills all links evenly; flows on a link that is full keep what they have."""
        free = dict.fromkeys((link for flow in self._flows for link in flow.links), self._rate)
        users = dict.fromkeys(free, 0)
        for flow in self._flows:
            for link in flow.links:
                users[link] += 1
        open_flows = list(self._flows)
        while open_flows:
            full = min((link for link in users if users[link]), key=lambda at: free[at] / users[at])
            share = free[full] / users[full]
            rest = []
            for flow in open_flows:
                if full not in flow.links:
                    rest.append(flow)
                    continue
                flow.rate = share
                for link in flow.links:
                    free[link] -= share
                    users[link] -= 1
            open_flows = rest


def ring_bytes(count: float, members: int) -> float:
    """Returns the bytes that each member sends, and receives, in a ring allreduce of `count`."""
    return 2 * (members - 1) / members * count
