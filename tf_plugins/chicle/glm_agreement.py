"""What all ranks must have alike before they fit a linear model together.

Each rank reads and checks what it was given. Then they tell each other what came of it, so that a
rank that has failed, or was asked for another model, is named on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.cluster import Cluster

_OF_ONE_RANK = ("random_state", "verbose")  # parameters that may differ


def agree(model: Any, read: Callable[[], Any], cluster: Cluster) -> Any:
    """Reads this rank's samples, and checks that all ranks can fit a model together.

    A collective call.

    Args:
        model: that is asked for.
        read: reads and checks what this rank was given: `Samples`.
        cluster: the ranks.

    Returns:
        What was read.

    Raises:
        ValueError: the ranks were asked for different models, or have samples of different features
            or dtypes, or none at all; or another rank's are wrong. Raised on all ranks.
        Exception: what `read` raises.
    """

    def make() -> tuple[Any, tuple[dict[str, str], int]]:
        part = read()
        return part, (_facts(model, part.x, str(part.x.dtype)), part.x.shape[0])

    part, told = cluster.together(make, "what is to be fitted")
    first = told[0][0]
    for rank, (facts, _) in enumerate(told):
        for name, value in first.items():
            if facts.get(name) != value:
                raise ValueError(
                    f"rank 0 fits a model with {name} = {value}, rank {rank} one with "
                    f"{facts.get(name)}: give all ranks the same."
                )
    if not any(samples for _, samples in told):
        raise ValueError(
            f"none of the {len(told)} ranks has samples for {type(model).__name__}: give fit "
            "samples on one rank at least, or a source that has some."
        )
    return part


def agreed_facts(model: Any, x: Any, dtype: str | None = None) -> str:
    """Returns in words what all ranks must have alike.

    Args:
        model: that is asked for.
        x: [samples, features].
        dtype: of the samples, if it is not that of x.
    """
    facts = _facts(model, x, dtype or str(x.dtype))
    return ", ".join(f"{name} = {value}" for name, value in facts.items())


def _facts(model: Any, x: Any, dtype: str) -> dict[str, str]:
    parameters = {
        name: repr(value) for name, value in model.get_params().items() if name not in _OF_ONE_RANK
    }
    about = {"class": type(model).__name__, "features": x.shape[1], "dtype": dtype}
    return {**{name: str(value) for name, value in about.items()}, **parameters}


def all_classes(y: np.ndarray, cluster: Cluster) -> np.ndarray:
    """Returns the classes that any rank has, in order, of one dtype; a collective call.

    Raises:
        ValueError: some ranks' are text, and others' are numbers.
    """
    mine = np.unique(y)
    if cluster.size == 1:
        return mine
    told = [mine.tolist(), "O" if mine.dtype.kind == "O" else mine.dtype.str]
    everyone = cluster.gather(told if len(mine) else None, "the classes")
    has_some = [(rank, *theirs) for rank, theirs in enumerate(everyone) if theirs is not None]
    dtypes = [np.dtype(dtype) for _, _, dtype in has_some]
    kinds = {"text" if dtype.kind in "USO" else "numbers" for dtype in dtypes}
    if len(kinds) > 1:
        named = ", ".join(f"rank {rank} {dtype}" for rank, _, dtype in has_some)
        raise ValueError(f"the ranks' classes are of kinds that can't be mixed: {named}.")
    values = sorted({one for _, some, _ in has_some for one in some})
    return np.asarray(values, np.result_type(*dtypes) if dtypes else None)
