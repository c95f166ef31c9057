"""TensorFlow ops of trepak: definitions, thin kernels and the loader of the native library.

Importing this package imports neither TensorFlow nor the native library; the names below are
resolved at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trepak.ops.build_info import BuildInfo, get_build_info
    from trepak.ops.emulation import emulated_compute
    from trepak.ops.loader import load

__all__ = ["BuildInfo", "emulated_compute", "get_build_info", "load"]

_HOMES = {
    "BuildInfo": "trepak.ops.build_info",
    "emulated_compute": "trepak.ops.emulation",
    "get_build_info": "trepak.ops.build_info",
    "load": "trepak.ops.loader",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
