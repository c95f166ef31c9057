"""The networks of `trepak bench dymem`, and the machine whose times their replays take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trepak.tf_plugins.memory.replay import Machine

MB = 10**6

# The thesis's machine (section 4.3): GeForce GTX TITAN X, PCIe of 16 GB/s.
TITAN_X = Machine(operations_per_second=6.1e12, bytes_per_second=336e9, link_bytes_per_second=16e9)
POOL = 12 * 10**9
THIRD = 5  # the batch at which the traces are checked
TRACED = (2, 3)


@dataclass(frozen=True)
class Network:
    """A network, and what the thesis tells of it.

    Attributes:
        name: a key of `models.zoo.MODELS`, or "resnet32".
        batch: for which memory is compared (section 4.2.3).
        batches: for which throughput is compared (Figure 4.5).
        linear: it has no forks.
        saved: the part of vDNN's and SuperNeurons' memory that Dymem saves in Figure 4.4a.
    """

    name: str
    batch: int
    batches: tuple[int, ...]
    linear: bool = False
    saved: tuple[float | None, float | None] = (None, None)

    def build(self) -> Any:
        """Returns the compiled network."""
        from trepak.models import zoo
        from trepak.models.builder import Builder
        from trepak.models.resnet import resnet32

        model = resnet32(Builder()) if self.name == "resnet32" else zoo.build(self.name)
        loss = "sparse_categorical_crossentropy"
        model.compile("sgd", loss, jit_compile=False)
        return model


RESNET_32 = Network("resnet32", 100, (100,))
INCEPTION = Network("inception_v4", 128, (64, 128, 256), saved=(0.31, 0.28))
RESNET_50 = Network("resnet50", 100, (64, 100, 200, 400))
RESNET_101 = Network("resnet101", 100, (64, 100, 200))
NETWORKS = (
    RESNET_50,
    RESNET_101,
    Network("resnet152", 100, (64, 100, 200)),
    INCEPTION,
    RESNET_32,
    Network("vgg16", 128, (64, 128, 256), linear=True, saved=(0.0, 0.0)),
    Network("alexnet", 256, (256, 512), linear=True),
)
