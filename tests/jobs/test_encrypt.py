"""TREPAK_ENCRYPT: its values, and what it can't keep; tests/workers/encrypted has flows."""

from __future__ import annotations

import pytest

import trepak
from trepak.horovod_ext import config


@pytest.mark.parametrize("text", ["", "0", "1"])
def test_it_is_a_switch(text: str) -> None:
    config.check_environment({"TREPAK_ENCRYPT": text})


def test_other_values_are_refused() -> None:
    with pytest.raises(ValueError, match="TREPAK_ENCRYPT is wrong: it must be 0 or 1, found 'yes'"):
        config.check_environment({"TREPAK_ENCRYPT": "yes"})


def test_it_is_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREPAK_ENCRYPT", raising=False)
    assert config.value("TREPAK_ENCRYPT") == "0"


def test_grpc_cannot_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREPAK_ENCRYPT", "1")
    with pytest.raises(RuntimeError, match="grpc\\+geryon can't be encrypted"):
        trepak.register_server_protocol()
