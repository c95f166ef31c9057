"""Clicks to train on and clicks that are held out, generated or of files, as one rank has them."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.horovod_ext.broadcasting import allgather_object
from trepak.models import avazu, criteo, movielens
from trepak.models.auc import best_auc
from trepak.models.clicks import ClickStream, criteo_vocabularies
from trepak.scripts.errors import InputError, reading
from trepak.scripts.examples.ctr_options import source

_SAMPLES = 60_000  # generated ones of an epoch
_ENDLESS = 1 << 40
_HELD_OUT = 16_384  # samples at most, of all ranks
# Files are shuffled by so many batches, of which the first one is held out.
_BLOCK = 10
_SMALLEST = 100  # rows that scaling leaves to a vocabulary of strings

# Distinct values of Kaggle's Avazu set and of MovieLens 25M, roughly; small vocabularies have room,
# so that few strings share an id.
_AVAZU = dict.fromkeys(avazu.FEATURES, 100) | {
    **{"site_id": 4_800, "site_domain": 7_800, "app_id": 8_600, "app_domain": 600},
    **{"device_id": 2_700_000, "device_ip": 6_800_000, "device_model": 8_300},
    **{"C14": 2_700, "C17": 500, "C20": 200},
}
_MOVIELENS = {"userId": 162_600, "movieId": 59_100, "genres": 100}


@dataclass(frozen=True)
class Data:
    """What a rank trains on.

    Attributes:
        train: batches of this rank, of one epoch or, with `steps`, without end.
        held_out: inputs and labels of this rank; as many samples as other ranks have.
        vocabularies: rows by feature.
        numerical: the number of numerical features.
        lengths: see `click_features.feature_configs`.
        steps: of an epoch; None: as many as the data have.
        best: the best AUC that is possible on what is held out; None: nobody knows.
    """

    train: tf.data.Dataset
    held_out: tuple[Any, Any]
    vocabularies: Mapping[str, int]
    numerical: int
    lengths: Mapping[str, int] = field(default_factory=dict)
    steps: int | None = None
    best: float | None = None


def load(options: argparse.Namespace, rank: int, size: int) -> Data:
    """Returns the data that the options name; a collective call.

    Raises:
        InputError: files are not what they should be, or too short.
    """
    name, files = source(options)
    if name == "generated":
        return _generated(options, rank, size)
    return _of_files(name, files, options, rank, size)


def _generated(options: argparse.Namespace, rank: int, size: int) -> Data:
    """Returns new samples for each epoch, behind those that are held out."""
    vocabularies = criteo_vocabularies(options.scale)
    stream = ClickStream(vocabularies, seed=options.seed)
    batch = options.batch_size
    held_out = max(1, _HELD_OUT // batch) * batch
    each = batch // size
    return Data(
        stream.dataset(_ENDLESS, each, rank=rank, size=size, first=held_out),
        _together(stream.dataset(held_out, each, rank=rank, size=size)),
        vocabularies,
        criteo.COUNTS,
        steps=(options.samples or _SAMPLES) // batch,
        best=best_auc(stream.samples(np.arange(held_out)).probabilities),
    )


def _of_files(name: str, files: Any, options: argparse.Namespace, rank: int, size: int) -> Data:
    """Returns the samples of files, shuffled by blocks of batches."""
    read, vocabularies, numerical, lengths = _format(name, files, options.scale)
    batch = options.batch_size
    each = batch // size
    named = ", ".join(map(str, files))
    with reading(named, f"data of {name}"):
        blocks = read(vocabularies, _BLOCK * each, rank=rank, size=size)
    blocks = blocks.filter(lambda _, labels: tf.shape(labels)[0] == _BLOCK * each)
    blocks = blocks.enumerate().map(lambda number, block: _shuffled(number, block, options.seed))
    train = blocks.flat_map(lambda *block: tf.data.Dataset.from_tensor_slices(_tail(block)))
    with malformed_lines():
        held_out = list(blocks.map(_head).take(max(1, _HELD_OUT // batch)))
    batches = min(allgather_object(len(held_out), name="batches held out"))
    if not batches:
        raise InputError(
            f"{named}: fewer than {_BLOCK * batch} lines, which --batch-size {batch} needs: choose "
            "a smaller one."
        )
    steps = -1 if options.samples is None else options.samples // batch
    return Data(
        train.take(steps).prefetch(2),
        _together(held_out[:batches]),
        vocabularies,
        numerical,
        lengths,
    )


@contextlib.contextmanager
def malformed_lines() -> Iterator[None]:
    """Makes a line of a file that is not what it should be an error of the user's.

    Raises:
        InputError: there is one; it names file and line.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"([^\n\[\]']+, line \d+: expected [^\n\]]*)", str(error))
        if found is None:
            raise
        raise InputError(found[1].strip()) from error


def _format(
    name: str, files: Any, scale: float
) -> tuple[Callable[..., tf.data.Dataset], Mapping[str, int], int, Mapping[str, int]]:
    """Returns what reads files, their vocabularies, numerical features, and lengths."""
    if name == "criteo":
        rows = criteo_vocabularies(scale)
        return lambda *a, **k: criteo.read_criteo(files, *a, **k), rows, criteo.COUNTS, {}
    full = _AVAZU if name == "avazu" else _MOVIELENS
    rows = {feature: max(_SMALLEST, round(size * scale)) for feature, size in full.items()}
    if name == "avazu":
        return lambda *a, **k: avazu.read_avazu(files, *a, **k), rows, 0, {}
    return (
        lambda *a, **k: movielens.read_movielens(files[:1], files[1], *a, **k),
        rows,
        0,
        movielens.LENGTHS,
    )


def _shuffled(number: Any, block: Any, seed: int) -> Any:
    """Returns a block's batches, one behind the other, of samples in another order."""

    def shuffled(values: Any) -> Any:
        lines = tf.shape(values)[0]
        order = tf.random.experimental.stateless_shuffle(tf.range(lines), [seed, number])
        shape = [_BLOCK, lines // _BLOCK, *values.shape[1:]]
        return tf.reshape(tf.gather(values, order), shape)

    return tf.nest.map_structure(shuffled, block)


def _head(inputs: Any, labels: Any) -> Any:
    return tf.nest.map_structure(lambda values: values[0], (inputs, labels))


def _tail(block: Any) -> Any:
    return tf.nest.map_structure(lambda values: values[1:], block)


def _together(batches: Any) -> Any:
    """Returns batches as one, in memory."""
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)
