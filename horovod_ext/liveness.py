"""Which ranks of a Gloo job are gone: asked of their machines' kernels, when a collective failed.

Each rank listens on a port: as long as its process lives, the kernel answers who connects, and when
it is gone the kernel refuses. So nothing runs beside the training, and a rank that hangs or is
stopped is not taken for one that is gone. The ranks tell their addresses through the key-value
store of Gloo's launcher. Under MPI mpirun ends the job and names the rank.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import http.client
import json
import os
import selectors
import socket
import time
import uuid
from collections.abc import Iterable
from typing import NamedTuple

_INIT_SECONDS = 5.0  # that `announce` waits for the other ranks
_PATIENCE_SECONDS = 2.0  # a process that was killed can take that long to end
_PROBE_SECONDS = 0.5  # for an answer from another host
_STORE_SECONDS = 2.0  # for an answer of the launcher
_QUEUE = 4096  # connections that the kernel answers before this rank comes to take them
_SCOPE = "trepak_ranks"
_LEFT = "trepak_left"


class Peer(NamedTuple):
    """A rank, where its process runs, and the port that it holds."""

    rank: int
    pid: int
    host: str
    address: str
    port: int

    def __str__(self) -> str:
        """Names it for people."""
        return f"rank {self.rank} (pid {self.pid} on {self.host})"


class _State:
    """What this process knows; `peers` is empty where ranks can't be told."""

    def __init__(self) -> None:
        self.listener: socket.socket | None = None
        self.me: Peer | None = None
        self.peers: list[Peer] = []
        self.gone: list[Peer] = []
        self.has_failed = False
        self.roll_call: str | None = None  # the last one that this process answered


_state = _State()


def announce(rank: int, size: int, is_one_host: bool) -> None:
    """Tells the other ranks of a Gloo job where this one lives, and learns where they do.

    No collective call: ranks that are not heard of within 5 s are not told from others later.

    Args:
        rank: this rank.
        size: ranks of the job.
        is_one_host: whether all of them run on this machine.
    """
    if _state.listener is None:
        os.register_at_fork(after_in_child=_close)
    _state.peers, _state.gone, _state.has_failed = [], [], False
    _take_probes()
    if size == 1 or "HOROVOD_GLOO_RENDEZVOUS_ADDR" not in os.environ:
        return
    # Horovod's own handler, which tells the others that this rank is leaving, comes after this.
    atexit.unregister(_leave)
    atexit.register(_leave)
    try:
        address = "127.0.0.1" if is_one_host else _own_address()
        _state.me = me = Peer(rank, os.getpid(), socket.gethostname(), *_listen(address))
        _put(_LEFT, str(rank), None)  # if it had failed before, it has not now
        _state.peers = [peer for peer in _everyone(me, size) if peer.rank != rank]
    except (OSError, ValueError, TypeError, http.client.HTTPException):
        _state.peers = []  # the job can do without: errors then don't name ranks


def gone() -> str:
    """Says which ranks are gone, after a collective failed; "" where none is known to be.

    Waits up to 2 s for a rank to be gone, once per failure: its connections can break before its
    process has ended.
    """
    if not _state.peers:
        return ""
    _take_probes()
    deadline = time.monotonic() + (0.0 if _state.has_failed else _PATIENCE_SECONDS)
    pause = 0.005  # short at first: the launcher soon ends the other ranks, too
    refused, silent = _probe(_state.peers)  # who is silent then: later, many may ask at once
    while True:
        # A rank that failed for the same reason, and has ended before this one asked, is none.
        _state.gone = sorted({*_state.gone, *(peer for peer in refused if not _has_failed(peer))})
        if _state.gone or time.monotonic() + pause > deadline:
            break
        time.sleep(pause)
        pause *= 2
        refused, _ = _probe(_state.peers)
    _mark_failed()
    if _state.gone:
        return f"{_listed(_state.gone)} {'are' if len(_state.gone) > 1 else 'is'} gone"
    return f"{_listed(silent)} {'do' if len(silent) > 1 else 'does'} not answer" if silent else ""


def _listed(peers: list[Peer]) -> str:
    *most, last = map(str, peers)
    return f"{', '.join(most)} and {last}" if most else last


