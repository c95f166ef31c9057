"""What trepak's native library was built from and how."""

from __future__ import annotations

from dataclasses import dataclass

from trepak.ops.loader import call

__all__ = ["BuildInfo", "get_build_info"]


@dataclass(frozen=True)
class BuildInfo:
    """Facts about the native library, for bug reports.

    Attributes:
        version: trepak's version, e.g. "0.1.0".
        tensorflow: The TensorFlow version it was compiled against, e.g. "2.21.0".
        compiler: E.g. "GCC 12.2.0".
        cxx_standard: E.g. "C++17".
        build_type: CMake's build type, e.g. "Release".
    """

    version: str
    tensorflow: str
    compiler: str
    cxx_standard: str
    build_type: str


def get_build_info() -> BuildInfo:
    """Returns the facts that the native library reports about itself.

    Raises:
        ImportError: The library is missing, or was built for another TensorFlow.
    """
    return BuildInfo(**call("build_info"))
