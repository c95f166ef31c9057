"""MovieLens' files of ratings: who likes which movie, of which genres.

Newer sets are CSV with headers (ratings.csv, movies.csv). Older ones have "::" between fields and
no header (ratings.dat, movies.dat).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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

FEATURES = ("userId", "movieId", "genres")
LENGTHS = {"genres": 10}  # the most that a movie of MovieLens 25M has; for `feature_configs`
_LIKED = 4.0
_NO_GENRES = "(no genres listed)"
_MOVIES_HEADER = ["movieId", "title", "genres"]
_WORDS = "a user, a movie, a rating of 0.5 to 5 and a time"
_RATINGS = {
    ",": LineFormat(
        r"[0-9]{1,18},[0-9]{1,18},[0-5](\.[0-9])?,[0-9]+",
        f"{_WORDS}, with commas between them",
        "userId,movieId,rating,timestamp",
    ),
    "::": LineFormat(
        r"[0-9]{1,18}::[0-9]{1,18}::[0-5](\.[0-9])?::[0-9]+", f"{_WORDS}, with :: between them"
    ),
}


def read_movielens(
    ratings: Paths,
    movies: str | Path,
    vocabularies: Mapping[str, int],
    batch_size: int,
    *,
    rank: int = 0,
    size: int = 1,
) -> tf.data.Dataset:
    """Returns one rank's batches of MovieLens, as `click_batches.batch_of` makes them.

    A rating of 4 or more is a click. There are no counts. "genres" is (B, 10): places that a movie
    leaves, and all places of one that is not in `movies`, have the id 0, and genres after the
    tenth are left out. See `click_files.hashed` for the ids, and `click_files.line_batches` for
    what a rank reads and for malformed lines.

    Args:
        ratings: paths of ratings, all CSV or all "::"; of gzip if they end in ".gz".
        movies: path of the movies; of the same format.
        vocabularies: the number of ids of each feature to read: any of `FEATURES`.
        batch_size: samples in a batch.
        rank: this one, from 0.
        size: the number of ranks.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no such rank or feature, a vocabulary that is too small, another header, or a
            malformed line of movies.
    """
    check_vocabularies(vocabularies, FEATURES)
    separator = _separator(movies)
    genres_of = _genres(movies, vocabularies["genres"]) if "genres" in vocabularies else None

    def parse(lines: Any) -> Any:
        fields = tf.reshape(tf.strings.split(lines, separator).flat_values, (-1, 4))
        ids = {}
        for column, name in enumerate(FEATURES[:2]):
            if name in vocabularies:
                ids[name] = hashed(fields[:, column], vocabularies[name])
        if genres_of:
            ids["genres"] = genres_of(fields[:, 1])
        return batch_of(None, ids, tf.strings.to_number(fields[:, 2]) >= _LIKED)

    return line_batches(ratings, _RATINGS[separator], parse, batch_size, rank, size)


def _separator(path: str | Path) -> str:
    return "::" if str(path).removesuffix(".gz").endswith(".dat") else ","


def _genres(path: str | Path, vocabulary: int) -> Any:
    """Returns a function from movies' ids, string (B,), to their genres' ids, int64 (B, 10)."""
    places = LENGTHS["genres"]
    movies, rows = [], []
    for movie, genres in _movies(path):
        movies.append(movie)
        rows.append((genres + [""] * places)[:places])
    rows.append([""] * places)  # of movies that are not listed
    table = hashed(tf.constant(rows), vocabulary)
    numbers = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant(movies, tf.string), tf.range(len(movies), dtype=tf.int64)
        ),
        default_value=len(movies),
    )
    return lambda ids: tf.gather(table, numbers.lookup(ids))


def _movies(path: str | Path) -> Iterator[tuple[str, list[str]]]:
    """Yields each movie's id and genres."""
    separator = _separator(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    with opened(path, encoding="latin-1" if separator == "::" else "utf-8") as file:
        # Titles in CSV may hold commas, in quotes.
        lines = (
            csv.reader(file) if separator == "," else (line.strip().split("::") for line in file)
        )
        for number, fields in enumerate(lines, 1):
            if separator == "," and number == 1:
                if fields != _MOVIES_HEADER:
                    raise ValueError(f"{path}, line 1: the header must be {_MOVIES_HEADER}.")
                continue
            if len(fields) != 3 or not fields[0].isdecimal():
                raise ValueError(
                    f"{path}, line {number}: expected a movie's number, title and genres with "
                    f"{separator!r} between them, found: {fields}"
                )
            listed = fields[2].split("|") if fields[2] != _NO_GENRES else []
            yield fields[0], [genre for genre in listed if genre]
