"""Geryon's own promises, beyond the exactness of what it trains."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from exactness import TRANSPORT, dense_model
from harness import case, served
from overlap import BATCHES, check_weights, compiled, fit, reference

import trepak
import trepak.keras as hvd
from trepak.callbacks import PriorityThresholdTuning
from trepak.horovod_ext import exchange
from trepak.tf_plugins.transport import forward_order

LATE_SECONDS = 3


@case
def places_follow_the_forward_pass() -> None:
    first, second, third = (keras.layers.Dense(3) for _ in range(3))
    conv = keras.layers.Conv1D(4, 2)
    for layer, shape in ((third, (4, 3)), (second, (4, 3)), (first, (4, 4)), (conv, (4, 8, 2))):
        layer.build(shape)
    layers = [third, conv, second, first]
    variables = [variable for layer in layers for variable in layer.trainable_variables]

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.reduce_mean(conv(x), 1)
            loss = tf.reduce_sum(third(second(first(hidden))))
        grads = tape.gradient(loss, variables)
        found.extend(forward_order.places(variables))
        return grads

    found: list[forward_order.Place] = []
    step(tf.ones([4, 8, 2]))
    expected = {third: (4, True), conv: (1, False), second: (3, True), first: (2, True)}
    assert found == [expected[layer] for layer in layers for _ in range(2)], found


@case
def bytes_leave_at_the_priority_of_the_map_table() -> None:
    """Layer 1 of 2 has urgency 0.5, above the threshold; layer 2 has 0."""
    model = compiled()
    fit(model)
    before = served()
    fit(model)
    after = served()
    sent = [b - a for a, b in zip(before.bytes_by_priority, after.bytes_by_priority, strict=True)]
    size = hvd.size()
    # What a rank pushes to others, and what its server answers others: in both directions, all but
    # its own share.
    layers = [sum(v.shape.num_elements() for v in layer.weights) for layer in model.layers]
    for got, elements in zip(sent, layers, strict=True):
        total = 4 * BATCHES * elements * (size - 1)
        everyone = int(hvd.allreduce(tf.constant(got), op=hvd.Sum))
        assert everyone == 2 * total, (sent, total)


@case
def choosing_priorities_takes_under_a_millisecond_per_step() -> None:
    """The least of some rounds: a machine that is busy elsewhere may halt a thread meanwhile."""
    model = compiled()
    fit(model)

    def lookup_seconds() -> float:
        before = served().lookup_seconds
        fit(model)
        return served().lookup_seconds - before

    assert min(lookup_seconds() for _ in range(5)) < 1e-3 * BATCHES


@case
def thresholds_are_tuned_alike_on_all_ranks() -> None:
    figure = Path(tempfile.mkdtemp()) / "curve.png"
    tuning = PriorityThresholdTuning((0.1, 0.4, 0.7), batches=2, figure=figure, verbose=0)
    model = compiled()
    fit(model, epochs=2, callbacks=[tuning])
    check_weights(model, reference(epochs=2))
    assert [trial.threshold for trial in tuning.trials] == [0.1, 0.4, 0.7]
    assert tuning.chosen is not None and 0.1 <= tuning.chosen <= 0.7
    found = exchange.gather([tuning.chosen, tuning.trials], "what was found")
    assert all(one == found[0] for one in found), found
    assert TRANSPORT.threshold == tuning.chosen
    assert figure.exists() == (hvd.rank() == 0)
    TRANSPORT.set_threshold(0.4)


@case
def short_trainings_keep_their_threshold() -> None:
    tuning = PriorityThresholdTuning(batches=50, verbose=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(compiled(), callbacks=[tuning])
    assert tuning.chosen is None
    assert any("has seen 6 of 255 batches" in str(one.message) for one in caught)
    TRANSPORT.set_threshold(0.4)


@case
def wrong_options_are_explained() -> None:
    for options, text in (
        ({"threshold": "fine"}, '"coarse" or a number'),
        ({"threshold": [0.5, 0.2]}, "2 priorities (dscp) need 1 thresholds, got 2"),
        ({"threshold": [0.2, 0.5], "dscp": (46, 34, 0)}, "that fall"),
        ({"threshold": 1.5}, "from 0 to 1"),
        ({"dscp": (46, 99)}, "0 to 63"),
        ({"slice_elements": -1}, "must not be negative"),
        ({"servers": []}, "at least one rank"),
    ):
        try:
            trepak.Geryon(**options)
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")
    misuse: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: wrapped_with("flows"), "transport must"),
        (lambda: trepak.overlap(dense_model()), "overlap() needs a model"),
        (lambda: PriorityThresholdTuning((0.1, 0.2)), "at least 3 different urgencies"),
        (lambda: PriorityThresholdTuning(batches=0), "batches must be at least 1"),
        (
            lambda: fit(
                compiled(overlapped=False, transport=None), callbacks=[PriorityThresholdTuning()]
            ),
            "needs DistributedOptimizer(..., transport=Geryon())",
        ),
        (
            lambda: fit(
                compiled(overlapped=False, sync=trepak.ASP()),
                callbacks=[PriorityThresholdTuning()],
            ),
            "PriorityThresholdTuning is for sync=BSP()",
        ),
    )
    for call, text in misuse:
        try:
            call()
        except (TypeError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")


@case
def late_server_loses_nothing() -> None:
    """Rank 1, a worker and a server, stands still for a while: the others wait for it."""
    expected = reference()
    fit(compiled())  # starts the servers
    began = time.monotonic()
    if hvd.rank() == 1:
        pause = f"kill -STOP {os.getpid()}; sleep {LATE_SECONDS}; kill -CONT {os.getpid()}"
        subprocess.Popen(["sh", "-c", f"sleep 0.3; {pause}"], stdin=subprocess.DEVNULL)
    while any(trepak.allgather_object(time.monotonic() - began < LATE_SECONDS + 1)):
        model = compiled()
        fit(model)
        check_weights(model, expected)


@case
def tapes_of_elastic_jobs_are_refused() -> None:
    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        trepak.DistributedGradientTape(tf.GradientTape(), transport=TRANSPORT)
    except ValueError as error:
        assert "elastic" in str(error)
    else:
        raise AssertionError("no error")
    finally:
        del os.environ["HOROVOD_ELASTIC"]


def wrapped_with(transport: Any) -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.SGD(), transport=transport)
