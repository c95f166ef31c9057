"""ElasticBSP's native half, and SSP's and ASP's: a step's change goes out, parameters come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trepak.ops.loader import call, load

__all__ = ["end_step", "recorded_steps"]


def end_step(session: int, values: Sequence[Any], finite: Any) -> list[Any]:
    """Adds what a step has changed to the job's parameters; counts all ranks' samples.

    Args:
        session: its number.
        values: what the step has made of the values that it went on from: those that this function
            or `fetch_parameters` returned last.
        finite: bool tensor, whether the step's gradients were; if not, it is left out.

    Returns:
        The job's parameters, for the next step to go on from, as soon as this rank may.

    Raises:
        HorovodInternalError: it has failed, or others did not come to a barrier in time.
    """
    made = load().trepak_elastic_bsp_step(
        list(values), finite, shapes=[value.shape for value in values], session=session
    )
    return list(made)


def recorded_steps(session: int) -> NDArray[np.float64]:
    """Returns the times of the first 100,000 steps, on rank 0.

    On other ranks there are none, nor where nothing runs.

    Returns:
        float64, [steps, 4]: rank, end on rank 0's clock, computing and communication of each, in
        seconds. What a rank waits for others belongs to no step.
    """
    return np.array(call("elastic_bsp_recorded", session=session), np.float64).reshape(-1, 4)
