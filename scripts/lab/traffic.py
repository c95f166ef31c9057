"""Sends and counts bytes between hosts of a lab: what its links and priorities really give.

    python -m trepak.scripts.lab.traffic receive PORT SENDERS SECONDS
    python -m trepak.scripts.lab.traffic send ADDRESS PORT LABEL DSCP SECONDS

The receiver waits for all senders, counts what comes from each in the same seconds, and prints
{label: bytes per second} as JSON.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trepak.scripts.lab.network import LabError
from trepak.scripts.lab.topology import Lab

_PORT = 47000
_WARM_UP = 0.5  # seconds in which TCP finds its rate; not counted
_CHUNK = 1 << 18
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Sender:
    """One stream.

    Attributes:
        host: where it comes from.
        label: what it is called in the result.
        dscp: how its packets are marked; 0 is not at all.
    """

    host: str
    label: str
    dscp: int = 0


def measure(lab: Lab, receiver: str, senders: Sequence[Sender], seconds: float) -> dict[str, float]:
    """Sends from several hosts to one at the same time.

    Args:
        lab: a lab that is up.
        receiver: the host that receives.
        senders: the streams; each comes from a process of its own.
        seconds: how long to count.

    Returns:
        Bits per second of payload that arrived, by label.

    Raises:
        LabError: a process failed, or did not end in time.
    """
    from trepak.scripts.lab.job import start_in_host

    module = [sys.executable, "-m", __spec__.name]
    address = lab.address(receiver)
    count = str(len(senders))
    commands = [(receiver, [*module, "receive", str(_PORT), count, str(seconds)])]
    for one in senders:
        arguments = [address, str(_PORT), one.label, str(one.dscp), str(seconds)]
        commands.append((one.host, [*module, "send", *arguments]))
    processes = [start_in_host(lab, host, command) for host, command in commands]
    try:
        outputs = [p.communicate(timeout=seconds + 3 * _CONNECT_SECONDS) for p in processes]
    except subprocess.TimeoutExpired as error:
        raise LabError(f"streams to {receiver} did not end in time.") from error
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise LabError(f"a stream to {receiver} failed: {errors.strip()}")
    counted: dict[str, float] = json.loads(outputs[0][0])
    return {label: 8 * rate for label, rate in counted.items()}


def receive(port: int, senders: int, seconds: float) -> dict[str, float]:
    """Returns bytes per second, by label, in the seconds after all senders have warmed up."""
    listener = socket.create_server(("0.0.0.0", port), backlog=senders)
    listener.settimeout(_CONNECT_SECONDS)
    labels = []
    with selectors.DefaultSelector() as selector:
        for _ in range(senders):
            connection, _ = listener.accept()
            connection.settimeout(_CONNECT_SECONDS)
            labels.append(connection.recv(64, socket.MSG_WAITALL).decode().strip())
            selector.register(connection, selectors.EVENT_READ, labels[-1])
        buffer = bytearray(_CHUNK)
        counted = dict.fromkeys(labels, 0)
        begin = time.monotonic() + _WARM_UP
        end = begin + seconds
        while (now := time.monotonic()) < end:
            for key, _ in selector.select(end - now):
                assert isinstance(key.fileobj, socket.socket)
                got = key.fileobj.recv_into(buffer)
                if time.monotonic() >= begin:
                    counted[key.data] += got
                if not got:
                    raise LabError(f"the stream {key.data} ended early.")
    return {label: total / seconds for label, total in counted.items()}


def send(address: str, port: int, label: str, dscp: int, seconds: float) -> None:
    """Sends as fast as it can until the receiver has counted enough."""
    with socket.create_connection((address, port), timeout=_CONNECT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        connection.sendall(label.encode().ljust(64))
        payload = bytes(_CHUNK)
        end = time.monotonic() + seconds + 2 * _CONNECT_SECONDS
        while time.monotonic() < end:
            try:
                connection.send(payload)
            except TimeoutError:
                continue  # streams of higher priority have the link
            except (BrokenPipeError, ConnectionResetError):
                return


def _send_patiently(address: str, port: str, label: str, dscp: str, seconds: str) -> None:
    """Sends once the receiver listens."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return send(address, int(port), label, int(dscp), float(seconds))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        print(json.dumps(receive(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
    else:
        _send_patiently(*sys.argv[2:])
