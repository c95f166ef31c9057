"""What `trepak bench sven_auc` trains."""

from __future__ import annotations

from dataclasses import dataclass

SYNCHRONOUS, PIPELINE, ASYNCHRONOUS = "synchronous", "pipeline", "asynchronous servers"


@dataclass(frozen=True)
class Study:
    """Trainings on the same samples, in the same order, from the same weights.

    Attributes:
        model: "wide_deep", "deepfm" or "dcn".
        batch: samples, of all ranks.
        seed: of samples and weights.
        schedules: of SYNCHRONOUS, PIPELINE and ASYNCHRONOUS.
        samples: that are trained, once each.
        held_out: that the AUC is of.
        workers: of the asynchronous servers.
        rate: multiplies the learning rates.
    """

    model: str
    batch: int
    seed: int
    schedules: tuple[str, ...]
    samples: int = 1_000_000
    held_out: int = 200_000
    workers: int = 16
    rate: float = 1.0
