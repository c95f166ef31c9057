"""`trepak train resnet`, whole: the pool decides whether plain TensorFlow trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TREPAK = str(Path(sys.executable).parent / "trepak")


def test_trains_where_plain_tensorflow_finds_no_room() -> None:
    command = "train resnet --batch 64 --steps 3 --pool 150MiB --beyond 1GiB"
    done = subprocess.run(
        [TREPAK, *command.split()],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "plain TensorFlow in 150MiB" in done.stdout
    table = done.stdout[done.stdout.index("ResNet-32, 64 images") :].splitlines()
    (capped,) = (line for line in table if "plain TensorFlow in" in line)
    assert "no room" in capped
    assert "The weights are the same, bit for bit." in done.stdout
    assert "swapped" in done.stdout, "the monitor tells"
