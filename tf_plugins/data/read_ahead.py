"""`read_ahead(model, batches_of)`: reader processes read, shard and route the input of a pipeline.

Sven's first stage (thesis, section 6.1.2, "input re-distribution"): what all ranks look up in a
step is known to who reads their batches, so that no alltoall of the ids is needed between them.
"""

from __future__ import annotations

import atexit
import dataclasses
from collections.abc import Callable
from typing import Any

import cloudpickle
import tensorflow as tf

from trepak.horovod_ext import basics, config, exchange, sessions
from trepak.tf_plugins.data import reader_processes
from trepak.tf_plugins.data.global_epochs import of_any_length
from trepak.tf_plugins.data.reader_rounds import Reading, RoutedLayer
from trepak.tf_plugins.data.reader_stream import ReaderStream
from trepak.tf_plugins.data.specs_as_text import from_text
from trepak.tf_plugins.layers.embedding_batches import Read
from trepak.tf_plugins.model.look_ups import embedding_layers, ids_graph
from trepak.tf_plugins.model.model_hooks import attached


def read_ahead(
    model: Any, batches_of: Callable[[int, int], tf.data.Dataset], readers: int = 1
) -> tf.data.Dataset:
    """Returns this rank's batches, which other processes read: for `fit` of a pipeline's model.

    The readers run on rank 0's machine, and end with the job. Each runs a tf.data service and reads
    the batches of all ranks; it finds the rows that they look up, without duplicates, and gives
    each rank its batch with what all ranks ask it for. So a step starts with its look-ups, and only
    rows, gradients and dense layers travel between ranks. An epoch ends on all ranks where the
    first one has no more batches; the next one goes through the datasets again.

    A collective call: make it on all ranks after `trepak.pipeline(model, stages=1)` (or 4), and use
    what it returns for one `fit` at a time. Where an epoch was left early the next one goes on.
    But a `fit` that is left early drops the two batches that are under way in the pipeline.

    Not more than a few steps' batches wait anywhere: readers make no more before ranks take them.

    tf.data's service takes graphs from any client and runs them. So whoever reaches a reader's
    ports can run any TensorFlow graph as this user, and read and write files with it. The ports are
    on all addresses of rank 0's machine: keep them behind a firewall (docs/security.md).

    Args:
        model: has an attached pipeline, and is built.
        batches_of: of a rank and the number of ranks, that rank's batches as `fit` would take them.
            It is called on rank 0 and, pickled on its way, in each reader. What it reads must be
            there on rank 0's machine.
        readers: how many; reader k makes each `readers`-th step, from the k-th. Each reads all
            data, and must find it in the same order: with several, shuffles need a seed.

    Returns:
        Elements of a structure that the pipeline alone understands, of unknown number.

    Raises:
        ValueError: there is no pipeline, the model is not built, `readers` is not positive, the job
            is elastic or TREPAK_ENCRYPT=1; or, on rank 0, ids depend on the model's weights or
            on random numbers that it draws.
        RuntimeError: a reader could not begin, or rank 0 has failed. In `fit`, TensorFlow makes an
            UnknownError of what a reader's end, failure or silence is: it names rank and reader.
    """
    _check(model, readers)
    place = sessions.place_in_job()
    told, failure = None, None
    if basics.rank() == 0:
        try:
            told = _start(model, batches_of, readers, place["host"])
        except Exception as error:
            told, failure = {"error": str(error)}, error
    told = exchange.gather(told, "where the input's readers are")[0]
    if failure is not None:
        raise failure
    if "error" in told:
        raise RuntimeError(f"rank 0 can't start the input's readers: {told['error']}")
    stream = ReaderStream(told["readers"], basics.rank(), basics.size(), _seconds())
    basics.before_shutdown(stream.close)
    atexit.register(stream.close)  # before the readers end, which ranks would take for a failure
    spec = from_text(told["readers"][0]["specs"][basics.rank()])
    sizes = tf.TensorSpec([basics.size()], tf.int64)
    wanted = tuple(tuple((_IDS, sizes) for _ in calls) for calls in told["features"])
    return _batches(stream, Read(spec, wanted))


_IDS = tf.TensorSpec([None], tf.int64)


def _check(model: Any, readers: int) -> None:
    basics.reject_elastic("read_ahead")
    if readers < 1:
        raise ValueError(f"readers must be at least 1, got {readers}.")
    if not attached(model, "pipeline"):
        raise ValueError("read_ahead() needs a pipeline: call trepak.pipeline(model, stages=1).")
    if any(layer.tables is None for layer in embedding_layers(model)):
        raise ValueError(f"the model {model.name!r} is not built: give its inputs their shapes.")
    if config.value("TREPAK_ENCRYPT") == "1":
        raise ValueError(
            "TREPAK_ENCRYPT=1 asks for encrypted flows, and what tf.data's service sends is not: "
            "leave read_ahead() out."
        )


def _start(model: Any, batches_of: Any, readers: int, address: str) -> dict[str, Any]:
    """Starts the readers on this machine; returns what ranks need to know of them."""
    spec = batches_of(basics.rank(), basics.size()).element_spec
    layers = tuple(RoutedLayer(**layer.tables.routing()) for layer in embedding_layers(model))
    about = Reading(batches_of, ids_graph(model, spec), layers, basics.size(), 0, readers)
    pickled = [
        cloudpickle.dumps(dataclasses.replace(about, reader=number)) for number in range(readers)
    ]
    started = reader_processes.start(pickled, address, _seconds())
    return {"readers": started, "features": about.ids.features}


def _seconds() -> float:
    return float(config.value("TREPAK_DEADLINE_SECONDS"))


def _batches(stream: ReaderStream, spec: Read) -> tf.data.Dataset:
    """Returns a dataset of what a stream brings: each iteration is an epoch."""
    flat = tf.nest.flatten(spec, expand_composites=True)
    taken: list[Any] = []  # the element that `goes_on` has found

    def goes_on() -> bool:
        taken[:] = stream.take()
        return not taken[0]

    def take(_: Any) -> Any:
        parts = tf.py_function(lambda: taken[1:], [], [one.dtype for one in flat])
        for part, one in zip(parts, flat, strict=True):
            part.set_shape(one.shape)
        return tf.nest.pack_sequence_as(spec, parts, expand_composites=True)

    options = tf.data.Options()
    # An element that is taken ahead would be one that other ranks have not taken.
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    options.autotune.enabled = False
    epoch = tf.data.Dataset.counter().take_while(lambda _: _is(goes_on)).map(take)
    return of_any_length(epoch.with_options(options))


def _is(told: Callable[[], bool]) -> Any:
    answer = tf.py_function(told, [], tf.bool)
    answer.set_shape([])
    return answer
