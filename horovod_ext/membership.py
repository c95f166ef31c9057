"""Notice that a host is to leave an elastic job, and what the job's launcher knows of its hosts.

Platforms send SIGTERM before they take a machine away. Horovod takes the end of a rank with 0 for
the end of the whole job, and anything else for a failure of its host. So a host is first left out
of the hosts that the launcher, `trepak elastic`, tells Horovod; its ranks get no place in the next
reset, and then end. Ranks ask the launcher on a port of its own, at the address of Horovod's
driver, which runs beside it. Nothing here runs before it is called.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterable
from types import FrameType
from typing import Any

from trepak.horovod_ext import liveness

MOST_BYTES = 1 << 20  # of the launcher's answer
_ANSWER_SECONDS = 3.0  # that one request may take, connecting included
_PAUSE_SECONDS = 1.0  # between two requests to be left out
_KNOWN_SECONDS = 20.0  # in which Horovod learns of a host that is left out; it looks each second
_RESET_SECONDS = 600.0  # that a reset may take; Horovod's own bound, too


class _State:
    """What this process knows of its notice; used by the main thread, as signal handlers are."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.handler_before: Any = None  # None: no handler is installed
        self.asked_at = -_PAUSE_SECONDS
        self.answer = ""
        self.has_warned = False


_state = _State()


def host() -> str:
    """Returns the name under which the launcher knows this process's host."""
    return os.environ.get("HOROVOD_HOSTNAME", "localhost")


def notice() -> str | None:
    """Returns why this process is to leave the job, "SIGTERM" or "trepak.elastic.leave()".

    None where it is to stay. A notice is of a host: all ranks of that host leave with this one.
    """
    return _state.reason


def leave() -> None:
    """Gives this process's host notice: its ranks leave the job at the next host update.

    Returns at once; with a warning, and no effect, where `trepak elastic` has not started the job.
    """
    _state.reason = _state.reason or "trepak.elastic.leave()"
    _check_launcher()


def watch() -> None:
    """Has the first SIGTERM give notice from now on, and the second do what the first did before.

    Does nothing outside the main thread, where SIGTERM is ignored, and in jobs that no
    `trepak elastic` started: there it ends this process at once, as ever.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not _launcher() or _state.handler_before is not None:
        return
    before = signal.getsignal(signal.SIGTERM)
    if before not in (None, signal.SIG_IGN):  # None: a handler that is none of Python's
        _state.handler_before = before
        signal.signal(signal.SIGTERM, _take_notice)


def unwatch() -> None:
    """Has SIGTERM do again what it did before `watch`."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and _state.handler_before is not None:
        if signal.getsignal(signal.SIGTERM) is _take_notice:  # nobody has set another since
            signal.signal(signal.SIGTERM, _state.handler_before)
        _state.handler_before = None


def _take_notice(number: int, frame: FrameType | None) -> None:
    _state.reason = "SIGTERM"
    signal.signal(signal.SIGTERM, _state.handler_before)


def withdraw(members: Iterable[str] = ()) -> bool:
    """Asks the launcher to leave this process's host out; asks once a second, however often called.

    Call it until it returns True, and go on training meanwhile: the ranks of the host leave at
    the host update that follows. `answer` says why it returns False.

    Args:
        members: hosts of the job's present ranks. Where they are given, one that has no notice must
            stay, since hosts that are only about to join do not have the job's state.

    Returns:
        Whether the host is left out. Where `trepak elastic` has not started the job, False, with
        one warning.
    """
    if _check_launcher() and time.monotonic() - _state.asked_at >= _PAUSE_SECONDS:
        told = _ask("withdraw", *sorted({*members}))
        _state.answer = "silent" if told is None else str(told)
        _state.asked_at = time.monotonic()
    return _state.answer == "leave"


def _check_launcher() -> bool:
    """Warns if there is none to ask; returns whether there is."""
    if not _launcher():
        _warn(
            f"{host()} has notice ({_state.reason}), but its ranks can't leave: only a job that "
            "`trepak elastic` has started can go on without them. Start the job with it, or end "
            "this process: the others then go back to their last commit."
        )
    return bool(_launcher())


