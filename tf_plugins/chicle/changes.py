"""Tells the user who has joined, left or died between two rounds of an elastic job."""

from __future__ import annotations

from collections.abc import Callable

from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.elastic_tasks import Joined
from trepak.tf_plugins.chicle.moving import Tasks


class Changes:
    """Who was there in the last round."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begins before the first round.

        Args:
            say: shows a line; asked on rank 0.
        """
        self._say = say
        self._hosts: dict[int, str] = {}  # by task

    def tell(self, joined: Joined, reached: int, tasks: Tasks, cluster: Cluster, host: str) -> None:
        """Shows a line for each change; a collective call.

        Args:
            joined: what the ranks go on with.
            reached: the iteration that was under way when the last round ended.
            tasks: of now.
            cluster: the ranks of now.
            host: this rank's.
        """
        before, hosts = self._hosts, cluster.gather(host, "the hosts")
        self._hosts = {task: hosts[rank] for task, rank in tasks.ranks.items()}
        if cluster.rank != 0 or not before:
            return
        gone = ", ".join(before[task] for task in sorted(set(before) - set(self._hosts)))
        if joined.lost:
            self._say(self._loss(joined, reached, gone or "a rank", cluster.size))
        elif gone:
            self._say(f"iteration {joined.version}: {gone} has left; {_going(cluster.size)} on.")
        for task in sorted(set(self._hosts) - set(before)):
            count = len(tasks.ledger.chunks_of(task))
            self._say(
                f"iteration {joined.version}: {self._hosts[task]} has joined as rank "
                f"{tasks.ranks[task]} of {cluster.size}, and has {count} chunks of the others now."
            )

    def _loss(self, joined: Joined, reached: int, gone: str, ranks: int) -> str:
        read = len(joined.lost) - joined.copied
        counts = [(read, "read again"), (joined.copied, "taken from copies")]
        how = " and ".join(f"{count} chunks were {what}" for count, what in counts if count)
        anew = f", {len(joined.begun_anew)} without their state" if joined.begun_anew else ""
        return (
            f"{gone} was lost in iteration {reached}: {_going(ranks)} on from iteration "
            f"{joined.version}; {how}{anew}."
        )


def _going(ranks: int) -> str:
    return "1 rank goes" if ranks == 1 else f"{ranks} ranks go"
