"""The methods by which benches in a lab exchange gradients, and the jobs that measure them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ALONE = "one worker"
VANILLA = "vanilla"
PARTITION = "partition"
SLICING = "partition + slicing"
END_HOST = "end-host queue"
OVERLAP = "overlap, no priorities"
GERYON = "Geryon"
RING = "Horovod ring"
RAW_GROUPED = "raw Horovod, grouped"
RAW_EACH = "raw Horovod, per gradient"
BSP = "trepak"
BSP_OVERLAP = "trepak, overlap(model)"
FIVE_METHODS = (VANILLA, SLICING, END_HOST, OVERLAP, GERYON)

THRESHOLD_K = 1024  # the paper's default slicing threshold, in units of 1,024 elements
SLICES_K = (THRESHOLD_K, 512, 256)  # those of its Figure 7 and Table IV
_PULL_SEED = 7

_WITHOUT_SERVERS = (ALONE, RING, RAW_GROUPED, RAW_EACH, BSP, BSP_OVERLAP)

# What a job is for.
FIGURES = "the paper's figures"
ALTERNATIVES = "beside TensorFlow's own parameter servers"
SUMS = "slices of full size"


@dataclass(frozen=True)
class Method:
    """A method of exchanging gradients, with one slicing threshold.

    Attributes:
        kind: one of this module's names.
        slice_k: slicing threshold in units of 1,024 elements, before the network is shrunk.
    """

    kind: str
    slice_k: int = THRESHOLD_K

    @property
    def name(self) -> str:
        """Its kind, and the threshold where that is not the default."""
        return self.kind if self.slice_k == THRESHOLD_K else f"{self.kind}, {self.slice_k}K"

    @property
    def graph(self) -> str:
        """Arms with the same one run the same TensorFlow graph."""
        if self.kind in _WITHOUT_SERVERS:
            return self.kind
        return "pull after all pushes" if self.pulls_last else "pull with each push"

    @property
    def pulls_last(self) -> bool:
        """Whether sums are asked for when a step has pushed everything, as TensorFlow does."""
        return self.kind in (VANILLA, PARTITION, SLICING)

    def steps(self, usual: int) -> int:
        """Returns how many steps to measure: of vanilla, up to 5 times as slow, fewer."""
        return max(2, usual // 2) if self.kind == VANILLA else usual

    def transport(self, shrink: float, threshold: float | str) -> Any:
        """Returns its transport; None where there is none.

        Args:
            shrink: what the network's variables were divided by.
            threshold: of Geryon's urgency.
        """
        import trepak
        from trepak.horovod_ext.collective_lanes import Collectives, rules_of

        slice_elements = max(1, round(1024 * self.slice_k / shrink))
        seed = _PULL_SEED if self.pulls_last else None
        if self.kind == BSP_OVERLAP:
            return Collectives(lambda total: rules_of(round(total * shrink)).divided(shrink))
        if self.kind in _WITHOUT_SERVERS:
            return None
        if self.kind == GERYON:
            return trepak.Geryon(threshold, slice_elements=slice_elements)
        if self.kind in (VANILLA, PARTITION):
            return trepak.ParameterServers(0, split=self.kind == PARTITION, pull_seed=seed)
        return trepak.ParameterServers(
            slice_elements, pull_seed=seed, by_layer=self.kind == END_HOST
        )


@dataclass(frozen=True)
class Network:
    """One network to train.

    Attributes:
        model: its name in the zoo.
        batch: samples per worker and step, as in the paper.
        threshold: of urgency, for Geryon.
        stretch: S (see `Job`) that leaves 2 cores half idle with 8 workers.
        efficiency: the paper's scaling efficiency with 8 workers, by Gbit/s: vanilla, partition and
            slicing, Geryon (Tables II and III); empty for what is not one of its four.
        options: of the architecture; see `zoo.build`.
    """

    model: str
    batch: int
    threshold: float | str
    stretch: float
    efficiency: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, shrink: float, stretch: float) -> Any:
        """Returns it, emulated on a K40; see `Job`."""
        from trepak.models import zoo

        return zoo.build(
            self.model, emulate="k40", shrink=shrink, stretch=stretch, **dict(self.options)
        )


NETWORKS = (
    Network("alexnet", 512, "coarse", 2.0, {10: (0.364, 0.802, 0.954), 40: (0.794, 0.900, 0.951)}),
    Network("vgg19", 64, "coarse", 2.0, {10: (0.269, 0.793, 0.946), 40: (0.617, 0.853, 0.948)}),
    Network("resnet50", 64, 0.5, 5.0, {10: (0.876, 0.900, 0.957), 40: (0.941, 0.941, 0.961)}),
    Network("yolo", 64, "coarse", 2.0, {10: (0.209, 0.758, 0.915), 40: (0.532, 0.842, 0.936)}),
)


@dataclass(frozen=True)
class Job:
    """One job of the bench: a network on some workers, at some rate, by several methods.

    Attributes:
        network: which.
        workers: how many, each with a server beside it.
        gbit: rate of the links that is stood for, in Gbit/s.
        shrink: F, what variables, slicing threshold and rate are divided by.
        methods: what is measured, interleaved.
        rounds: how often.
        steps: of each method in each round.
        stretch: S, what the rate is divided by too, and how many times as long computing takes.
        cycle_ms: how often Horovod's thread looks for work, which it has for collectives alone.
        purpose: `FIGURES`, or what else it is for.
        fusion_mb: MiB that Horovod fuses at most, before it is divided by F; None: its own default.
        warm: steps before those of a round that are not measured; the pipeline fills.
        attempts: how often a method is measured, at most, while others take the CPU.
    """

    network: Network
    workers: int
    gbit: int
    shrink: float
    methods: Sequence[Method] = field(default=())
    rounds: int = 3
    steps: int = 6
    stretch: float = 1.0
    cycle_ms: int = 50
    purpose: str = FIGURES
    fusion_mb: float | None = None
    warm: int = 2
    attempts: int = 3

    @property
    def bits_per_second(self) -> int:
        """The rate of the lab's links."""
        return round(self.gbit * 1e9 / (self.shrink * self.stretch))

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of its workers."""
        set_ = {
            "HOROVOD_CYCLE_TIME": str(self.cycle_ms),
            "TREPAK_DEADLINE_SECONDS": "300",  # tracing takes one longer than another
        }
        if self.fusion_mb is not None:
            set_["HOROVOD_FUSION_THRESHOLD"] = str(round(self.fusion_mb * 2**20 / self.shrink))
        return set_

    @property
    def has_all_thresholds(self) -> bool:
        """Whether Geryon is measured with several slicing thresholds."""
        return len({method.slice_k for method in self.methods if method.kind == GERYON}) > 1

    @property
    def title(self) -> str:
        """What its table is called."""
        scale = f"F = {self.shrink:g}, S = {self.stretch:g}"
        about = "" if self.purpose == FIGURES else f", {self.purpose}"
        return f"{self.network.model}, {self.workers} workers, {self.gbit} Gbit/s, {scale}{about}"
