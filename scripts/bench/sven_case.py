"""What the processes of `trepak bench sven` are told to measure."""

from __future__ import annotations

from dataclasses import dataclass

from trepak.scripts.bench.sven_arithmetic import Step

MEMORY, FILE, RANDOM, HOT = "all in memory", "all in the file", "random rows", "hot rows"
ARMS = (MEMORY, FILE, RANDOM, HOT)
PLACED_SCALE = 0.1  # of Criteo's vocabularies, in two tiers


@dataclass(frozen=True)
class Pipeline:
    """How a model takes its steps.

    Attributes:
        stages: of `trepak.pipeline`.
        readers: processes that read, shard and route its input; 0: ranks do that themselves.
    """

    stages: int
    readers: int = 0

    def __str__(self) -> str:
        """As tables and pictures call it."""
        return f"{self.stages} stages" + ", readers" * (self.readers > 0)


PLAIN, READ_AHEAD, WHOLE = Pipeline(0), Pipeline(1, readers=1), Pipeline(4)
EACH = (PLAIN, WHOLE)


@dataclass(frozen=True)
class Case:
    """A model, and what is measured of it.

    Attributes:
        model: its name.
        columns: floats of an id's rows.
        allreduced_bytes: of dense gradients.
        batch: samples of a rank.
        times: of a step, in the lab.
        pipelines: that it is trained with.
        steps: that are measured of each, in each round.
    """

    model: str
    columns: int
    allreduced_bytes: int
    batch: int
    times: Step
    pipelines: tuple[Pipeline, ...]
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
