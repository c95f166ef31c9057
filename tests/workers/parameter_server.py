"""The job's parameter servers: real flows between the ranks of a job."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import parameter_server
from trepak.horovod_ext.parameter_server import ServerOptions
from trepak.horovod_ext.variables import make_known

_keys = itertools.count()


@contextmanager
def running(**options: Any) -> Iterator[trepak.ParameterServers]:
    # Of those that another worker of the job has left running.
    servers = trepak.ParameterServers(**{"dscp": ServerOptions().dscp, **options})
    servers.start()
    try:
        yield servers
    finally:
        parameter_server.stop()


def gradients_of(rank: int, round: int, shape: list[int], dtype: Any) -> np.ndarray:
    return np.random.default_rng([rank, round]).normal(size=shape).astype(dtype)


def known(variables: list[tf.Variable]) -> list[int]:
    keys = [next(_keys) for _ in variables]
    for key, variable in zip(keys, variables, strict=True):
        make_known(key, variable)
    return keys


def check_sums(
    servers: trepak.ParameterServers, shapes: list[list[int]], dtype: str, rounds: int = 4
) -> None:
    """Every rank gets the average of all ranks' gradients, in each round, inside a tf.function."""
    variables = [tf.Variable(tf.zeros(shape, dtype)) for shape in shapes]
    keys = known(variables)

    @tf.function
    def step(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        servers.push(keys, variables, gradients, 1.0 / hvd.size(), average=False)
        return [servers.deliver(*pair) for pair in zip(keys, variables, strict=True)]

    for round in range(rounds):
        mine = [gradients_of(hvd.rank(), round, shape, dtype) for shape in shapes]
        averages = step([tf.constant(one) for one in mine])
        for shape, average in zip(shapes, averages, strict=True):
            all_ranks = [gradients_of(rank, round, shape, dtype) for rank in range(hvd.size())]
            assert average.shape == shape
            np.testing.assert_allclose(average, np.mean(all_ranks, 0), rtol=1e-5, atol=1e-6)


SHAPES = [[3], [], [100, 100], [7, 11, 13], [0], [5000]]


@case
def sums_of_all_shapes() -> None:
    with running() as servers:
        check_sums(servers, SHAPES, "float32")
        check_sums(servers, SHAPES, "float64")


@case
def sums_with_one_server_and_small_slices() -> None:
    with running(servers=[hvd.size() - 1], slice_elements=1000, dscp=(0,)) as servers:
        check_sums(servers, SHAPES, "float32")


@case
def sums_of_whole_variables() -> None:
    with running(split=False, slice_elements=0, dscp=(46, 26, 10, 0)) as servers:
        check_sums(servers, SHAPES, "float32")


@case
def fixed_order_repeats_bits() -> None:
    seen = []
    for _ in range(2):
        with running(fixed_order=True) as servers:
            variable = tf.Variable(tf.zeros([10_000]))
            keys = known([variable])
            gradient = tf.constant(gradients_of(hvd.rank(), 0, [10_000], "float32"))
            servers.push(keys, [variable], [gradient], 1.0, average=False)
            seen.append(servers.deliver(keys[0], variable).numpy())
    np.testing.assert_array_equal(*seen)
    total = np.zeros(10_000, "float32")
    for rank in range(hvd.size()):
        total = total + gradients_of(rank, 0, [10_000], "float32")
    np.testing.assert_array_equal(seen[0], total)


@case
def misuse_names_the_remedy() -> None:
    variable, idle = tf.Variable([0.0]), trepak.ParameterServers()
    for use, text in (
        (lambda: idle.deliver(1 << 20, variable), "the job's parameter servers do not run"),
        (lambda: parameter_server.start(ServerOptions(servers=[99])), "there is no rank 99"),
        (lambda: ServerOptions(servers=[]), "at least one rank"),
        (lambda: ServerOptions(dscp=(64,)), "from 0 to 63"),
        (lambda: ServerOptions(slice_elements=-1), "must not be negative"),
    ):
        try:
            use()
        except Exception as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")


@case
def servers_have_one_set_of_options() -> None:
    with running() as servers:
        parameter_server.start(servers.options)
        try:
            parameter_server.start(ServerOptions(fixed_order=True))
        except ValueError as error:
            assert "must have the same options" in str(error)
        else:
            raise AssertionError("no error")


@case
def engine_ends_and_starts_again() -> None:
    for _ in range(3):
        with running() as servers:
            check_sums(servers, [[10]], "float32", rounds=1)
