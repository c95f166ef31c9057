"""Finds the native libraries, loads the ops', once, when needed, and calls their functions."""

from __future__ import annotations

import ctypes
import json
import re
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = [
    "call",
    "call_before_ops",
    "in_place",
    "library_path",
    "load",
    "load_horovod_driver",
    "mpi_yield_path",
]

_REMEDY = (
    "Rebuild it for this TensorFlow: run `make setup` in trepak's source folder, or "
    "`pip install -e . --no-build-isolation` there."
)
_PATTERN = "_trepak_ops.tf{minor}.so"
# What Python's JSON has and JSON has not, and text, in which it is but text.
_NO_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity')

_lock = threading.Lock()
_loaded: dict[Path, ModuleType] = {}  # Guarded by _lock.
# By the arguments of `load`: to look for the file costs more than an op.
_found: dict[tuple[Path | None, str | None], ModuleType] = {}


def library_path(directory: Path | None = None, tensorflow_version: str | None = None) -> Path:
    """Returns the library that fits the running TensorFlow.

    TensorFlow's C++ ABI changes with each minor version, so there is one library for each, told
    apart by file name.

    Args:
        directory: Where to look. Default: beside this file, where the build puts it.
        tensorflow_version: The version it must fit, e.g. "2.21.0". Default: the running one.

    Raises:
        ImportError: There is no library, or only libraries for other versions.
    """
    if directory is None:
        directory = Path(__file__).parent
    if tensorflow_version is None:
        import tensorflow as tf

        tensorflow_version = tf.__version__
    minor = ".".join(tensorflow_version.split(".")[:2])
    path = directory / _PATTERN.format(minor=minor)
    if path.is_file():
        return path
    # No := here: AutoGraph, which converts what a tf.function calls, knows none.
    found = [re.search(r"\.tf([0-9.]+)\.so$", file.name) for file in directory.iterdir()]
    others = sorted(match.group(1) for match in found if match)
    if others:
        raise ImportError(
            f"trepak's native library was built for TensorFlow {', '.join(others)}, but "
            f"TensorFlow {tensorflow_version} is running: {path} is missing. {_REMEDY}",
            path=str(path),
        )
    raise ImportError(
        f"trepak's native library for TensorFlow {tensorflow_version} has not been built: "
        f"{path} is missing. {_REMEDY}",
        path=str(path),
    )


def mpi_yield_path() -> Path:
    """Returns the library that, in LD_PRELOAD, makes Open MPI's ranks sleep while they wait.

    Raises:
        ImportError: It has not been built.
    """
    return _beside_this("_trepak_mpi_yield.so")


def load_horovod_driver() -> None:
    """Loads the library by which native code reduces through Horovod's core.

    Raises:
        ImportError: It has not been built, Horovod has not been loaded, or is another one.
    """
    path = _beside_this("_trepak_horovod.so")
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(
            f"{path} can't be loaded: {error}. It needs the Horovod that it was built with, loaded "
            f"before (import horovod.tensorflow). {_REMEDY}",
            path=str(path),
        ) from error


def _beside_this(name: str) -> Path:
    path = Path(__file__).parent / name
    if not path.is_file():
        raise ImportError(f"{path} is missing. {_REMEDY}", path=str(path))
    return path


def load(directory: Path | None = None, tensorflow_version: str | None = None) -> ModuleType:
    """Returns the module of the native ops, e.g. `load().trepak_digests(values)`.

    The first call loads the library, later ones return the same module. Safe to call from several
    threads.

    Args:
        directory: As for `library_path`.
        tensorflow_version: As for `library_path`.

    Raises:
        ImportError: The library is missing, or was built for another TensorFlow.
    """
    asked = (directory, tensorflow_version)
    if asked not in _found:
        path = library_path(directory, tensorflow_version).resolve()
        with _lock:
            if path not in _loaded:
                _loaded[path] = _load_library(path)
            _found[asked] = _loaded[path]
    return _found[asked]


