"""How a command must end that cannot do what it shall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trepak.scripts import cli
from trepak.scripts.lab import state


def command(capfd: Any, *arguments: str) -> tuple[int, str]:
    """Runs a command in this process; returns its exit code and what it wrote on stderr."""
    code = cli.main(list(arguments))
    return code, capfd.readouterr().err


def check_one_line(code: int, stderr: str, expected: int | None = None) -> None:
    assert code == expected if expected else code not in (0, None), stderr
    assert stderr.startswith("trepak: ") and stderr.endswith((".\n", "?\n")), stderr
    assert stderr.count("\n") == 1 and "\x1b" not in stderr, repr(stderr)
    assert "Traceback" not in stderr


@pytest.fixture
def no_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FOLDER", tmp_path / "labs")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