def _probe(peers: Iterable[Peer]) -> tuple[list[Peer], list[Peer]]:
    """Connects to all at once; returns whose kernel says that they are gone, and who is silent."""
    refused, waiting = [], {}
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            if not peer.port:
                continue
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            probe.setblocking(False)
            error = probe.connect_ex((peer.address, peer.port))
            if error == errno.EINPROGRESS:
                selector.register(probe, selectors.EVENT_WRITE, peer)
                waiting[peer] = probe
                continue
            probe.close()
            if error == errno.ECONNREFUSED:
                refused.append(peer)
        deadline = time.monotonic() + _PROBE_SECONDS
        while waiting and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                probe = waiting.pop(key.data)
                selector.unregister(probe)
                if probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED:
                    refused.append(key.data)
                probe.close()
        for probe in waiting.values():
            probe.close()
    return sorted(refused), sorted(waiting)


def _listen(address: str) -> tuple[str, int]:
    """Holds a port for as long as this process lives; returns the address and 0 where it can't."""
    if _state.listener is not None and _state.listener.getsockname()[0] == address:
        return address, int(_state.listener.getsockname()[1])
    _close()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
        listener.listen(_QUEUE)
    except OSError:
        listener.close()
        return address, 0
    listener.setblocking(False)
    _state.listener = listener
    return address, int(listener.getsockname()[1])


def _take_probes() -> None:
    """Empties the queue of those that have asked: once it is full the kernel answers nobody."""
    with contextlib.suppress(OSError):
        while _state.listener is not None:
            _state.listener.accept()[0].close()


def _own_address() -> str:
    """Returns the address of this machine that other hosts can reach."""
    chosen = os.environ.get("TREPAK_ADDRESS")
    if chosen:
        return chosen
    with socket.create_connection(_store(), _INIT_SECONDS) as way:
        return str(way.getsockname()[0])


def _everyone(me: Peer, size: int) -> list[Peer]:
    """Returns all ranks as rank 0 has gathered them; empty after 5 s.

    An elastic job's ranks meet anew with other numbers, and the store keeps what they said before:
    so rank 0 calls the roll each time by another name, under which the others answer.
    """
    deadline = time.monotonic() + _INIT_SECONDS
    if me.rank == 0:
        call, found = uuid.uuid4().hex, [me]
        _put(_SCOPE, "call", [call])
        while len(found) < size:
            peer = _get(_SCOPE, f"{call}.{len(found)}")
            if peer is not None:
                found.append(Peer(*peer))
            elif not _may_wait(deadline):
                break
        _put(_SCOPE, f"{call}.all", found)
        return found
    answered = None
    while True:
        (call,) = _get(_SCOPE, "call") or [None]
        if call not in (None, _state.roll_call):
            _state.roll_call = answered = call
            _put(_SCOPE, f"{call}.{me.rank}", me)
        found = [Peer(*peer) for peer in (answered and _get(_SCOPE, f"{answered}.all")) or []]
        if me in found or not _may_wait(deadline):
            return found if me in found else []


def _may_wait(deadline: float) -> bool:
    time.sleep(0.01)
    return time.monotonic() < deadline


def _mark_failed() -> None:
    """Says to ranks that ask later that this one has failed, too, if it ends before they ask."""
    if not _state.has_failed and _state.me is not None:
        _state.has_failed = True
        with contextlib.suppress(OSError, http.client.HTTPException):
            _put(_LEFT, str(_state.me.rank), _state.me)


def _has_failed(peer: Peer) -> bool:
    try:
        mark = _get(_LEFT, str(peer.rank))
        return mark is not None and Peer(*mark) == peer
    except (OSError, ValueError, TypeError, http.client.HTTPException):
        return False


def _store() -> tuple[str, int]:
    variables = ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")
    address, port = (os.environ.get(name, "") for name in variables)
    return address, int(port)


def _put(scope: str, key: str, value: object) -> None:
    ask_store("PUT", scope, key, json.dumps(value).encode())


def _get(scope: str, key: str) -> list | None:
    status, body = ask_store("GET", scope, key)
    return json.loads(body) if status == http.client.OK else None


def ask_store(
    method: str, scope: str, key: str, body: bytes | None = None, seconds: float = _STORE_SECONDS
) -> tuple[int, bytes]:
    """Asks the key-value store of Gloo's launcher; returns HTTP's status, and the value.

    Raises:
        OSError: it does not answer within that many seconds.
        http.client.HTTPException: what answers does not speak HTTP.
    """
    connection = http.client.HTTPConnection(*_store(), timeout=seconds)
    try:
        connection.request(method, f"/{scope}/{key}", body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _leave() -> None:
    """Gives the port back when the process ends well or by an error that is its own."""
    if not _state.has_failed:
        _close()


def _close() -> None:
    if _state.listener is not None:
        _state.listener.close()
        _state.listener = None
