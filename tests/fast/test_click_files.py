"""Readers of Criteo's, Avazu's and MovieLens' files, and the writer of Criteo's format."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trepak.models import avazu, movielens
from trepak.models.click_files import hashed
from trepak.models.clicks import ClickStream, criteo_vocabularies
from trepak.models.criteo import read_criteo, write_criteo

SIZES = criteo_vocabularies(1e-4)
AVAZU_LINES = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,"
    "device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21",
    "1000009418151094273,0,14102100,1005,0,1fbe01fe,f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,"
    "a99f214a,ddd2926e,44956a24,1,2,15706,320,50,1722,0,35,-1,79",
    "10000169349117863715,1,14102123,1005,1,,f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,"
    "a99f214a,96809ac8,711ee120,1,0,15704,320,50,1722,0,35,100084,79",
)


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="latin-1")
    return path


def joined(dataset: tf.data.Dataset) -> tuple[dict[str, Any], Any, Any]:
    """Returns the ids by feature, the numbers and the labels of all batches."""
    batches = list(dataset)
    ids = {
        name: np.concatenate([inputs["categorical"][name] for inputs, _ in batches])
        for name in batches[0][0]["categorical"]
    }
    numbers = [inputs["numerical"] for inputs, _ in batches if "numerical" in inputs]
    labels = np.concatenate([labels for _, labels in batches])
    return ids, np.concatenate(numbers) if numbers else None, labels


@pytest.mark.parametrize("name", ["day.tsv", "day.tsv.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    stream, samples, first = ClickStream(SIZES), 5000, 11
    write_criteo(tmp_path / name, stream, samples, first)
    ids, numbers, labels = joined(read_criteo(tmp_path / name, SIZES, 512))
    clicks = stream.samples(np.arange(first, first + samples))
    assert np.array_equal(labels[:, 0], clicks.labels)
    generated = joined(stream.dataset(samples, 500, first=first))[1]
    assert np.array_equal(numbers, generated) and numbers.dtype == np.float32
    for row, (feature, rows) in enumerate(SIZES.items()):
        strings = [f"{one:08x}" for one in clicks.ids[row]]
        assert np.array_equal(ids[feature], hashed(tf.constant(strings), rows))
        assert ids[feature].dtype == np.int32 and ids[feature].min() > 0
    with (gzip.open if name.endswith("gz") else open)(tmp_path / name, "rt") as file:
        line = next(file).rstrip("\n").split("\t")
    assert line[:2] == [str(clicks.labels[0]), str(clicks.counts[0, 0])] and len(line) == 40


def test_each_line_is_of_one_rank(tmp_path: Path) -> None:
    stream = ClickStream(SIZES)
    for file, first in (("a.tsv", 0), ("b.tsv.gz", 101)):
        write_criteo(tmp_path / file, stream, 101, first)
    files = [tmp_path / "a.tsv", tmp_path / "b.tsv.gz"]
    sizes = {"C3": SIZES["C3"], "C12": SIZES["C12"]}
    ids, numbers, labels = joined(read_criteo(files, sizes, 64))
    assert set(ids) == {"C3", "C12"} and len(labels) == 202
    for rank in range(3):
        mine = joined(read_criteo(files, sizes, 10, rank=rank, size=3))
        assert np.array_equal(mine[0]["C12"], ids["C12"][rank::3])
        assert np.array_equal(mine[1], numbers[rank::3])
        assert np.array_equal(mine[2], labels[rank::3])


def test_missing_fields_of_criteo(tmp_path: Path) -> None:
    path = written(
        tmp_path / "day", "1" + "\t" * 39, "0\t-3\t7" + "\t" * 11 + "\t68fd1e64" + "\t" * 25
    )
    ids, numbers, labels = joined(read_criteo(path, SIZES, 8))
    assert labels.tolist() == [[1], [0]]
    assert numbers.tolist() == [[0] * 13, [0, np.float32(np.log(8)), *[0] * 11]]
    assert ids["C1"].tolist() == [0, hashed(tf.constant("68fd1e64"), SIZES["C1"])]
    assert all(ids[name].tolist() == [0, 0] for name in SIZES if name != "C1")


def test_hashes_are_stable() -> None:
    # Others would make what was trained yesterday useless.
    got = hashed(tf.constant(["", "68fd1e64", "80e26c9b"]), 10**6)
    assert got.numpy().tolist() == [0, 838873, 766784]
    many = hashed(tf.strings.as_string(tf.range(10_000)), 11).numpy()
    assert set(many) == set(range(1, 11))


def test_avazu(tmp_path: Path) -> None:
    path = written(tmp_path / "train.csv", *AVAZU_LINES)
    sizes = dict.fromkeys(avazu.FEATURES, 1000)
    ids, numbers, labels = joined(avazu.read_avazu(path, sizes, 8))
    assert list(ids) == list(avazu.FEATURES) and len(ids) == 22 and numbers is None
    assert labels.tolist() == [[0], [1]]
    assert ids["hour"].tolist() == hashed(tf.constant(["00", "23"]), 1000).numpy().tolist()
    assert ids["site_id"].tolist() == [hashed(tf.constant("1fbe01fe"), 1000), 0]
    assert ids["C20"].tolist() == hashed(tf.constant(["-1", "100084"]), 1000).numpy().tolist()


@pytest.mark.parametrize("kind", ["csv", "dat"])
def test_movielens(tmp_path: Path, kind: str) -> None:
    if kind == "csv":
        movies = (
            "movieId,title,genres",
            '1,"One, Two (1995)",Comedy|Drama',
            "7,B,(no genres listed)",
        )
        ratings = ("userId,movieId,rating,timestamp", "5,1,4.0,9", "5,7,3.5,9", "6,8,5.0,9")
    else:
        movies = ("1::Café, The (1995)::Comedy|Drama", "7::B (1996)::")
        ratings = ("5::1::4::9", "5::7::3::9", "6::8::5::9")
    files = [
        written(tmp_path / f"{name}.{kind}", *lines)
        for name, lines in (("ratings", ratings), ("movies", movies))
    ]
    sizes = {"userId": 1000, "movieId": 1000, "genres": 1000}
    ids, numbers, labels = joined(movielens.read_movielens(*files, sizes, 2))
    assert numbers is None and labels.tolist() == [[1], [0], [1]]
    for name, strings in (("userId", ["5", "5", "6"]), ("movieId", ["1", "7", "8"])):
        assert ids[name].tolist() == hashed(tf.constant(strings), 1000).numpy().tolist()
    genres = hashed(tf.constant(["Comedy", "Drama"] + [""] * 8), 1000).numpy().tolist()
    assert ids["genres"].tolist() == [genres, [0] * 10, [0] * 10]
    assert list(joined(movielens.read_movielens(*files, {"userId": 9}, 2))[0]) == ["userId"]


GOOD = "1" + "\t" * 39


@pytest.mark.parametrize(
    ("read", "lines", "number"),
    [
        (lambda path: read_criteo(path, SIZES, 2), (GOOD, GOOD, GOOD, GOOD[:-1]), 4),
        (lambda path: read_criteo(path, SIZES, 2), (GOOD, "2" + "\t" * 39), 2),
        (lambda path: read_criteo(path, SIZES, 2), ("0\tx" + "\t" * 38,), 1),
        (lambda path: read_criteo(path, SIZES, 2), (GOOD, ""), 2),
        (lambda path: avazu.read_avazu(path, {"C14": 5}, 8), (*AVAZU_LINES, "1,1,14102123"), 4),
        (
            lambda path: movielens.read_movielens(path, "none", {"userId": 5}, 2),
            ("userId,movieId,rating,timestamp", "5,1,4.0,9", "5,1,good,9"),
            3,
        ),
    ],
    ids=["too few", "label", "number", "empty", "avazu", "movielens"],
)
def test_malformed_lines_are_named(
    tmp_path: Path, read: Callable[[Path], Any], lines: tuple[str, ...], number: int
) -> None:
    path = written(tmp_path / "a", "0" + "\t" * 39) if lines[0] == GOOD else None
    bad = written(tmp_path / "bad", *lines)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"bad, line {number}: expected .*found"
    ):
        list(read([path, bad] if path else bad))  # type: ignore[arg-type]


def test_wrong_files_are_explained(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file .*none"):
        read_criteo(tmp_path / "none", SIZES, 8)
    with pytest.raises(ValueError, match="pass at least one path"):
        read_criteo([], SIZES, 8)
    csv = written(tmp_path / "bad.csv", "a,b")
    with pytest.raises(
        ValueError, match="bad.csv, line 1: the header must be 'id,click.*found 'a,b'"
    ):
        avazu.read_avazu(csv, {"C1": 5}, 8)
    with pytest.raises(ValueError, match=r"bad.csv, line 1: the header must be \['movieId'"):
        movielens.read_movielens(csv, csv, {"genres": 5}, 8)
    movies = written(tmp_path / "movies.dat", "1::A::Drama", "2::B")
    with pytest.raises(ValueError, match="movies.dat, line 2: expected a movie's number.*'2', 'B'"):
        movielens.read_movielens(csv, movies, {"genres": 5}, 8)
    with pytest.raises(FileNotFoundError, match="there is no file .*none"):
        movielens.read_movielens(csv, tmp_path / "none", {"genres": 5}, 8)


def test_wrong_features_are_explained(tmp_path: Path) -> None:
    path = written(tmp_path / "day", GOOD)
    with pytest.raises(ValueError, match=r"got \['C27'\]; there are: C1, C2"):
        read_criteo(path, {"C1": 5, "C27": 5}, 8)
    with pytest.raises(ValueError, match="got none; there are: C1, C2"):
        read_criteo(path, {}, 8)
    with pytest.raises(ValueError, match="C1 needs 2 ids, one for missing values, got 1"):
        read_criteo(path, {"C1": 1}, 8)
    with pytest.raises(ValueError, match="there is no rank 1 of 1"):
        read_criteo(path, SIZES, 8, rank=1)
    with pytest.raises(ValueError, match=r"13 counts and 26 features, the stream has \(13, 1\)"):
        write_criteo(path, ClickStream({"C1": 5}), 1)
    with pytest.raises(ValueError, match="counted from 0: got samples=-1"):
        write_criteo(path, ClickStream(SIZES), -1)
