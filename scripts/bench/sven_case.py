"""What the processes of `trepak bench sven` are told to measure."""

from __future__ import annotations

from dataclasses import dataclass

from trepak.scripts.bench.sven_arithmetic import Step

STAGES = (0, 1, 4)
MEMORY, FILE, RANDOM, HOT = "all in memory", "all in the file", "random rows", "hot rows"
ARMS = (MEMORY, FILE, RANDOM, HOT)
PLACED_SCALE = 0.1  # of Criteo's vocabularies, in two tiers


@dataclass(frozen=True)
class Case:
    """A model, and what is measured of it.

    Attributes:
        model: its name.
        columns: floats of an id's rows.
        allreduced_bytes: of dense gradients.
        batch: samples of a rank.
        times: of a step, in the lab.
        stages: of the pipelines.
        steps: that are measured of each, in each round.
    """

    model: str
    columns: int
    allreduced_bytes: int
    batch: int
    times: Step
    stages: tuple[int, ...]
    steps: int


@dataclass(frozen=True)
class Arm:
    """Where the rows of a table lie.

    Attributes:
        placement: of ARMS.
        batches: that are timed.
    """

    placement: str
    batches: int
