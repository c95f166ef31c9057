"""Chunks that move between ranks which train a Keras model; see the worker of this name."""

from __future__ import annotations

from conftest import Shown, shows


@shows({"chicle-mpi-2": ["chunked_dataset"], "chicle-gloo-3": ["chunked_dataset"]})
def test_chunked_dataset(shown: Shown) -> None:
    shown.check()
