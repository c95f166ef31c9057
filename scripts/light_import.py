"""Imports single modules of packages that import TensorFlow, without their packages.

TensorFlow takes seconds to import, and commands that only launch or look have no use for it.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


@functools.cache
def light_import(name: str) -> ModuleType:
    """Returns a module that has only light imports of its own; its package is not imported.

    Args:
        name: e.g. "trepak.horovod_ext.startup".

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    package_name, _, stem = name.rpartition(".")
    package = importlib.util.find_spec(package_name)
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(f"there is no package {package_name}.", name=package_name)
    path = Path(next(iter(package.submodule_search_locations))) / f"{stem}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_alone", path)
    if spec is None or spec.loader is None or not path.exists():
        raise ModuleNotFoundError(f"there is no module {name}.", name=name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module
