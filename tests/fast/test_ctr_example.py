"""The options and the data of `trepak train ctr`, without a job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trepak.models.clicks import ClickStream, criteo_vocabularies
from trepak.models.criteo import write_criteo
from trepak.scripts.errors import InputError
from trepak.scripts.examples import ctr_data, ctr_options
from trepak.tf_plugins.layers import embedding_plan
from trepak.tf_plugins.model import pipeline

BATCH = 6


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctr_data, "allgather_object", lambda value, name: [value])


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file of Criteo's format, whose first count is the line's number."""
    path = tmp_path / "clicks.txt"
    write_criteo(path, ClickStream(criteo_vocabularies(1e-4)), 125)
    numbered = []
    for number, line in enumerate(path.read_text().splitlines()):
        label, _, *rest = line.split("\t")
        numbered.append("\t".join([label, str(number), *rest]))
    path.write_text("\n".join(numbered) + "\n")
    return path


def options(*arguments: Any) -> argparse.Namespace:
    return ctr_options.parse([*map(str, arguments), "--scale", "1e-4"])


def numbers(inputs: Any) -> list[int]:
    """Returns which lines samples are."""
    return [round(one) for one in np.expm1(inputs["numerical"][:, 0])]


def test_ranks_get_the_options_that_are_no_defaults(lines: Path) -> None:
    assert ctr_options.as_arguments(ctr_options.parse(["--epochs", "2"])) == ["--epochs", "2"]
    given = [
        "--model",
        "dcn",
        "--criteo",
        str(lines),
        str(lines),
        "--epochs",
        "3",
        "--scale",
        "0.5",
    ]
    again = ctr_options.as_arguments(ctr_options.parse(given))
    assert ctr_options.parse(again) == ctr_options.parse(given)
    assert sorted(again) == sorted(given)


def test_choices_are_those_of_layer_and_pipeline() -> None:
    assert ctr_options.STAGES == pipeline.STAGES
    assert ctr_options.SHARDINGS == embedding_plan.SHARDINGS


def test_files_are_passed_over_once(lines: Path) -> None:
    assert ctr_options.parse([]).epochs == 5
    assert ctr_options.parse(["--criteo", str(lines)]).epochs == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--criteo", "/none"], "there is no file '/none'"),
        (["--movielens", "/none", "/none"], "there is no file '/none'"),
        (["--model", "gpt"], "invalid choice: 'gpt'"),
        (["--stages", "3"], "invalid choice: 3"),
        (["--scale", "nan"], "above 0 and at most 10"),
        (["--criteo", __file__, "--avazu", __file__], "not allowed with"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ctr_options.parse(arguments)


def test_a_batch_is_split_evenly() -> None:
    ctr_options.check(options("--batch-size", 6), 3)
    with pytest.raises(InputError, match="a multiple of 4, found 6"):
        ctr_options.check(options("--batch-size", 6), 4)
    with pytest.raises(InputError, match="at least --batch-size, 6, found 5"):
        ctr_options.check(options("--batch-size", 6, "--samples", 5), 2)


def test_no_line_is_trained_and_held_out(lines: Path) -> None:
    given = options("--criteo", lines, "--batch-size", BATCH)
    trained: list[int] = []
    held_out: list[int] = []
    for rank in range(2):
        data = ctr_data.load(given, rank, 2)
        batches = list(data.train)
        assert [len(labels) for _, labels in batches] == [BATCH // 2] * 18
        trained += [number for inputs, _ in batches for number in numbers(inputs)]
        held_out += numbers(data.held_out[0])
        assert data.steps is None and data.best is None
    # Two blocks of ten batches; five lines are left over.
    assert sorted(trained + held_out) == list(range(120))
    assert len(held_out) == 2 * BATCH
    assert trained[:27] != sorted(trained[:27]), "a block is not in the order of the file"


def test_samples_bound_an_epoch_of_files(lines: Path) -> None:
    data = ctr_data.load(options("--criteo", lines, "--batch-size", 6, "--samples", 20), 0, 1)
    assert len(list(data.train)) == 3


def test_files_that_do_not_fit_are_explained(lines: Path) -> None:
    with pytest.raises(InputError, match="fewer than 1260 lines, which --batch-size 126 needs"):
        ctr_data.load(options("--criteo", lines, "--batch-size", 126), 0, 1)
    with pytest.raises(InputError, match="is not data of avazu: .*the header must be"):
        ctr_data.load(options("--avazu", lines), 0, 1)


def test_generated_samples_do_not_depend_on_the_number_of_ranks() -> None:
    given = options("--batch-size", BATCH, "--samples", 30)
    whole = ctr_data.load(given, 0, 1)
    halves = [ctr_data.load(given, rank, 2) for rank in range(2)]
    assert whole.steps == halves[0].steps == 5 and whole.best == halves[1].best
    parts = [next(iter(half.train))[0]["numerical"] for half in halves]
    together = np.stack(parts, 1).reshape(BATCH, -1)
    np.testing.assert_array_equal(next(iter(whole.train))[0]["numerical"], together)
    held_out = np.stack([half.held_out[1] for half in halves], 1).reshape(-1, 1)
    np.testing.assert_array_equal(np.sort(whole.held_out[1], 0), np.sort(held_out, 0))
