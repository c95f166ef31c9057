"""What the ranks have agreed to reduce: the same variables, with gradients of the same kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.variables import check_agreement, key


class ReducedSites:
    """One reducer's sites, each reduced together, and the stream that tells it from others.

    Not thread-safe.
    """

    streams = 0  # made by this process; names reducers' collectives in elastic jobs
    _agreed_streams = 0  # the next number that all ranks can agree on, in other jobs

    def __init__(self, process_set: basics.ProcessSet) -> None:
        """Makes one for a reducer over a process set."""
        self._process_set = process_set
        self.stream = ReducedSites.streams
        ReducedSites.streams += 1
        self._agreed = False  # on the stream
        self._sites: dict[tuple[Any, ...], int] = {}  # what was reduced → when it first was

    def agree(self, variables: Sequence[Any], kinds: Sequence[str]) -> int:
        """Checks once that all ranks reduce these variables' gradients, of these kinds.

        A collective call, the first time.

        Returns:
            The site's number.

        Raises:
            ValueError: they don't; see `check_agreement`.
        """
        site = tuple(zip(map(key, variables), kinds, strict=True))
        if site in self._sites:
            return self._sites[site]
        # Elastic ranks join later, when this graph is long traced: their state's sync() checks.
        # A TensorFlow 1 style graph has no eager world around it to check in.
        possible = not basics.is_elastic() and exchange.is_possible()
        if possible and self._process_set.included():
            number = check_agreement(
                variables,
                "the variables to train",
                self._process_set,
                number=ReducedSites._agreed_streams,
                kinds=kinds,
            )
            ReducedSites._agreed_streams = number + 1
            if not self._agreed:
                self.stream, self._agreed = number, True
        return self._sites.setdefault(site, len(self._sites))

    def meet(self) -> None:
        """Takes rank 0's stream in an elastic job, where ranks agree before steps are traced.

        A collective call: ranks may have made different numbers of reducers. Of those without a
        state they must have made as many afterwards.
        """
        if basics.is_elastic() and self._process_set.included():
            self.stream = exchange.gather(self.stream, "a stream", self._process_set)[0]
            ReducedSites.streams = max(ReducedSites.streams, self.stream + 1)

    def agreement(self) -> list[int]:
        """Returns the stream that was agreed on, -1 for none, and on how many sites."""
        return [self.stream if self._agreed else -1, len(self._sites)]

    def forget(self) -> None:
        """Has the next reduction agree anew."""
        self._agreed = False
        self._sites.clear()
