"""Makes chunks of a source, when a training begins and when some were lost with a rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trepak.tf_plugins.chicle.chunk import Chunk
from trepak.tf_plugins.chicle.cutting import Cutting

Cut = Callable[[int, int], Cutting]


class Supply:
    """The chunks of all parts of a source: the same ones, whoever makes them.

    Attributes:
        sizes: by part, of each of its chunks, how many samples it has; empty before the beginning.
    """

    def __init__(self, cut: Cut) -> None:
        """Keeps how parts are cut.

        Args:
            cut: returns how a part's samples are cut: (part, parts) -> Cutting. For the same part
                it always cuts the same chunks.
        """
        self._cut = cut
        self.sizes: list[list[int]] = []

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return sum(map(len, self.sizes))

    def part(self, part: int, parts: int) -> Cutting:
        """Returns how a part is cut."""
        return self._cut(part, parts)

    def parts_of(self, chunks: Sequence[int]) -> np.ndarray:
        """Returns the parts that chunks are of, by their ids."""
        ends = np.cumsum([len(some) for some in self.sizes])
        return np.searchsorted(ends, chunks, side="right")

    def made(self, chunks: Sequence[int]) -> Iterator[Chunk]:
        """Yields chunks of some ids; reads each part that one of them is of.

        Raises:
            ValueError: the source does not have the samples of before any more.
        """
        firsts = list(itertools.accumulate(map(len, self.sizes), initial=0))
        for part in np.unique(self.parts_of(chunks)):
            cutting = self.part(int(part), len(self.sizes))
            if cutting.sizes != self.sizes[part]:
                raise ValueError(
                    f"part {part} of the samples has changed since the training began: it makes "
                    f"chunks of {_listed(cutting.sizes)} samples, and had "
                    f"{_listed(self.sizes[part])}."
                )
            yield from cutting.chunks(firsts[part], frozenset(map(int, chunks)))


def _listed(sizes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sizes[:5])) or "no"
    return shown if len(sizes) <= 5 else f"{shown}, … ({len(sizes)} chunks, {sum(sizes)} samples)"
