"""Threshold batch sizes, measured once and for all (footnote 11), and kept in a file."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import config
from trepak.tf_plugins.fela.layer_shapes import shape_key
from trepak.tf_plugins.fela.thresholds import measure

_PUBLISHED = Path(__file__).parent


@dataclass
class Profile:
    """A device's threshold batch sizes.

    Attributes:
        device: its name.
        thresholds: by layer shape (`shape_key`), samples.
        path: the file in which they are kept, beside those of other devices. None: what is not
            there is not measured.
    """

    device: str
    thresholds: dict[str, int] = field(default_factory=dict)
    path: Path | None = None

    def threshold(self, node: Any) -> int:
        """Returns the threshold batch size of the layer that a node calls.

        If it is not known, it is measured on this machine, in about a second, and kept.

        Raises:
            ValueError: it is not known, and nothing is measured.
            OSError: the file can't be written.
        """
        key = shape_key(node)
        if key not in self.thresholds:
            if self.path is None:
                raise ValueError(
                    f"the profile of {self.device} has no threshold batch size for layer "
                    f"{node.operation.name!r}, {key}: add it, or give cuts by name."
                )
            self.thresholds[key] = measure(node)
            self._keep(self.path)
        return self.thresholds[key]

    def _keep(self, path: Path) -> None:
        """Writes the file at once, so that nobody reads half of it.

        Of two processes that write at the same time one is heard; the other measures again.
        """
        devices = _read(path)
        devices[self.device] = {**devices.get(self.device, {}), **self.thresholds}
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".json", delete=False) as new:
            json.dump({"devices": devices}, new, indent=1, sort_keys=True)
        os.replace(new.name, path)


def of_this_machine(path: Path | None = None) -> Profile:
    """Returns the profile of this process' first accelerator, or its processors.

    Args:
        path: the file; by default thresholds.json in the folder that TREPAK_CACHE names.

    Raises:
        ValueError: the file is damaged.
    """
    path = config.cache_folder() / "fela" / "thresholds.json" if path is None else path
    device = _device()
    return Profile(device, _read(path).get(device, {}), path)


def published(name: str) -> Profile:
    """Returns a profile that comes with trepak: "k40", the paper's NVIDIA Tesla K40c.

    Its file says which of its numbers the paper prints.
    """
    ((device, thresholds),) = _read(_PUBLISHED / f"{name}.json").items()
    return Profile(device, thresholds)


def _read(path: Path) -> dict[str, dict[str, int]]:
    if not path.exists():
        return {}
    try:
        devices = json.loads(path.read_text())["devices"]
        for thresholds in devices.values():
            for key, threshold in thresholds.items():
                if not isinstance(threshold, int) or threshold < 1:
                    raise ValueError(f"{key!r} has the threshold {threshold!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the file of threshold batch sizes {path} is damaged ({error}): delete it, and they "
            "are measured anew."
        ) from error
    return {device: dict(thresholds) for device, thresholds in devices.items()}


def _device() -> str:
    accelerators = tf.config.list_physical_devices("GPU")
    if accelerators:
        details = tf.config.experimental.get_device_details(accelerators[0])
        return str(details.get("device_name", "an accelerator"))
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {models[0] if models else 'a processor'}"
