"""The values that embedding tables begin with: the same on any number of ranks.

A table is drawn in blocks of rows, each with a seed of its own, so that no process needs memory for
a whole table, and each rank keeps the rows of a block that are its own.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from trepak.horovod_ext import exchange

_BLOCK_NUMBERS = 1 << 20

# Of these a number does not depend on those in other rows.
_BY_ROWS = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.VarianceScaling,
)


def resolved(initializer: Any) -> Any:
    """Returns a Keras initializer with the same seed on all ranks; a collective call.

    Args:
        initializer: a Keras initializer, or what names one. If it has no seed, rank 0 draws one,
            for which `keras.utils.set_random_seed` counts.
    """
    found = keras.initializers.get(initializer)
    config = found.get_config() if isinstance(found, keras.initializers.Initializer) else {}
    seed = config.get("seed")
    mine = seed if isinstance(seed, int) else random.randint(1, 10**9)
    agreed = exchange.gather(mine, "seeds of embedding tables")[0]
    return type(found).from_config(config | {"seed": agreed}) if "seed" in config else found


def blocks(initializer: Any, name: str, rows: int, columns: int) -> Iterator[tuple[int, Any]]:
    """Yields a table's values: the first row of each block, and the block's rows, float32.

    Args:
        initializer: what `resolved` has returned. One whose rows depend on each other draws the
            whole table at once.
        name: the table's; tables of other names begin with other values.
        rows: of the table.
        columns: of the table.
    """
    drawn = _independent_of_rows(initializer, rows, columns)
    is_random = isinstance(drawn, _BY_ROWS)
    seed = drawn.get_config()["seed"] if is_random else 0
    is_constant = isinstance(drawn, keras.initializers.Zeros | keras.initializers.Ones)
    size = max(1, _BLOCK_NUMBERS // columns) if is_random or is_constant else rows
    for first in range(0, rows, size):
        if is_random:
            config = drawn.get_config() | {"seed": _seed_of(seed, name, first)}
            drawn = type(drawn).from_config(config)
        yield first, np.asarray(drawn((min(size, rows - first), columns), dtype="float32"))


def _seed_of(seed: int, name: str, first_row: int) -> int:
    digest = hashlib.sha256(f"{seed} {name} {first_row}".encode()).digest()
    return int.from_bytes(digest[:4], "little") & 0x7FFFFFFF


def _independent_of_rows(initializer: Any, rows: int, columns: int) -> Any:
    """Returns an initializer that draws a block as it would draw the table.

    VarianceScaling looks at the number of rows, unless its mode is fan_out.
    """
    if not isinstance(initializer, keras.initializers.VarianceScaling):
        return initializer
    config = initializer.get_config()
    mode, scale = initializer.mode, initializer.scale
    fan = {"fan_in": rows, "fan_out": columns, "fan_avg": (rows + columns) / 2}[mode]
    return keras.initializers.VarianceScaling(
        scale=scale * columns / max(1.0, fan),
        mode="fan_out",
        distribution=initializer.distribution,
        seed=config["seed"],
    )
