"""How gradients are reduced: the options that optimizers and tapes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trepak.horovod_ext import basics, collectives
from trepak.horovod_ext.gradient_transport import GradientTransport


@dataclass(frozen=True)
class ReduceOptions:
    """How gradients are reduced; the defaults are Horovod's.

    Attributes:
        op: Average or Sum.
        compression: how dense gradients travel, `Compression.none` or `Compression.fp16`.
        sparse_as_dense: turn IndexedSlices into dense tensors first.
        gradient_predivide_factor: f splits the average: gradients are divided by f before the sum
            and multiplied by f / size after it.
        groups: number of groups that are reduced as one, or lists of variables; None makes
            buckets in the order of backward, see `gradient_groups`.
        process_set: the ranks that take part; a rank outside keeps its own gradients.
        scale_local_gradients: divide the gradients of local variables by the size.
        device_dense: device on which dense gradients are reduced.
        device_sparse: device on which IndexedSlices are gathered.
        transport: carries dense float32 and float64 gradients that are not compressed, of all
            ranks; None, and all others, use Horovod's collectives.
    """

    op: Any = collectives.Average
    compression: Any = collectives.Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    groups: Any = None
    process_set: basics.ProcessSet = basics.global_process_set
    scale_local_gradients: bool = True
    device_dense: str = ""
    device_sparse: str = ""
    transport: GradientTransport | None = None

    def __post_init__(self) -> None:
        """Raises ValueError or TypeError for options that are wrong or exclude each other."""
        if self.op not in (collectives.Average, collectives.Sum):
            raise ValueError("op must be Average or Sum for gradients.")
        if self.gradient_predivide_factor <= 0:
            raise ValueError(
                f"gradient_predivide_factor must be positive, got {self.gradient_predivide_factor}."
            )
        if self.gradient_predivide_factor != 1.0 and self.op != collectives.Average:
            raise ValueError(
                "gradient_predivide_factor splits an average: use it with op=Average, or leave it "
                "at 1.0."
            )
        if isinstance(self.groups, int) and self.groups < 0:
            raise ValueError(f"groups must not be negative, got {self.groups}.")
        if self.transport is not None and not isinstance(self.transport, GradientTransport):
            raise TypeError(
                f"transport must be a trepak transport such as trepak.Geryon(), got "
                f"{self.transport!r}."
            )
