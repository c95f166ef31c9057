"""TensorFlow ops of trepak: definitions, thin kernels and the loader of the native library.

Importing this package imports neither TensorFlow nor the native library.
"""

from trepak.ops.build_info import BuildInfo, get_build_info
from trepak.ops.emulation import emulated_compute
from trepak.ops.loader import load

__all__ = ["BuildInfo", "emulated_compute", "get_build_info", "load"]
