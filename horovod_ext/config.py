"""Every environment variable that trepak reads: its name, default and meaning."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trepak.ops.injection import Delay, parse_delay, parse_slow
from trepak.ops.timeline import parse_steps


@dataclass(frozen=True)
class Knob:
    """One environment variable.

    Attributes:
        name: the variable, `TREPAK_…`.
        default: its value when unset.
        meaning: one sentence, with the unit.
    """

    name: str
    default: str
    meaning: str


KNOBS = (
    Knob("TREPAK_QUIET", "1", "1 drops TensorFlow's start-up noise, 0 shows it."),
    Knob(
        "TREPAK_STALL_SECONDS",
        "600",
        "Seconds after which a collective that some rank never entered fails on all ranks; "
        "0 waits for ever. Raise it if one rank alone does something longer than that.",
    ),
    Knob(
        "TREPAK_DEADLINE_SECONDS",
        "60",
        "Seconds that a rank waits for another one: for its flows, or for it to flush rounds too. "
        "Then it fails, naming it. Raise it where one rank's step or saving takes longer.",
    ),
    Knob(
        "TREPAK_COMPARE_STEPS",
        "0",
        "Steps after which `fit` compares the values of all ranks' variables, beside the beginning "
        "and the ends of epochs; 0 for these only.",
    ),
    Knob(
        "TREPAK_ADDRESS",
        "",
        "Address of this machine that other ranks can reach; found by itself where it is empty.",
    ),
    Knob(
        "TREPAK_ENCRYPT",
        "0",
        "1 encrypts what travels on trepak's own flows between ranks; see docs/security.md. What "
        "Horovod carries stays plain.",
    ),
    Knob(
        "TREPAK_ALLTOALL_CREDIT_BYTES",
        "33554432",
        "Bytes of an alltoall's splits that a rank may send to another one before it takes them; "
        "beyond them, what is sent waits at the sender. The same on all ranks.",
    ),
    Knob(
        "TREPAK_ALLTOALL_TRANSPORT",
        "auto",
        "What carries alltoalls: flows; ucx, over what UCX_TLS names; or auto: UCX's shared memory "
        "between ranks of one host, flows between others. The same on all ranks; see docs/sven.md.",
    ),
    Knob(
        "TREPAK_CACHE",
        "~/.cache/trepak",
        "Folder in which `make setup` keeps the Horovod wheel it built, and Fela the batch sizes "
        "it measured; $XDG_CACHE_HOME/trepak where that is set.",
    ),
    Knob(
        "TREPAK_TIMELINE",
        "",
        "Folder in which each rank writes a timeline of its steps; empty for none.",
    ),
    Knob("TREPAK_TIMELINE_STEPS", ":", "Steps that timelines keep, e.g. 10:20 for 10 to 19."),
    Knob("TREPAK_SLOW", "1", "Factor by which this rank computes longer; set by `trepak lab run`."),
    Knob(
        "TREPAK_DELAY",
        "",
        "Delays of this rank's steps, e.g. uniform:0:50ms, with commas between several; set by "
        "`trepak lab run`.",
    ),
    Knob(
        "TREPAK_KILL",
        "",
        "Step, counted from 0, at whose end this rank is killed; set by `trepak lab run`.",
    ),
    Knob("TREPAK_SEED", "0", "Seed of the delays; set by `trepak lab run`."),
    Knob(
        "TREPAK_MEMBERSHIP",
        "",
        "Port and token with which ranks ask the launcher about hosts; set by `trepak elastic`.",
    ),
    Knob(
        "TREPAK_LAB", "", "Name of the lab that this process belongs to; set by `trepak lab run`."
    ),
)


def value(name: str) -> str:
    """Returns a knob's value, from the environment or its default.

    Raises:
        KeyError: no such knob.
    """
    defaults = {knob.name: knob.default for knob in KNOBS}
    return os.environ.get(name, defaults[name])


def cache_folder() -> Path:
    """Returns the folder of what is kept from run to run; it need not exist."""
    parent = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("TREPAK_CACHE") or Path(parent, "trepak")).expanduser()


def check_environment(environment: Mapping[str, str] | None = None) -> None:
    """Checks that no TREPAK_ variable is set that nothing reads, and that all have values they may.

    Args:
        environment: the variables to check; by default those of this process.

    Raises:
        ValueError: names the variable and the known ones.
    """
    environment = os.environ if environment is None else environment
    known = {knob.name for knob in KNOBS}
    unknown = sorted(n for n in environment if n.startswith("TREPAK_") and n not in known)
    if unknown:
        raise ValueError(
            f"unknown environment variable {unknown[0]}; trepak knows {', '.join(sorted(known))}."
        )
    for name, check in _CHECKS.items():
        text = environment.get(name, "")
        try:
            if text:
                check(text)
        except ValueError as error:
            raise ValueError(f"{name} is wrong: {error}") from error


def _check_number(text: str) -> None:
    if not text.isdigit():
        raise ValueError(f"it must be a whole number, found {text!r}.")


def _check_switch(text: str) -> None:
    if text not in ("0", "1"):
        raise ValueError(f"it must be 0 or 1, found {text!r}.")


def parse_delays(text: str) -> list[Delay]:
    """Returns the delays of TREPAK_DELAY.

    Raises:
        ValueError: it holds something else.
    """
    return [parse_delay(part) for part in text.split(",") if part]


def _check_transport(text: str) -> None:
    if text not in ("auto", "flows", "ucx"):
        raise ValueError(f"it must be auto, flows or ucx, found {text!r}.")


_CHECKS: dict[str, Callable[[str], Any]] = {
    "TREPAK_STALL_SECONDS": _check_number,
    "TREPAK_ALLTOALL_CREDIT_BYTES": _check_number,
    "TREPAK_ALLTOALL_TRANSPORT": _check_transport,
    "TREPAK_COMPARE_STEPS": _check_number,
    "TREPAK_DEADLINE_SECONDS": _check_number,
    "TREPAK_ENCRYPT": _check_switch,
    "TREPAK_SLOW": parse_slow,
    "TREPAK_DELAY": parse_delays,
    "TREPAK_KILL": _check_number,
    "TREPAK_SEED": _check_number,
    "TREPAK_TIMELINE_STEPS": parse_steps,
}


def apply_to_horovod() -> None:
    """Hands trepak's settings to Horovod, which reads its own variables when it is initialised.

    A HOROVOD_ variable that the user set stays as it is.
    """
    check_environment()
    seconds = int(value("TREPAK_STALL_SECONDS"))
    if seconds:
        os.environ.setdefault("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", str(seconds))
        # Horovod ignores a shutdown time that is not longer than its warning time (default 60 s).
        if seconds <= 60:
            os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", str(max(1, seconds // 2)))
