"""Criteo's files of clicks, of the Kaggle contest and of the Terabyte set: reading and writing.

A line has 40 fields with tabs between them: the label, 13 whole numbers and 26 hexadecimal strings.
All but the label may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.models.click_batches import batch_of
from trepak.models.click_files import (
    LineFormat,
    Paths,
    check_vocabularies,
    hashed,
    line_batches,
    opened,
)
from trepak.models.clicks import ClickStream

COUNTS = 13
FEATURES = tuple(f"C{number}" for number in range(1, 27))
_FORMAT = LineFormat(
    r"[01](\t(-?[0-9]{1,18})?){13}(\t[0-9a-fA-F]*){26}",
    "a label of 0 or 1, 13 whole numbers and 26 hexadecimal strings with tabs between them",
)
_BLOCK = 4096  # lines that are written at a time


def read_criteo(
    files: Paths, vocabularies: Mapping[str, int], batch_size: int, *, rank: int = 0, size: int = 1
) -> tf.data.Dataset:
    """Returns one rank's batches of Criteo's files, as `click_batches.batch_of` makes them.

    A missing number, or one below 0, counts as 0; a missing string has the id 0. See
    `click_files.hashed` for the other strings, and `click_files.line_batches` for what a rank
    reads and for malformed lines.

    Args:
        files: paths of text, or of gzip if they end in ".gz".
        vocabularies: the number of ids of each feature to read, "C1" to "C26"; e.g.
            `criteo_vocabularies(0.001)`.
        batch_size: samples in a batch.
        rank: this one, from 0.
        size: the number of ranks.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no such rank or feature, or a vocabulary that is too small.
    """
    check_vocabularies(vocabularies, FEATURES)

    def parse(lines: Any) -> Any:
        fields = tf.reshape(tf.strings.split(lines, "\t").flat_values, (-1, 1 + COUNTS + 26))
        numbers = fields[:, 1 : 1 + COUNTS]
        numbers = tf.where(tf.strings.length(numbers) == 0, "0", numbers)
        ids = {
            name: hashed(fields[:, 1 + COUNTS + FEATURES.index(name)], rows)
            for name, rows in vocabularies.items()
        }
        labels = tf.strings.to_number(fields[:, 0])
        return batch_of(tf.strings.to_number(numbers, tf.int64), ids, labels)

    return line_batches(files, _FORMAT, parse, batch_size, rank, size)


def write_criteo(path: str | Path, stream: ClickStream, samples: int, first: int = 0) -> None:
    """Writes generated samples in Criteo's format: an id becomes 8 hexadecimal digits.

    Args:
        path: of the file, compressed if it ends in ".gz".
        stream: of 13 counts and 26 features.
        samples: how many.
        first: index of the first one.

    Raises:
        ValueError: the stream has other features, or a number is below 0.
    """
    if samples < 0 or first < 0:
        raise ValueError(f"samples are counted from 0: got samples={samples}, first={first}.")
    shape = (len(stream.samples([0]).counts), len(stream.vocabularies))
    if shape != (COUNTS, len(FEATURES)):
        raise ValueError(f"Criteo's format has 13 counts and 26 features, the stream has {shape}.")
    with opened(path, "wt") as file:
        for start in range(first, first + samples, _BLOCK):
            clicks = stream.samples(np.arange(start, min(start + _BLOCK, first + samples)))
            numbers = np.vstack([clicks.labels, clicks.counts]).T.tolist()
            strings = ([f"{one:08x}" for one in ids] for ids in clicks.ids.T.tolist())
            lines = zip(numbers, strings, strict=True)
            file.write("".join("\t".join([*map(str, n), *s]) + "\n" for n, s in lines))
