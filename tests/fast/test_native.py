"""The native library: what it reports, and how its loader fails."""

import dataclasses
import json
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
import tensorflow as tf

from trepak import ops
from trepak.ops import loader

ROOT = Path(__file__).parents[2]
MINOR = ".".join(tf.__version__.split(".")[:2])


def test_build_info_reports_versions():
    info = ops.get_build_info()
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert info.version == tomllib.load(file)["project"]["version"]
    assert info.tensorflow == tf.__version__
    assert info.compiler.split()[0] in ("GCC", "Clang")
    assert info.cxx_standard == "C++17"
    assert info.build_type == "Release"


def test_build_info_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ops.get_build_info().version = "9"


def test_build_info_works_while_tracing():
    seen = []

    @tf.function
    def traced():
        seen.append(ops.get_build_info())
        return tf.constant(1)

    traced()
    assert seen == [ops.get_build_info()]


def test_op_works_in_a_graph_and_has_its_shape():
    module = ops.load()
    shapes = []

    @tf.function
    def graph():
        facts = module.trepak_call("build_info", "{}")
        shapes.append(facts.shape.as_list())
        return facts

    assert json.loads(graph().numpy())["tensorflow"] == tf.__version__
    assert shapes == [[]]


def test_load_returns_one_module_to_all_threads():
    modules = []
    threads = [threading.Thread(target=lambda: modules.append(loader.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(modules) == 8
    assert len(set(map(id, modules))) == 1


def test_missing_library_names_path_and_remedy(tmp_path):
    with pytest.raises(ImportError, match="has not been built") as error:
        loader.load(directory=tmp_path)
    assert error.value.path == str(tmp_path / f"_trepak_ops.tf{MINOR}.so")
    assert error.value.path in str(error.value)
    assert tf.__version__ in str(error.value)
    assert "make setup" in str(error.value)
    assert "pip install -e . --no-build-isolation" in str(error.value)


def test_library_for_another_tensorflow_names_both_versions():
    with pytest.raises(ImportError, match="2.99.1 is running") as error:
        loader.load(tensorflow_version="2.99.1")
    assert f"built for TensorFlow {MINOR}" in str(error.value)
    assert "make setup" in str(error.value)


def test_all_versions_found_are_named(tmp_path):
    for minor in ("2.19", "2.20"):
        (tmp_path / f"_trepak_ops.tf{minor}.so").touch()
    with pytest.raises(ImportError, match="built for TensorFlow 2.19, 2.20, but"):
        loader.load(directory=tmp_path)


def test_damaged_library_is_an_import_error(tmp_path):
    path = tmp_path / f"_trepak_ops.tf{MINOR}.so"
    path.write_bytes(b"not a shared library")
    with pytest.raises(ImportError, match="can't be loaded") as error:
        loader.load(directory=tmp_path)
    assert error.value.path == str(path)
    assert "make setup" in str(error.value)


def test_library_that_misses_symbols_is_an_import_error(tmp_path):
    """What another build of TensorFlow looks like to the dynamic linker."""
    source = tmp_path / "x.cc"
    source.write_text("extern int not_in_this_tensorflow(); int x = not_in_this_tensorflow();")
    path = tmp_path / f"_trepak_ops.tf{MINOR}.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", path, source], check=True)
    with pytest.raises(ImportError, match="not_in_this_tensorflow"):
        loader.load(directory=tmp_path)


def test_renamed_library_is_found_out(tmp_path):
    """A library whose file name fits, but that was compiled against another version."""
    shutil.copy(loader.library_path(), tmp_path / "_trepak_ops.tf2.99.so")
    code = (
        "import sys, pathlib, tensorflow as tf\n"
        "from trepak.ops import loader\n"
        "tf.__version__ = '2.99.0'\n"
        "try:\n"
        "    loader.load(directory=pathlib.Path(sys.argv[1]))\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    # A process of its own, because TensorFlow can't load the ops a second time.
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert f"was compiled against TensorFlow {tf.__version__}" in done.stdout, done.stderr
    assert "TensorFlow 2.99.0 is running" in done.stdout
    assert "make setup" in done.stdout


def test_second_copy_in_one_process_is_refused(tmp_path):
    path = loader.library_path()
    shutil.copy(path, tmp_path / path.name)
    code = (
        "import sys, pathlib\n"
        "from trepak.ops import loader\n"
        "loader.load()\n"
        "try:\n"
        "    loader.load(directory=pathlib.Path(sys.argv[1]))\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    # A process of its own: TensorFlow has the kernels twice then, and runs no op of ours any more.
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert "another copy" in done.stdout, done.stderr


def test_importing_ops_imports_no_tensorflow():
    code = "import sys, trepak.ops; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
