"""What a rank keeps of the state that chunks had in commits: of its own, and of the rank before it.

Of a chunk that is lost with its rank the next one has the state. It has that of its own chunks,
too, since one of them may since have gone to a rank that died.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from trepak.tf_plugins.chicle.chunk import Chunk
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster

_IDS = "ids"


class KeptStates:
    """By version, the states of chunks, wherever these are."""

    def __init__(self) -> None:
        """Begins without any."""
        self._by_version: dict[int, Arrays] = {}

    def told(self) -> dict[str, list[int]]:
        """Returns by version the ids of the chunks."""
        return {str(version): kept[_IDS].tolist() for version, kept in self._by_version.items()}

    def keep(self, version: int, store: ChunkStore, cluster: Cluster) -> None:
        """Keeps the states of now; a collective call.

        Raises:
            HorovodInternalError: another rank has died or left.
        """
        mine: Arrays = {
            _key(chunk.id, name): np.array(chunk.view(name))
            for chunk in store.chunks()
            for name, field in chunk.fields.items()
            if field.is_state
        }
        mine[_IDS] = np.asarray(store.ids, int)
        theirs = cluster.pass_on(mine, "the chunks' state")
        both = {_IDS: np.union1d(mine[_IDS], theirs[_IDS])}
        self._by_version[version] = {**mine, **theirs, **both}

    def forget_but(self, versions: Iterable[int | None]) -> None:
        """Forgets all but some versions."""
        for old in set(self._by_version) - set(versions):
            del self._by_version[old]

    def of(self, chunks: Sequence[int], version: int) -> Arrays:
        """Returns the states of some chunks, as far as they are here; see `write` and `known`."""
        kept = self._by_version.get(version, {_IDS: np.zeros(0, int)})
        ids = set(kept[_IDS].tolist()) & set(chunks)
        states = {k: v for k, v in kept.items() if k != _IDS and _chunk_of(k) in ids}
        return states | {_key(chunk, ""): np.zeros(0) for chunk in ids}


def known(states: Arrays) -> set[int]:
    """Returns the ids of the chunks that states are of, those without fields of state too."""
    return {_chunk_of(key) for key in states}


def write(states: Arrays, chunk: Chunk) -> None:
    """Gives a chunk its state, if it is among these."""
    for name, field in chunk.fields.items():
        if field.is_state and _key(chunk.id, name) in states:
            chunk.view(name, writable=True)[...] = states[_key(chunk.id, name)]


def _key(chunk: int, field: str) -> str:
    return f"{chunk} {field}"


def _chunk_of(key: str) -> int:
    return int(key.split(" ", 1)[0])
