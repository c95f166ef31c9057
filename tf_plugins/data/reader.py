"""A reader of the training's input: a process that rank 0 has started.

    python -m trepak.tf_plugins.data.reader DESCRIPTOR PARENT

It gets what to read as a pickle from its parent, through its standard input, and writes to the
descriptor where its tf.data service is. When its input ends, its parent has: it ends, too.
The parent's children may hold that input open, so it also looks whether PARENT is still its parent.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from typing import Any

_QUEUE = 1024  # ranks that connect before they are taken
_LOOK_SECONDS = 0.5  # between looks at whether the parent lives
_PATIENCE_SECONDS = 2.0  # for ranks that have not let go when the parent has
_connections: list[socket.socket] = []


def main() -> None:
    """Serves rounds until the parent ends."""
    descriptor, parent = map(int, sys.argv[1:])
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()
    path, address, pickled = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.path[:] = path
    try:
        held, answer = _serve(address, pickled)
    except Exception:
        held, answer = (), {"error": traceback.format_exc()}
    with os.fdopen(descriptor, "w") as pipe:
        pipe.write(json.dumps(answer))
    if not held:
        os._exit(1)  # the thread that waits for the parent would be in the way of an exit
    threading.Event().wait()


def _end_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    _end()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    _end()


def _end() -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(map(is_open, _connections)) and time.monotonic() < deadline:
        time.sleep(0.02)
    os._exit(0)


def is_open(connection: socket.socket) -> bool:
    """Tells whether the other end of a connection, on which nothing comes, is still there."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _serve(address: str, pickled: bytes) -> tuple[Any, dict[str, Any]]:
    """Returns what must be kept, and where it is found."""
    import tensorflow as tf

    from trepak.tf_plugins.data.reader_rounds import rounds
    from trepak.tf_plugins.data.specs_as_text import to_text

    dataset, specs = rounds(pickle.loads(pickled))
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    port = dispatcher.target.rpartition(":")[2]
    worker = service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=f"localhost:{port}", worker_address=f"{address}:%port%"
        )
    )
    number = service.register_dataset(dispatcher.target, dataset, compression=None)
    listener = socket.create_server((address, 0), backlog=_QUEUE)
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    answer = {
        "service": f"grpc://{address}:{port}",
        "dataset": number.numpy().decode(),
        "address": address,
        "port": listener.getsockname()[1],
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "specs": [to_text(one) for one in specs],
    }
    return (dataset, dispatcher, worker), answer


def _accept(listener: socket.socket) -> None:
    """Keeps the ranks' connections: they end when this process does, which the ranks see."""
    while True:
        _connections.append(listener.accept()[0])


if __name__ == "__main__":
    main()
