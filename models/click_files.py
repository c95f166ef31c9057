"""Lines of text files as batches of samples: sharding, checking, hashing, for any line format."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from trepak.models.click_batches import check_shard, prepared

Paths = str | Path | Iterable[str | Path]
_SHOWN = 200  # characters of a malformed line


@dataclass(frozen=True)
class LineFormat:
    r"""What the lines of a file look like.

    Attributes:
        pattern: regular expression of RE2 that the whole of each line matches.
        words: the same in words, for errors.
        header: what the first line must be; "" if the first line is a sample.
    """

    pattern: str
    words: str
    header: str = ""


def line_batches(
    files: Paths,
    line_format: LineFormat,
    parse: Callable[[Any], Any],
    batch_size: int,
    rank: int,
    size: int,
) -> tf.data.Dataset:
    """Returns one rank's batches of the lines of some files.

    Rank r has the lines r, r + size, … of all files together, headers not counted; it reads the
    others too. Ranks' numbers of lines differ by at most one, and the last batch may be smaller.
    Where ranks must make equally many steps, pass the result to `trepak.global_epochs`.

    A malformed line ends the iteration with an `InvalidArgumentError` that names file and line.

    Args:
        files: paths, read in this order; those that end in ".gz" are decompressed.
        line_format: of the lines.
        parse: makes a batch of lines, string (B,), into what the dataset yields.
        batch_size: lines in a batch.
        rank: this one, from 0.
        size: the number of ranks.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is no such rank, no file at all, or a file has another header.
    """
    check_shard(rank, size, batch_size)
    paths = _checked(files, line_format)

    def numbered(path: Any) -> Any:
        compression = tf.where(tf.strings.regex_full_match(path, r".*\.gz"), "GZIP", "")
        lines = tf.data.TextLineDataset(path, compression).enumerate(1)
        lines = lines.skip(1 if line_format.header else 0)
        return tf.data.Dataset.zip(tf.data.Dataset.from_tensors(path).repeat(), lines)

    def parsed(paths: Any, numbered_lines: Any) -> Any:
        numbers, lines = numbered_lines
        return parse(_matched(paths, numbers, lines, line_format))

    lines = tf.data.Dataset.from_tensor_slices(paths).flat_map(numbered)
    return prepared(lines.shard(size, rank).batch(batch_size), parsed)


def hashed(strings: Any, vocabulary: int) -> Any:
    """Returns ids of strings: 0 if a string is empty, else 1 + its hash modulo (vocabulary − 1).

    The hash is `tf.strings.to_hash_bucket_fast` (FarmHash's Fingerprint64), the same on every
    machine and for ever. Different strings can share an id.

    Args:
        strings: string, of any shape.
        vocabulary: the number of ids, at least 2.

    Returns:
        int64, of the same shape, from 0 to vocabulary − 1.
    """
    buckets = 1 + tf.strings.to_hash_bucket_fast(strings, vocabulary - 1)
    return tf.where(tf.strings.length(strings) == 0, tf.zeros_like(buckets), buckets)


def check_vocabularies(vocabularies: Mapping[str, int], features: Iterable[str]) -> None:
    """Checks that vocabularies are of features that a format has.

    Raises:
        ValueError: there is none, one is of another feature, or one has fewer than 2 ids.
    """
    features = list(features)
    unknown = sorted(set(vocabularies) - set(features))
    if unknown or not vocabularies:
        raise ValueError(
            f"vocabularies must name features of the format, got {unknown or 'none'}; "
            f"there are: {', '.join(features)}."
        )
    for feature, rows in vocabularies.items():
        if rows < 2:
            raise ValueError(f"{feature} needs 2 ids, one for missing values, got {rows}.")


def opened(path: str | Path, mode: str = "rt", encoding: str = "utf-8") -> Any:
    """Returns an open text file, which is compressed if its name ends in ".gz"."""
    if str(path).endswith(".gz"):
        # Level 9, the default, takes ten times as long, for a tenth of the bytes.
        return gzip.open(path, mode, 6, encoding=encoding, newline="")
    return open(path, mode, encoding=encoding, newline="")


def _checked(files: Paths, line_format: LineFormat) -> list[str]:
    """Returns the paths of files that exist and have the right header."""
    paths = [str(p) for p in ([files] if isinstance(files, str | Path) else files)]
    if not paths:
        raise ValueError("there is no file to read: pass at least one path.")
    for path in paths:
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}.")
        if line_format.header:
            with opened(path) as file:
                first = file.readline().rstrip("\r\n")
            if first != line_format.header:
                raise ValueError(
                    f"{path}, line 1: the header must be {line_format.header!r}, found "
                    f"{first[:_SHOWN]!r}."
                )
    return paths


def _matched(paths: Any, numbers: Any, lines: Any, line_format: LineFormat) -> Any:
    """Returns the lines, all of which match the format's pattern."""
    good = tf.strings.regex_full_match(lines, line_format.pattern)
    bad = tf.argmin(tf.cast(good, tf.int32))  # the first one, if there is any
    message = tf.strings.join(
        [
            *(paths[bad], ", line ", tf.strings.as_string(numbers[bad])),
            *(": expected ", line_format.words, ", found: ", lines[bad]),
        ]
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(good), [message])]):
        return tf.identity(lines)
