"""The chunks of a Keras training over all changes of a job, and what is saved with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.cluster import Arrays, Cluster
from trepak.tf_plugins.chicle.elastic_rounds import ElasticRounds
from trepak.tf_plugins.chicle.elastic_tasks import Joined
from trepak.tf_plugins.chicle.members import ResourceManager
from trepak.tf_plugins.chicle.moving import Tasks

_IN_PASS, _STRUCTURE = "dataset: amid a pass", "dataset: structure"


class ElasticChunks:
    """What a ChunkedDataset has of an elastic job.

    Attributes:
        rounds: of the job.
        is_amid_pass: whether the commit that ranks go on from was amid a pass over the samples.
        structure: of the samples, as their first readers have described it.
        version: the iteration that ranks go on from.
    """

    def __init__(self, rounds: ElasticRounds) -> None:
        """Makes it; nothing is read yet."""
        self.rounds = rounds
        self.is_amid_pass = False
        self.structure, self.version = "", 0

    @property
    def tasks(self) -> Tasks:
        """This rank's task, since the last `join` or `begin`."""
        return self.rounds.tasks

    def join(
        self, cluster: Cluster, resources: ResourceManager, save: Callable[[], Arrays]
    ) -> Arrays | None:
        """Begins a round; a collective call of all ranks. See `ElasticRounds.join`.

        Args:
            cluster: the ranks.
            resources: what decides which hosts there are.
            save: returns what the model has now.

        Returns:
            What the model is to have; None: nobody has begun, and `begin` follows.
        """

        def all_saved() -> Arrays:
            about = {
                _IN_PASS: np.asarray(self.is_amid_pass),
                _STRUCTURE: np.asarray(self.structure),
            }
            return {**save(), **about}

        joined = self.rounds.join(cluster, resources, all_saved)
        return None if joined is None else self._gone_on(joined)

    def begin(self, structure: str) -> None:
        """Reads and places all chunks; a collective call.

        Args:
            structure: of the samples; the same on all ranks.
        """
        self.structure = structure
        self._gone_on(self.rounds.begin())

    def _gone_on(self, joined: Joined) -> Arrays:
        saved = dict(joined.saved)
        self.is_amid_pass = bool(saved.pop(_IN_PASS))
        self.structure, self.version = str(saved.pop(_STRUCTURE)), joined.version
        return saved

    def between(self, told: Sequence[dict[str, Any]], iteration: int, is_amid_pass: bool) -> None:
        """Commits if it is time, and lets ranks come and go; see `ElasticRounds.between`.

        Args:
            told: by rank.
            iteration: how many have ended.
            is_amid_pass: whether the pass over all samples goes on.
        """
        self.is_amid_pass = is_amid_pass
        self.rounds.arrive(iteration)
        self.rounds.between(told)
