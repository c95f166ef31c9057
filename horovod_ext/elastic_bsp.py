"""ElasticBSP, SSP and ASP: started for one optimizer on all ranks, and ended with the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from trepak.horovod_ext import basics, exchange, flows, parameter_server
from trepak.ops import elastic_bsp as native
from trepak.ops.streams import connect_stream

NAMES = {"elastic_bsp": "ElasticBSP", "ssp": "SSP", "asp": "ASP"}  # of models
PREDICTIONS = ("last", "mean", "exponential")

_MOST_STEPS = 10_000  # ahead; a barrier is planned of so many ends of each rank


@dataclass(frozen=True)
class StepOptions:
    """How far ranks may go before they wait for others; the same on all ranks.

    Attributes:
        model: "elastic_bsp", "ssp" or "asp".
        lookahead: ElasticBSP's: steps of each rank that a barrier may be away.
        staleness: SSP's: steps that a rank may be ahead of the slowest.
        prediction: ElasticBSP's, of how long a rank's next steps will take.
    """

    model: str
    lookahead: int = 15
    staleness: int = 3
    prediction: str = "mean"

    def __post_init__(self) -> None:
        """Raises ValueError for options that are wrong."""
        if self.model not in NAMES:
            raise ValueError(f"model must be one of {', '.join(NAMES)}, got {self.model!r}.")
        for name, least in (("lookahead", 1), ("staleness", 0)):
            value = getattr(self, name)
            if not least <= _whole(value) <= _MOST_STEPS:
                raise ValueError(
                    f"{name} must be a whole number from {least} to {_MOST_STEPS}, got {value!r}."
                )
        if self.prediction not in PREDICTIONS:
            raise ValueError(
                f"prediction must be one of {', '.join(PREDICTIONS)}, got {self.prediction!r}."
            )


def _whole(value: Any) -> int:
    """Returns a number as an int, which NumPy's are not; -1 if it is not whole."""
    try:
        return index(value)
    except TypeError:
        return -1


def start(options: StepOptions, labels: Sequence[str], dtype: Any, shapes: Sequence[Any]) -> int:
    """Starts it for one optimizer, on the parameter servers that run; a collective call.

    Args:
        options: the same on all ranks.
        labels: by parameter, the name under which Geryon's map_table knows it.
        dtype: of the parameters, float32 or float64.
        shapes: of the parameters.

    Returns:
        The number by which it is known.

    Raises:
        ValueError: the job is elastic.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    basics.reject_elastic("parameters on the job's servers")
    stream = flows.begin_stream("elastic_bsp")
    worker, controller = native.start_elastic_bsp(
        native.ElasticBspOptions(
            stream=stream,
            job=flows.this_job(),
            parameters=parameter_server.key_of_stream(stream),
            model=options.model,
            lookahead=options.lookahead,
            staleness=options.staleness,
            prediction=options.prediction,
            labels=labels,
            dtype=dtype,
            shapes=shapes,
        )
    )
    addresses = exchange.gather([worker, controller], f"the addresses of {NAMES[options.model]}")
    workers = [theirs for theirs, _ in addresses]
    connect_stream("elastic_bsp", stream, addresses[0][1], workers)
    exchange.gather(None, f"that all flows of {NAMES[options.model]} are open")
    return stream
