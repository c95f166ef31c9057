"""The port on which the ranks of an elastic job ask its launcher about hosts.

A request is one line, `[token, what, host, …]` in JSON, the answer another one, and each connection
carries one of both. `horovod_ext.membership` is the ranks' side.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
from typing import Any

from trepak.scripts.elastic.roster import Roster

MOST_BYTES = 1 << 16  # of a request
REQUEST_SECONDS = 2.0  # that one may take
MOST_CONNECTIONS = 64  # at a time; more are closed at once


class MembershipServer:
    """Answers the ranks of one job, in threads of its own."""

    def __init__(self, roster: Roster, address: str = "") -> None:
        """Begins to listen on a port that the kernel draws.

        Args:
            roster: is asked.
            address: of this machine, on which to listen; all by default.
        """
        self._roster = roster
        self._token = secrets.token_hex(16)
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._listener = socket.create_server((address, 0), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def credentials(self) -> str:
        """What ranks need to ask, "port:token"."""
        return f"{self._listener.getsockname()[1]}:{self._token}"

    def close(self) -> None:
        """Ends listening; a second call does nothing."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread that accepts
            self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                way, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                time.sleep(0.05)  # closing, or out of file descriptors for a moment
                continue
            if self._places.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(way,), daemon=True).start()
            else:
                way.close()

    def _serve(self, way: socket.socket) -> None:
        try:
            with way:
                deadline = time.monotonic() + REQUEST_SECONDS
                line = _read_line(way, deadline)
                way.settimeout(max(0.001, deadline - time.monotonic()))
                way.sendall(json.dumps(self._reply(line)).encode() + b"\n")
        except OSError:  # whoever asked is gone, or too slow
            pass
        finally:
            self._places.release()

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            token, what, host, *more = json.loads(line)
            if not all(isinstance(one, str) for one in (token, what, host, *more)):
                raise TypeError
        except (ValueError, TypeError, RecursionError):
            return {"error": "the request is none of trepak's"}
        if not hmac.compare_digest(token.encode(errors="replace"), self._token.encode()):
            return {"error": "the token is not this job's"}
        if what == "withdraw":
            return {"answer": self._roster.withdraw(host, more)}
        if what == "leaving":
            return {"answer": self._roster.leaving(host)}
        if what == "left":
            self._roster.left(host)
            return {"answer": "yes"}
        if what == "hosts":
            return {"answer": self._roster.expected()}
        return {"error": f"there is nothing called {what[:80]!r} to ask"}


def _read_line(way: socket.socket, deadline: float) -> bytes:
    """Returns one line, without its end.

    Raises:
        OSError: it is too long, comes too slowly, or not to its end.
    """
    data = b""
    while b"\n" not in data:
        left = deadline - time.monotonic()
        if left <= 0 or len(data) > MOST_BYTES:
            raise OSError("too slow, or too long")
        way.settimeout(left)
        part = way.recv(4096)
        if not part:
            raise OSError("it ended early")
        data += part
    return data.partition(b"\n")[0]
