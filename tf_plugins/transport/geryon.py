"""Geryon: what is needed first travels first, in the whole network (papers/geryon.txt)."""

from __future__ import annotations

from collections.abc import Sequence

from trepak.ops.loader import call
from trepak.tf_plugins.transport.parameter_servers import ParameterServers

_EXPEDITED, _DEFAULT = 46, 0  # DSCP: expedited forwarding (RFC 3246), best effort


class Geryon(ParameterServers):
    """Parameter servers whose messages travel at the priority of the layer they are for.

    A layer's urgency is 1 - l/L, with l its position in forward order and L the number of layers
    (section III.B). Each priority has flows of its own, whose packets are marked with a DSCP, so
    that network interfaces and switches let the urgent ones pass.
    """

    def __init__(
        self,
        threshold: float | Sequence[float] | str = "coarse",
        dscp: Sequence[int] = (_EXPEDITED, _DEFAULT),
        slice_elements: int = 1024 * 1024,
        servers: Sequence[int] | None = None,
        fixed_order: bool = False,
    ) -> None:
        """Makes the transport; nothing runs before the first step.

        Args:
            threshold: layers of higher urgency have high priority, all others low. Several, falling
                ones make more priorities. "coarse" gives fully connected layers the second
                priority, all others the first (section III.C).
            dscp: what marks the packets of each priority, 0 to 63, the highest first; 2 to 8.
            slice_elements: see `ParameterServers`.
            servers: see there.
            fixed_order: see there.

        Raises:
            ValueError: options that are wrong.
        """
        super().__init__(slice_elements, servers, fixed_order=fixed_order, dscp=dscp)
        self.threshold = threshold
        self._thresholds = _checked(threshold, len(self.options.dscp))
        self._thresholds_set = False

    def start(self) -> None:
        """Starts the servers; see `GradientTransport.start`."""
        super().start()
        if not self._thresholds_set:
            call("set_thresholds", thresholds=self._thresholds)
            self._thresholds_set = True

    def set_threshold(self, threshold: float | Sequence[float] | str) -> None:
        """Changes the threshold from the next gradient on; servers answer as they are asked.

        Args:
            threshold: as the transport was made with.

        Raises:
            ValueError: not so many as there are borders between priorities, or they don't fall.
        """
        self._thresholds = _checked(threshold, len(self.options.dscp))
        self.threshold = threshold
        call("set_thresholds", thresholds=self._thresholds)
        self._thresholds_set = True


def _checked(threshold: float | Sequence[float] | str, priorities: int) -> list[float] | None:
    """Returns what separates the priorities; None is coarse categorization.

    Raises:
        ValueError: not so many thresholds as there are borders, or they don't fall.
    """
    if threshold == "coarse":
        return None
    if isinstance(threshold, str):
        raise ValueError(f'threshold must be "coarse" or a number, got {threshold!r}.')
    borders = [threshold] if isinstance(threshold, (int, float)) else list(threshold)
    if len(borders) != priorities - 1:
        raise ValueError(
            f"{priorities} priorities (dscp) need {priorities - 1} thresholds, got {len(borders)}."
        )
    if any(not 0 <= border <= 1 for border in borders) or borders != sorted(borders, reverse=True):
        raise ValueError(f"thresholds must be urgencies from 0 to 1 that fall, got {borders}.")
    return [float(border) for border in borders]
