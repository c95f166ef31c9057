"""`trepak train ctr`: from one command to a table, a picture and weights."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TREPAK = str(Path(sys.executable).parent / "trepak")
SHORT = ["--samples", "4800", "--batch-size", "96", "--scale", "1e-4", "--epochs", "2"]
EPOCH = re.compile(r"^epoch \d/2 +4,800 samples .* loss ([0-9.]+)  AUC ([0-9.]+)$", re.MULTILINE)


def train(*arguments: Any) -> str:
    """Returns what a training has shown."""
    done = subprocess.run(
        [TREPAK, "train", "ctr", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def curves(shown: str) -> list[tuple[float, float]]:
    found = [(float(loss), float(auc)) for loss, auc in EPOCH.findall(shown)]
    assert len(found) == 2, shown
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A short training on two ranks, with the pipeline that is the default."""
    folder = tmp_path_factory.mktemp("ctr")
    return folder, train("--np", 2, *SHORT, "--output", folder)


@pytest.mark.timeout(200)
def test_two_ranks_with_a_pipeline(trained: tuple[Path, str]) -> None:
    folder, output = trained
    assert output.startswith("$ horovodrun -np 2 python -m trepak.scripts.examples.train_ctr")
    assert "Embedding tables over 2 ranks:" in output and "on 2 ranks" in output
    shown = re.search(r"AUC +([0-9.]+) of 16,320 samples held out", output)
    best = re.search(r"best AUC +([0-9.]+),", output)
    assert shown and best, output
    # Of guesses the AUC is 0.5 with a deviation of sqrt((1/clicks + 1/others) / 12), 0.005 for
    # these samples, of which a quarter are clicks: 0.6 is not reached without learning.
    assert 0.6 < float(shown[1]) < float(best[1]) < 0.9
    assert re.search(r"updates +100\b", output)
    assert "missed 2 updates at most" in output
    ranks = re.findall(r"^ +([01]) +[0-9.]+ +2,\d\d\d +\d+ +[0-9.]+% *$", output, re.MULTILINE)
    assert ranks == ["0", "1"], output
    assert (folder / "ctr.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "dense.weights.h5").stat().st_size > 0
    assert (folder / "tables" / "tables.json").exists()


@pytest.mark.timeout(200)
def test_the_number_of_ranks_changes_no_curve(trained: tuple[Path, str], tmp_path: Path) -> None:
    """Look-ups miss the same updates; sums of two ranks' gradients differ by their rounding."""
    one = curves(train("--np", 1, *SHORT, "--output", tmp_path))
    for (loss, auc), (loss_of_two, auc_of_two) in zip(one, curves(trained[1]), strict=True):
        # They are shown with four digits. A rounding of 1e-7 grows as training goes on, but the
        # seed of the data alone changes the loss by 0.01.
        assert loss == pytest.approx(loss_of_two, abs=2e-4)
        assert auc == pytest.approx(auc_of_two, abs=1e-3)
