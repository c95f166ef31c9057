"""Imports TensorFlow and Horovod without their start-up noise, and checks that they fit trepak.

TensorFlow 2.21 prints to file descriptor 2 while its libraries load, before any log level applies.
The lines known to be harmless are dropped; everything else is printed as it came. What TensorFlow
printed before trepak was imported can't be taken back; what it logs later, at level INFO, is off.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

SUPPORTED_TENSORFLOW = (2, 21)
SUPPORTED_KERAS = (3, 10)

_NOISE = re.compile(
    r"All log messages before absl::InitializeLog|oneDNN custom operations are on"
    r"|This TensorFlow binary is optimized|To enable the following instructions:"
    r"|computation_placer already registered|Unable to register cu|Could not find cuda drivers"
)


def is_noise(line: str) -> bool:
    """Tells whether a line that TensorFlow prints at start-up says nothing to a user."""
    return bool(_NOISE.search(line))


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Holds file descriptor 2 back while libraries load, then prints what was not noise.

    `TREPAK_QUIET=0` turns it off.
    """
    if os.environ.get("TREPAK_QUIET", "1") == "0":
        yield
        return
    # Also for processes that this one starts, and for what TensorFlow logs later at level INFO.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            for line in held.read().decode(errors="replace").splitlines():
                if not is_noise(line):
                    print(line, file=sys.stderr)


# absl::SetMinLogLevel(absl::LogSeverityAtLeast), as TensorFlow 2.21's library names it.
_SET_MIN_LOG_LEVEL = "_ZN4absl12lts_2025081414SetMinLogLevelENS0_18LogSeverityAtLeastE"
_WARNING = 1


def _raise_log_level(tf: Any) -> None:
    """Turns off level INFO of a TensorFlow that read TF_CPP_MIN_LOG_LEVEL before trepak set it."""
    library = f"{tf.sysconfig.get_lib()}/libtensorflow_framework.so.2"
    # Without the library or the name, as in a TensorFlow built elsewhere, it goes on logging.
    with contextlib.suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(library), _SET_MIN_LOG_LEVEL)(ctypes.c_int(_WARNING))


def _numbers(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def check_versions(tensorflow: str, keras: str) -> None:
    """Checks that the installed versions are those trepak is made for.

    Args:
        tensorflow: TensorFlow's version, e.g. "2.21.0".
        keras: Keras' version, e.g. "3.15.1".

    Raises:
        ImportError: a version does not fit; the message names it and the remedy.
    """
    wanted = ".".join(map(str, SUPPORTED_TENSORFLOW))
    if _numbers(tensorflow) != SUPPORTED_TENSORFLOW:
        raise ImportError(
            f"trepak needs TensorFlow {wanted}, found {tensorflow}: its native code and Horovod "
            f"are compiled against one minor version of TensorFlow. Install it with "
            f"`pip install 'tensorflow-cpu=={wanted}.*'` and rebuild with `make setup`."
        )
    if _numbers(keras) < SUPPORTED_KERAS:
        least = ".".join(map(str, SUPPORTED_KERAS))
        raise ImportError(
            f"trepak needs Keras {least} or newer, found {keras} (is TF_USE_LEGACY_KERAS set?). "
            f"Install it with `pip install 'keras>={least}'`."
        )


def _check_backend(name: str) -> None:
    if name != "tensorflow":
        raise ImportError(
            f"trepak trains on Keras' TensorFlow backend, found {name!r}. Set "
            "KERAS_BACKEND=tensorflow before Keras is imported."
        )


def import_frameworks() -> None:
    """Imports TensorFlow, Keras and Horovod's TensorFlow binding once, quietly and checked.

    Raises:
        ImportError: one is missing, of a wrong version, or uses another Keras backend; the message
            says what to do.
    """
    if "keras" not in sys.modules:
        _check_backend(os.environ.setdefault("KERAS_BACKEND", "tensorflow"))
    level_is_chosen = "TF_CPP_MIN_LOG_LEVEL" in os.environ
    is_loaded = "tensorflow" in sys.modules
    with quiet_stderr():
        import keras
        import tensorflow as tf

        if is_loaded and not level_is_chosen and "TF_CPP_MIN_LOG_LEVEL" in os.environ:
            _raise_log_level(tf)
        check_versions(tf.__version__, keras.__version__)
        _check_backend(keras.backend.backend())
        try:
            import horovod.tensorflow  # noqa: F401  (loads Horovod's core; initialises nothing)
        except ImportError as error:
            raise ImportError(
                "trepak needs Horovod 0.28.1 built for the installed TensorFlow with MPI and Gloo; "
                f"importing it failed: {error}. Build it with `make setup`."
            ) from error
