"""Builds and installs trepak: every top-level folder X becomes the package trepak.X."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
FOLDERS = ("tf_plugins", "horovod_ext", "ops", "models", "scripts")
# Extension → CMake target; the first is compiled against TensorFlow.
OPS_LIBRARY = "trepak.ops._trepak_ops"
LIBRARIES = {
    OPS_LIBRARY: "trepak_ops",
    "trepak.ops._trepak_horovod": "trepak_horovod",
    "trepak.ops._trepak_mpi_yield": "trepak_mpi_yield",
}


def tensorflow_minor() -> str:
    """Returns "2.21" for the TensorFlow that this interpreter would import."""
    for distribution in ("tensorflow-cpu", "tensorflow"):
        try:
            return ".".join(metadata.version(distribution).split(".")[:2])
        except metadata.PackageNotFoundError:
            continue
    raise SystemExit(
        "trepak's native library is compiled against the installed TensorFlow, and none was "
        "found.\nInstall tensorflow-cpu or tensorflow 2.21 first, then run: "
        "pip install -e . --no-build-isolation"
    )


class CMakeBuild(build_ext):
    """Builds the native libraries with CMake, for normal and editable installs alike."""

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the library's path below the build root.

        The C++ ABI of TensorFlow changes with each minor version, Python's does not matter here
        (the libraries have no Python in them), so the former is what the file name carries.
        """
        # setuptools asks for full names and for their last parts.
        is_ops = OPS_LIBRARY.endswith(fullname.rpartition(".")[2])
        suffix = f".tf{tensorflow_minor()}.so" if is_ops else ".so"
        return os.path.join(*fullname.split(".")) + suffix

    def build_extension(self, ext: Extension) -> None:
        """Configures and builds, and leaves the library where setuptools expects it."""
        target = Path(self.get_ext_fullpath(OPS_LIBRARY)).resolve()
        build_dir = ROOT / "build" / f"native-tf{tensorflow_minor()}"
        cmake = os.environ.get("CMAKE", "cmake")
        subprocess.check_call(
            [
                cmake,
                "-S",
                str(ROOT),
                "-B",
                str(build_dir),
                "-DCMAKE_BUILD_TYPE=Release",
                "-DTREPAK_BUILD_TESTS=OFF",
                "-DTREPAK_BUILD_OPS=ON",
                f"-DTREPAK_PYTHON={sys.executable}",
                f"-DTREPAK_OPS_OUTPUT_DIR={target.parent}",
                f"-DTREPAK_OPS_OUTPUT_NAME={target.name}",
            ]
        )
        jobs = str(self.parallel or os.cpu_count() or 1)
        subprocess.check_call(
            [cmake, "--build", str(build_dir), "--target", LIBRARIES[ext.name], "-j", jobs]
        )


def packages() -> dict[str, str]:
    """Returns every package's name and folder, found by its __init__.py."""
    found = {"trepak": "trepak"}
    roots = {"trepak": "trepak"} | {f"trepak.{folder}": folder for folder in FOLDERS}
    for name, folder in roots.items():
        if not (ROOT / folder / "__init__.py").exists():
            continue
        found[name] = folder
        for sub in find_packages(str(ROOT / folder)):
            found[f"{name}.{sub}"] = os.path.join(folder, *sub.split("."))
    return found


PACKAGES = packages()

setup(
    packages=sorted(PACKAGES),
    package_dir=PACKAGES,
    package_data={name: ["*.json", "py.typed"] for name in PACKAGES},
    ext_modules=[Extension(name, sources=[]) for name in LIBRARIES],
    cmdclass={"build_ext": CMakeBuild},
    zip_safe=False,
)
