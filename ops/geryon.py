"""Geryon's flows under TensorFlow's own servers."""

from __future__ import annotations

from trepak.ops.loader import call

__all__ = ["register_server_protocol"]


def register_server_protocol() -> None:
    """Makes the server protocol "grpc+geryon" known to this process.

    After it, `tf.distribute.Server(..., protocol="grpc+geryon")` starts TensorFlow's own server,
    whose tensors travel between tasks on Geryon's flows: two-dimensional ones (fully connected
    layers) at low priority, all others at high (section IV). All tasks of the cluster should use
    it; what the flows can't carry travels by gRPC.

    Raises:
        RuntimeError: TREPAK_ENCRYPT is 1, which this protocol can't keep.
    """
    import os

    if os.environ.get("TREPAK_ENCRYPT") == "1":
        raise RuntimeError(
            "TREPAK_ENCRYPT is 1, but grpc+geryon can't be encrypted: TensorFlow's own gRPC, which "
            "carries the flows' secret and some of the tensors, is plain. Unset TREPAK_ENCRYPT, or "
            "train with trepak.Geryon() instead of parameter servers over gRPC."
        )
    call("register_server_protocol")
