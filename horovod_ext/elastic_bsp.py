"""ElasticBSP, SSP and ASP: started for one optimizer on all ranks, and ended with the job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

from trepak.horovod_ext import parameter_server, sessions

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
            if not least <= whole(value) <= _MOST_STEPS:
                raise ValueError(
                    f"{name} must be a whole number from {least} to {_MOST_STEPS}, got {value!r}."
                )
        if self.prediction not in PREDICTIONS:
            raise ValueError(
                f"prediction must be one of {', '.join(PREDICTIONS)}, got {self.prediction!r}."
            )


def whole(value: Any) -> int:
    """Returns a number as an int, which NumPy's are not; -1 if it is not whole, or a truth."""
    if isinstance(value, bool):
        return -1
    try:
        return index(value)
    except TypeError:
        return -1


def start(options: StepOptions, values: Mapping[str, Any]) -> int:
    """Opens a session for one optimizer, on the parameter servers that run; a collective call.

    Args:
        options: the same on all ranks.
        values: of the parameters: `dtype`, `shapes`, and `keys`, under which the table of variables
            knows them.

    Returns:
        Its number.

    Raises:
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    session = sessions.draw_number()
    parameters = parameter_server.key_of(session)
    facts = {**dataclasses.asdict(options), **values, "parameters": parameters}
    return sessions.open_session("elastic_bsp", facts, session=session)
