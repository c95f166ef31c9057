"""Look-ups of a table in two tiers, memory and a mapped file, by where its rows are placed."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trepak.layers import DistributedEmbedding  # before Keras: it keeps start-up noise away

# isort: split
import keras
import psutil
import tensorflow as tf

from trepak.models.click_features import feature_configs
from trepak.models.clicks import ClickStream, criteo_vocabularies
from trepak.scripts.bench import rank
from trepak.scripts.bench.sven_arithmetic import ALPHA
from trepak.scripts.bench.sven_case import FILE, HOT, MEMORY, PLACED_SCALE, RANDOM, Arm

_DIMENSION, _BATCH = 16, 1024
_WARM_UP, _SETTLED = 100, 5  # batches: that are counted, and that pass before time is taken
_CACHE = 8 << 20  # bytes of the file that the kernel may keep in memory
_GROUPS = Path("/sys/fs/cgroup/memory")


def measure(arm: Arm) -> dict[str, Any]:
    """Returns seconds of each batch's look-up, where its rows lay, and what the disk has read."""
    clicks = ClickStream(criteo_vocabularies(PLACED_SCALE))
    data = clicks.dataset((_WARM_UP + _SETTLED + arm.batches) * _BATCH, _BATCH)
    ids = [inputs["categorical"] for inputs, _ in data]
    rows = sum(clicks.vocabularies.values())
    fast = round(ALPHA * rows) * _DIMENSION * 4 if arm.placement in (RANDOM, HOT) else 0
    _look_up(_layer(ClickStream(criteo_vocabularies(1e-6))), _folded(ids[0]))  # starts all threads
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        is_tiered = arm.placement != MEMORY
        group = stack.enter_context(_Group()) if is_tiered else None
        layer = _layer(clicks, **({"folder": folder, "fast_bytes": fast} if is_tiered else {}))
        layer.build({name: (None,) for name in clicks.vocabularies})
        if fast:
            _place(layer, ids[:_WARM_UP], arm.placement)
        if group is not None:
            group.limit_cache(_CACHE)
        for batch in ids[_WARM_UP : _WARM_UP + _SETTLED]:
            _look_up(layer, batch)
        before = layer.tables.statistics()
        read = psutil.Process().io_counters().read_bytes
        seconds = [_look_up(layer, batch) for batch in ids[_WARM_UP + _SETTLED :]]
        read = psutil.Process().io_counters().read_bytes - read
        if arm.placement == FILE and read == 0:
            raise OSError(f"{folder} is read from no disk: have TMPDIR name a folder on one.")
        after = layer.tables.statistics()
        looked_up = after["rows_looked_up"] - before["rows_looked_up"]
        hits = (after["fast_rows"] - before["fast_rows"]) / looked_up
        del layer  # before its folder and its group go
    return {
        "placement": arm.placement,
        "seconds": seconds,
        "hit_share": {MEMORY: 1.0, FILE: 0.0}.get(arm.placement, hits),
        "rows": looked_up / arm.batches,
        "disk_bytes": read / arm.batches,
    }


def _layer(clicks: ClickStream, **where: Any) -> Any:
    configs = feature_configs(
        clicks.vocabularies, _DIMENSION, None, optimizer=keras.optimizers.SGD(1e-3)
    )
    for config in configs.values():
        config.table.initializer = "ones"
    return DistributedEmbedding(configs, **where)


def _folded(ids: Any) -> Any:
    return {name: values % 3 for name, values in ids.items()}


def _look_up(layer: Any, ids: Any) -> float:
    began = time.perf_counter()
    layer(ids)
    return time.perf_counter() - began


def _place(layer: Any, batches: Sequence[Any], placement: str) -> None:
    """Counts the accesses of training, and places rows by them, or at random."""
    tiers = layer.tables.tiers
    if placement == HOT:
        tiers.track("lfu")
        for batch in batches:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.concat(list(layer(batch).values()), axis=-1))
            tape.gradient(loss, layer.trainable_variables)
    tiers.place(seed=0 if placement == RANDOM else None)
    tiers.track("none")


class _Group:
    """A control group of memory with this process in it, while the block runs.

    Raises:
        OSError: there can be none here: it needs control groups of version 1, and root.
    """

    def __init__(self) -> None:
        self._folder = _GROUPS / f"trepak-{os.getpid()}"

    def __enter__(self) -> _Group:
        self._folder.mkdir()
        self._enter(self._folder)
        return self

    def limit_cache(self, size: int) -> None:
        """Leaves the kernel so many bytes for pages of files, beside what memory there is now."""
        os.sync()
        lines = (self._folder / "memory.stat").read_text().splitlines()
        own = int(dict(line.split() for line in lines)["rss"])
        (self._folder / "memory.limit_in_bytes").write_text(str(own + size))

    def __exit__(self, *about: object) -> None:
        self._enter(_GROUPS)
        self._folder.rmdir()

    def _enter(self, folder: Path) -> None:
        (folder / "cgroup.procs").write_text(str(os.getpid()))


if __name__ == "__main__":
    rank.main(measure)
