"""How long a round of RNA waits for the faster of some probed nodes, simulated (Figure 5.7)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

NODES = 100
SHORTEST_MS, LONGEST_MS = 10.0, 50.0
CHOICES = (1, 2, 3, 4, 8)
THESIS = 2.4  # as fast with two choices as with one
PROBES = "response of probed nodes, simulated (Figure 5.7)"

Times = NDArray[np.float64]


@functools.cache
def fresh_tasks(choices: int, rounds: int, seed: int, nodes: int = NODES) -> Times:
    """Returns each round's response if every node begins a task with the round.

    Args:
        choices: nodes that are probed; the first one to end its task is waited for.
        rounds: how many.
        seed: of tasks and draws.
        nodes: of the cluster.

    Returns:
        Milliseconds, [rounds].
    """
    rng = np.random.default_rng(seed)
    tasks = rng.uniform(SHORTEST_MS, LONGEST_MS, (rounds, nodes))
    probed = np.array([rng.choice(nodes, choices, replace=False) for _ in range(rounds)])
    return np.take_along_axis(tasks, probed, axis=1).min(axis=1)


@functools.cache
def lasting_tasks(choices: int, rounds: int, seed: int, nodes: int = NODES) -> Times:
    """Returns each round's response if tasks go on while rounds come and go, as RNA's do.

    A node begins its next task when it has ended one. A round waits until one of the probed nodes
    ends the task that it is at; what others have ended meanwhile goes into the round too.

    Args:
        choices: as for `fresh_tasks`.
        rounds: as for `fresh_tasks`, after as many that let the nodes drift apart.
        seed: as for `fresh_tasks`.
        nodes: as for `fresh_tasks`.

    Returns:
        Milliseconds, [rounds].
    """
    rng = np.random.default_rng(seed)
    ends = rng.uniform(SHORTEST_MS, LONGEST_MS, nodes)
    now, responses = 0.0, np.empty(2 * rounds)
    for number in range(2 * rounds):
        probed = rng.choice(nodes, choices, replace=False)
        began, now = now, ends[probed].min()
        responses[number] = now - began
        while (late := ends <= now).any():
            ends[late] += rng.uniform(SHORTEST_MS, LONGEST_MS, late.sum())
    return responses[rounds:]


LASTING = "tasks last across rounds"
READINGS: dict[str, Callable[..., Times]] = {
    "tasks begin with the round": fresh_tasks,
    LASTING: lasting_tasks,
}


def speedup(reading: Callable[..., Times], rounds: int, seed: int) -> float:
    """Returns how many times longer the median response with one choice is than with two."""
    one, two = (float(np.median(reading(choices, rounds, seed))) for choices in (1, 2))
    return one / two


def rows(rounds: int) -> list[dict[str, Any]]:
    """Returns each reading's median responses, for a report."""
    found = []
    for name, reading in READINGS.items():
        medians = {
            f"{choices}_choices_ms": float(np.median(reading(choices, rounds, seed=0)))
            for choices in CHOICES
        }
        speedup = medians["1_choices_ms"] / medians["2_choices_ms"]
        three = medians["1_choices_ms"] / medians["3_choices_ms"]
        found.append(
            {
                "kind": PROBES,
                "reading": name,
                **medians,
                "speedup": speedup,
                "speedup_of_3_choices": three,
                "thesis": THESIS,
                "exponent_for_thesis": needed_exponent(THESIS),
            }
        )
    return found


def needed_exponent(ratio: float) -> float:
    """Returns the a for which residual times with P(X <= x) ~ x^a have that ratio of medians.

    With q choices the median m solves (1 - F(m))^q = 1/2. For F(x) = x^a the ratio of the medians
    with one and with two choices is (0.5 / (1 - sqrt(0.5)))^(1/a): a = 1 has 1.71, and smaller a
    mean more nodes that are about to end.
    """
    return float(np.log(0.5 / (1 - np.sqrt(0.5))) / np.log(ratio))
