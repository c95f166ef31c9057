"""The trainings of an elastic job, one after the other, while ranks join and die.

A process that joins late runs its script from the beginning. Of each training that is over it takes
the result from the others, without training, until it comes to the one that the others are at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trepak.tf_plugins.chicle.chunk import Chunk
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster, packed, unpacked
from trepak.tf_plugins.chicle.elastic_training import After, ElasticTraining
from trepak.tf_plugins.chicle.training import Training


class JobTrainings:
    """What a rank has of the job's trainings: the results of those that are over.

    A result is what the trainer saves, so it is as large as the model, and holds no samples.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begins with none.

        Args:
            say: shows a line; asked on rank 0.
        """
        self._say = say
        self._begun = 0
        self._over = 0  # so many are over on some rank, as far as this one knows
        self._results: dict[int, bytes] = {}  # by number; those that failed have none

    def begin(self) -> int:
        """Returns the number of a training that this rank begins: how many it began before."""
        self._begun += 1
        return self._begun - 1

    def round(
        self, number: int, training: ElasticTraining, cluster: Cluster, after: After | None = None
    ) -> Training:
        """Trains as `ElasticTraining.round` does, or takes what came of the training elsewhere.

        A collective call of all ranks, which may be at different trainings: those that are ahead
        hand on the results that the others lack, and wait until these have come to their training.
        A rank that has the result takes it without the others.

        Args:
            number: of the training.
            training: this rank's.
            cluster: the ranks.
            after: see `ElasticTraining.round`.

        Returns:
            The training, which has ended; where it was over, without tasks.

        Raises:
            ValueError: it ended with an error on the others, or was another one; or see
                `ElasticTraining.round`, whose other errors are raised, too.
        """
        if self._is_over(number, cluster):
            return self._taken(number, training)
        trained = training.round(cluster, after)
        self._results[number] = packed(training.result(trained))
        return trained

    def _is_over(self, number: int, cluster: Cluster) -> bool:
        """Returns once all ranks are at this training, or once this rank knows that it is over."""
        while number >= self._over:
            numbers = cluster.gather(number, "which training this is")
            if len(set(numbers)) == 1:
                return False
            self._hand_on(numbers, cluster)
        return True

    def _hand_on(self, numbers: Sequence[int], cluster: Cluster) -> None:
        """Gives the ranks that are behind the results that they lack; a collective call."""
        furthest = max(numbers)
        giver = numbers.index(furthest)
        mine: Arrays = {}
        if cluster.rank == giver:
            self._tell(numbers)
            lacked = [one for one in self._results if one >= min(numbers)]
            mine = {str(one): np.frombuffer(self._results[one], np.uint8) for one in lacked}
        results = cluster.gather_arrays(mine, "the results of trainings that are over")[giver]
        self._results |= {int(name): data.tobytes() for name, data in results.items()}
        self._over = furthest
        # What a failed move has brought is of a training that is over: it would be taken for the
        # next one's.
        for arrived in cluster.take_arrived():
            Chunk(arrived.chunk)  # its end drops it

    def _tell(self, numbers: Sequence[int]) -> None:
        furthest = max(numbers)
        for rank, number in enumerate(numbers):
            if number < furthest:
                self._say(
                    f"rank {rank} comes to training {number + 1} of the script, and the others are "
                    f"at training {furthest + 1}: it takes the results of those before."
                )

    def _taken(self, number: int, training: ElasticTraining) -> Training:
        if number not in self._results:
            raise ValueError(
                f"training {number + 1} of the script ended with an error on the ranks that were "
                f"there: this one has joined them at training {self._over + 1}, and has no result."
            )
        return training.take(unpacked(self._results[number]))
