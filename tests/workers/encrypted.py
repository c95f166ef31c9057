"""Flows whose content is secret; what they bring is the same."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import parameter_server, sessions

STEPS = 3


def train() -> np.ndarray:
    """Returns the weight after some steps whose gradients differ between the ranks."""
    parameter_server.stop()  # those of other cases
    weight = tf.Variable(np.ones(1000, "float32"))
    optimizer = hvd.DistributedOptimizer(
        tf.keras.optimizers.SGD(1.0), transport=trepak.ParameterServers()
    )
    for step in range(STEPS):
        gradient = np.arange(1000, dtype="float32") * (hvd.rank() + 1) + step
        optimizer.apply_gradients([(tf.constant(gradient), weight)])
    parameter_server.stop()
    return weight.numpy()


def expected() -> np.ndarray:
    """The same by NumPy: the gradients' mean over the ranks is subtracted."""
    mean = np.mean([rank + 1 for rank in range(hvd.size())])
    return (1.0 - sum(np.arange(1000) * mean + step for step in range(STEPS))).astype("float32")


@case
def encrypted_flows_bring_the_same() -> None:
    os.environ["TREPAK_ENCRYPT"] = "1"
    try:
        assert sessions.place_in_job()["encrypt"]
        secret = train()
    finally:
        del os.environ["TREPAK_ENCRYPT"]
    assert not sessions.place_in_job()["encrypt"]
    plain = train()
    np.testing.assert_allclose(secret, expected(), rtol=1e-6)
    np.testing.assert_array_equal(secret, plain)


@case
def ranks_that_differ_are_told_so() -> str:
    os.environ["TREPAK_ENCRYPT"] = str(hvd.rank() % 2)
    try:
        sessions.place_in_job()
    except ValueError as error:
        message = str(error)
    finally:
        del os.environ["TREPAK_ENCRYPT"]
    odd = list(range(1, hvd.size(), 2))
    even = list(range(0, hvd.size(), 2))
    assert message.startswith(f"TREPAK_ENCRYPT is 1 on ranks {odd} and 0 on ranks {even}"), message
    assert message.endswith("set it alike on all ranks."), message
    return message