def answer() -> str:
    """Returns what came of `withdraw`'s last request.

    "leave": the host is left out. "wait": without it no rank would have the job's state, or fewer
    than `--min-np` would be left; ask again. "end": all hosts have notice, so nobody can go on.
    "silent": no answer came within 3 s. "": nothing was asked.
    """
    return _state.answer


def is_over() -> bool:
    """Tells whether this process has notice, and nobody goes on whose reset it should wait for.

    That is so if all hosts have notice, and if the launcher has gone.
    """
    if _state.reason is None or not _launcher():
        return False
    return _state.answer == "end" or _ask("hosts") is None


def expected_hosts() -> dict[str, int] | None:
    """Returns the hosts that the job is to have, and the slots of each.

    They are what the launcher's `--hosts` listed last, without those that are withdrawn. None
    where no `trepak elastic` answers within 3 s.
    """
    told = _ask("hosts") if _launcher() else None
    return {str(name): int(slots) for name, slots in told.items()} if told is not None else None


def is_left_out() -> bool:
    """Tells whether the next reset will have no place for this rank, as its host is left out.

    Waits up to 20 s until Horovod knows that, too. From then on the host stays out until
    `take_leave` was called, or 10 minutes have gone.
    """
    deadline = time.monotonic() + _KNOWN_SECONDS
    while _launcher() and time.monotonic() < deadline:
        told = _ask("leaving")
        if told != "wait":
            return bool(told == "yes")
        time.sleep(0.1)
    return False


def take_leave() -> None:
    """Takes part in a reset in which there is no place for this rank, and returns when it is over.

    Horovod's driver waits for all ranks of the old job. Its own `init` would end this process by
    `std::terminate`. The process must then end, within seconds: the end of a rank whose host is
    back would be taken for the end of the whole job.

    Raises:
        OSError: Horovod's driver has not answered within 10 minutes, or has gone.
        RuntimeError: there is a place, so that the reset fails.
    """
    key = f"{host()}:{os.environ.get('HOROVOD_LOCAL_RANK', '0')}"
    try:
        status, body = liveness.ask_store("GET", "rank_and_size", key, seconds=_RESET_SECONDS)
    except http.client.HTTPException as error:
        raise OSError(f"Horovod's driver ended: {error!r}") from error
    if status != http.client.OK:
        raise OSError(f"Horovod's driver answers {status} to {key}")
    if not body.startswith(b"-1"):
        raise RuntimeError(
            f"Horovod has a place for {host()}, which the launcher leaves out: the job can't go "
            "on. This is a mistake in trepak; please report it."
        )
    _ask("left")


def _launcher() -> tuple[str, int, str] | None:
    """Returns the launcher's address, port and token."""
    port, _, token = os.environ.get("TREPAK_MEMBERSHIP", "").partition(":")
    address = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "")
    return (address, int(port), token) if address and port.isdigit() and token else None


def _ask(what: str, *more: str) -> Any:
    """Returns the launcher's answer; None, with one warning, where none comes in time."""
    found = _launcher()
    assert found is not None
    address, port, token = found
    request = f"{json.dumps([token, what, host(), *more])}\n".encode()
    deadline = time.monotonic() + _ANSWER_SECONDS
    try:
        with socket.create_connection((address, port), _ANSWER_SECONDS) as way:
            way.sendall(request)
            data = b""
            while not data.endswith(b"\n") and len(data) <= MOST_BYTES:
                way.settimeout(max(0.001, deadline - time.monotonic()))
                part = way.recv(1 << 16)
                if not part:
                    raise OSError("it closed the connection")
                data += part
        told = json.loads(data)
        if "error" in told:
            raise ValueError(told["error"])
        return told["answer"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        _warn(
            f"the launcher does not answer at {address}:{port} ({error}): this rank can't learn "
            "what hosts the job has, nor leave it. Let all hosts reach the TCP ports of the "
            "machine on which `trepak elastic` runs; if that has ended, end this process."
        )
        return None


def _warn(text: str) -> None:
    if not _state.has_warned:
        _state.has_warned = True
        warnings.warn(text, stacklevel=3)
