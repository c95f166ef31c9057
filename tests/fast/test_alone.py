"""Tests in which the process is a rank, each file in a process of its own.

Horovod and MPI leave variables in the environment, which jobs of later tests would get.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "alone"
FILES = sorted(file for file in FOLDER.glob("*.py") if file.stem != "conftest")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_rank_alone(file: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