def call(function: str, **arguments: Any) -> Any:
    """Calls a function of the native library, at once, also while a tf.function is traced.

    Args:
        function: what it is registered as; see `ops/calls.h`.
        arguments: what JSON can hold, infinities, and NumPy's arrays and numbers.

    Returns:
        What JSON can hold, and infinities.

    Raises:
        ImportError: As for `load`.
        tf.errors.NotFoundError: There is no such function, or it says so.
        tf.errors.InvalidArgumentError: An argument is missing or wrong.
        tf.errors.OpError: What else the function says.
    """
    return _call(load(), function, arguments)


def in_place(array: Any) -> dict[str, Any]:
    """Returns what `call` takes as an argument so that the function uses an array where it lies.

    Args:
        array: of NumPy, contiguous; the caller keeps it until the call has returned.

    Raises:
        ValueError: it is not contiguous.
    """
    if not array.flags.c_contiguous:
        raise ValueError("a native function uses an array in place only if it is contiguous.")
    return {
        "address": array.ctypes.data,
        "size": array.size,
        "dtype": array.dtype.name,
        "is_writable": bool(array.flags.writeable),
    }


def call_before_ops(function: str, **arguments: Any) -> str:
    """Calls a function of the native library that must come before TensorFlow takes memory.

    `call` runs an op, for which TensorFlow does.

    Args:
        function: one of C, trepak_NAME in the library: JSON in, text out.
        arguments: what JSON can hold.

    Returns:
        What the function says.

    Raises:
        ImportError: As for `load`.
    """
    load()
    return _plainly(library_path().resolve(), function, json.dumps(arguments).encode())


def _plainly(path: Path, function: str, *arguments: bytes) -> str:
    called = getattr(ctypes.CDLL(str(path)), f"trepak_{function}")
    called.restype = ctypes.c_char_p
    said: bytes = called(*arguments)
    return said.decode()


def _call(module: ModuleType, function: str, arguments: dict[str, Any]) -> Any:
    import tensorflow as tf

    text = json.dumps(arguments, default=_as_plain)
    with tf.init_scope(), tf.device(None), tf.device("CPU:0"):  # of this process
        result = module.trepak_call(function, _NO_JSON.sub(_as_json, text)).numpy()
    return json.loads(result, object_hook=_as_number)


def _as_plain(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise TypeError(f"a native function can't be given {type(value).__name__}: {value!r}")
    return value.tolist()


def _as_json(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else f'{{"number": "{match[0]}"}}'


def _as_number(made: dict[str, Any]) -> Any:
    return float(made["number"]) if made.keys() == {"number"} else made


def _load_library(path: Path) -> ModuleType:
    import tensorflow as tf

    try:
        module: ModuleType = tf.load_op_library(str(path))
    except (tf.errors.OpError, RuntimeError, OSError) as error:
        # The dynamic linker's message: an undefined symbol (another build of TensorFlow), a
        # damaged file, another machine's.
        raise ImportError(
            f"trepak's native library {path} can't be loaded into TensorFlow {tf.__version__}: "
            f"{error}. {_REMEDY}",
            path=str(path),
        ) from error
    _check_version(module, path, tf.__version__)
    return module


def _check_version(module: ModuleType, path: Path, running: str) -> None:
    """Checks what the library says of itself: a file name can lie (copied, renamed)."""
    if not hasattr(module, "trepak_call"):
        # TensorFlow gives an op to the first library that registers it.
        raise ImportError(
            f"{path} brings no ops: either it is not trepak's native library, or another copy of "
            "it has been loaded in this process. Use one trepak installation per process.",
            path=str(path),
        )
    compiled = _plainly(path, "compiled_for")
    if compiled.split(".")[:2] != running.split(".")[:2]:
        raise ImportError(
            f"trepak's native library {path} was compiled against TensorFlow {compiled}, but "
            f"TensorFlow {running} is running. {_REMEDY}",
            path=str(path),
        )
