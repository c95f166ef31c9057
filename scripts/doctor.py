"""Shows what a user's installation consists of: the first thing to ask for in a bug report."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

import trepak
from trepak.scripts.entrance import console as plain_console
from trepak.scripts.entrance import table_of
from trepak.scripts.errors import printable


def examine(console: Console | None = None) -> int:
    """Prints versions, builds and settings.

    Args:
        console: where to print; standard output by default.

    Returns:
        The exit code: 1 if something that trepak needs is missing or wrong, else 0.
    """
    console = console or plain_console()
    healthy = True
    table = table_of("installation", "what")
    table.add_column("found", overflow="fold")
    for name, find in (
        ("trepak", lambda: trepak.__version__),
        ("Python", platform.python_version),
        ("TensorFlow", _tensorflow),
        ("Keras", _keras),
        ("Horovod", _horovod),
        ("native library", _native_library),
    ):
        found, well = _ask(find)
        healthy &= well
        table.add_row(name, Text(found, style="" if well else "bold red"))
    console.print(table)
    try:
        console.print(_knobs())
    except ImportError:
        return 1  # the table above says why
    for problem in _wrong_settings():
        healthy = False
        console.print(printable(problem), style="bold red", soft_wrap=True)
    return 0 if healthy else 1


def _ask(find: Callable[[], str]) -> tuple[str, bool]:
    """Returns what was found, or what is wrong, and whether all is well."""
    try:
        return find(), True
    except Exception as error:  # whatever is broken, the other answers are still wanted
        return f"{type(error).__name__}: {error}", False


def _tensorflow() -> str:
    import trepak.horovod_ext  # noqa: F401  (imports TensorFlow quietly, and checks its version)

    # isort: split
    import tensorflow as tf

    return str(tf.__version__)


def _keras() -> str:
    import trepak.horovod_ext  # noqa: F401

    # isort: split
    import keras

    return f"{keras.__version__} on {keras.backend.backend()}"


def _horovod() -> str:
    from importlib.metadata import version

    import trepak.keras as hvd

    built = {"MPI": hvd.mpi_built(), "Gloo": hvd.gloo_built(), "NCCL": hvd.nccl_built()}
    support = ", ".join(name if has else f"no {name}" for name, has in built.items())
    if not (built["MPI"] and built["Gloo"]):
        raise RuntimeError(f"{version('horovod')} with {support}; rebuild it with `make setup`")
    return f"{version('horovod')} with {support}"


def _native_library() -> str:
    from trepak.ops import get_build_info

    info = get_build_info()
    return (
        f"{info.version} for TensorFlow {info.tensorflow}, {info.compiler}, {info.cxx_standard}, "
        f"{info.build_type}"
    )


def _knobs() -> Any:
    from trepak.horovod_ext.config import KNOBS, value

    table = table_of("settings (environment variables)", "variable", "value", "meaning")
    for knob in KNOBS:
        is_set = value(knob.name) != knob.default
        found = printable(value(knob.name)) + (" *" if is_set else "")
        table.add_row(knob.name, found, knob.meaning)
    table.caption = "* differs from the default"
    return table


def _wrong_settings() -> Iterator[str]:
    from trepak.horovod_ext.config import check_environment

    try:
        check_environment(os.environ)
    except ValueError as error:
        yield str(error)
