"""The example that `make train` runs, and the launcher that runs it."""

import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from trepak.models import digits
from trepak.scripts.launcher import JobError, Line, _Untagger, launch

TRAIN = "trepak.scripts.examples.train_digits"


def train(folder, *arguments, **kwargs):
    return launch(
        2,
        [sys.executable, "-m", TRAIN, "--output", str(folder), *arguments],
        on_line=lambda line: True,
        timeout=280,
        **kwargs,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One training at the default settings, on two processes over MPI."""
    folder = tmp_path_factory.mktemp("digits")
    outcome = train(folder)
    assert outcome.exit_code == 0, outcome.text()
    shown = "\n".join(line.text for line in outcome.lines if line.stream == "stdout")
    accuracy = re.search(r"test accuracy +([0-9.]+)% of (\d+) digits", shown)
    assert accuracy, shown
    return SimpleNamespace(
        folder=folder,
        shown=shown,
        lines=outcome.lines,
        accuracy=float(accuracy[1]) / 100,
        test_digits=int(accuracy[2]),
    )


def test_training_reaches_97_percent(trained):
    assert 0.97 <= trained.accuracy <= 1
    assert trained.test_digits == 360


def test_training_reports_its_rate_and_files(trained):
    rate = re.search(r"images per second +([0-9,]+)", trained.shown)
    assert float(rate[1].replace(",", "")) > 0
    model, curve = trained.folder / "digits.keras", trained.folder / "learning_curve.png"
    assert str(model) in trained.shown and str(curve) in trained.shown
    assert model.stat().st_size > 0
    assert curve.read_bytes().startswith(b"\x89PNG")


def test_only_rank_0_prints(trained):
    assert {line.rank for line in trained.lines if line.stream == "stdout"} == {0}
    assert trained.shown.count("Epoch 1/") == 1


def test_saved_model_predicts_the_same_in_plain_keras(trained):
    code = (
        "import sys, keras\n"
        "from sklearn.datasets import load_digits\n"
        "from sklearn.model_selection import train_test_split\n"
        "x, y = load_digits(return_X_y=True)\n"
        "_, x, _, y = train_test_split(x / 16, y, test_size=0.2, stratify=y, random_state=0)\n"
        "model = keras.saving.load_model(sys.argv[1])\n"
        "guesses = model.predict(x.reshape(-1, 8, 8, 1), verbose=0).argmax(-1)\n"
        "assert not [name for name in sys.modules if name.startswith(('trepak', 'horovod'))]\n"
        "print((guesses == y).sum(), type(model.optimizer).__name__, model.optimizer.iterations.numpy())\n"  # noqa: E501
    )
    command = [sys.executable, "-c", code, str(trained.folder / "digits.keras")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    right, optimizer, iterations = done.stdout.split()
    assert int(right) == round(trained.accuracy * trained.test_digits)
    assert optimizer == "Adam"
    assert int(iterations) > 0


def test_training_under_gloo(tmp_path):
    outcome = train(tmp_path, "--epochs", "1", gloo=True)
    assert outcome.exit_code == 0, outcome.text()
    assert "with 2 processes" in outcome.text()
    assert (tmp_path / "digits.keras").exists()


def test_training_under_mpirun(tmp_path):
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    pinned = {"TF_NUM_INTRAOP_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    python = [sys.executable, "-m", TRAIN, "--epochs", "1", "--output", str(tmp_path)]
    done = subprocess.run(
        ["mpirun", "-np", "2", "--oversubscribe", *python],
        env=os.environ | root | pinned,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with 2 processes" in done.stdout
    assert (tmp_path / "learning_curve.png").exists()


def test_one_process_that_misses_the_accuracy_exits_with_1(tmp_path):
    code = (
        "import sys\n"
        f"import {TRAIN} as train\n"
        "train.EPOCHS, train.EXPECTED_ACCURACY = 1, 1.01\n"
        "sys.exit(train.main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stderr
    assert "with 1 process." in done.stdout
    assert re.search(r"test accuracy of [0-9.]+% is under the 101%", done.stderr)
    assert "WARNING: All log messages" not in done.stderr


def test_launch_digits_shows_errors_and_passes_the_exit_code_on():
    command = [sys.executable, "-m", "trepak.scripts.examples.launch_digits", "--epochs", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "--epochs and --batch-size must be at least 1" in done.stderr
    assert "<stderr>" not in done.stderr


def untag(*pieces, stream="stdout"):
    lines = []
    untagger = _Untagger(stream, lines.append)
    for piece in pieces:
        untagger.feed(piece)
    untagger.close()
    return lines


@pytest.mark.parametrize("tag", ["[1,%d]<%s>:", "[%d]<%s>:"], ids=["mpi", "gloo"])
def test_tags_are_taken_off(tag):
    lines = untag(tag % (0, "stdout") + "loss: 0.5\n", tag % (1, "stdout") + "\n", "no tag\n")
    assert lines == [
        Line(0, "stdout", "loss: 0.5"),
        Line(1, "stdout", ""),
        Line(None, "stdout", "no tag"),
    ]


def test_lines_that_ranks_mix_are_put_together_again():
    first, second = "[1,0]<stdout>:", "[1,1]<stdout>:"
    mixed = [f"{second}1{first}0{first} says a\n", f"{second} says b\n", f"{first}unfinished"]
    assert untag(*mixed) == [
        Line(0, "stdout", "0 says a"),
        Line(1, "stdout", "1 says b"),
        Line(0, "stdout", "unfinished"),
    ]


def test_text_that_looks_a_little_like_a_tag_stays():
    assert untag("[1,0]<stdout>:array([1,2]) <stdout>\n") == [
        Line(0, "stdout", "array([1,2]) <stdout>")
    ]


def test_job_that_takes_too_long_is_stopped_with_all_its_processes():
    command = ["sleep", "3600.125"]  # an argument that no other process has
    began = time.monotonic()
    with pytest.raises(JobError, match="stopped after 8 seconds"):
        launch(2, command, on_line=lambda line: True, timeout=8)
    assert time.monotonic() - began < 60
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == command]
    assert left == []


def test_shards_are_a_partition():
    train = digits.load().train
    assert len(train) == 1437
    shards = [train.shard(rank, 4) for rank in range(4)]
    assert {len(shard) for shard in shards} == {359, 360}
    images = np.concatenate([shard.images for shard in shards])
    order = np.lexsort(images.reshape(len(images), -1).T)
    expected = np.lexsort(train.images.reshape(len(images), -1).T)
    np.testing.assert_array_equal(images[order], train.images[expected])
    with pytest.raises(ValueError, match="no shard 4 of 4"):
        train.shard(4, 4)


def test_split_is_stratified_and_the_same_every_time():
    first, second = digits.load(), digits.load()
    np.testing.assert_array_equal(first.train.images, second.train.images)
    assert (first.train.images.min(), first.train.images.max()) == (0, 1)
    shares = np.bincount(first.test.labels) / np.bincount(
        np.concatenate([first.train.labels, first.test.labels])
    )
    np.testing.assert_allclose(shares, 0.2, atol=0.01)
