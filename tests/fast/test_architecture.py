"""The rules of CONTRIBUTING.md, checked on the sources."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each may import itself and what stands to its right.
LAYERS = ("scripts", "models", "tf_plugins", "horovod_ext", "ops")
# Of the runtime: each may include what stands to its left; systems none of each other.
SYSTEMS = "rna elastic_bsp adpsgd sven dymem chicle fela".split()
NATIVE_FOLDERS = [*"runtime net observe parameters lanes coordination".split(), *SYSTEMS]
FIRST_SYSTEM = NATIVE_FOLDERS.index(SYSTEMS[0])
MAX_LINES = 400
FOREIGN_TO_RUNTIME = re.compile(
    r'^\s*#\s*include\s*[<"]((tensorflow|absl|tsl|xla|unsupported|Eigen)/|ops/(?!runtime/))',
    re.MULTILINE,
)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
MODULE_NAME = re.compile(r"trepak(\.\w+)+")


def python_files(*folders):
    files = sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    assert files, f"no Python files in {folders}"
    return files


def module_name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "trepak" else ("trepak", *parts)
    return ".".join(parts)


def imported_modules(source, module, strings=True):
    """Yields (line, name) of all modules of trepak that a source imports, lazily ones included.

    Lazy imports name their modules in strings, so a string that is a module's name counts, unless
    the strings are known to name programs.
    """
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *filter(None, [node.module])])
            # What follows `import` may be a module or a name in one; both lead to the same layer.
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if MODULE_NAME.fullmatch(node.value) else []
        for name in names:
            if name.split(".")[0] == "trepak":
                yield node.lineno, name


def layering_violations(source, module):
    """Returns "line N: name" for each import that the layer of `module` may not have."""
    layer = module.split(".")[1]
    allowed = set(LAYERS[LAYERS.index(layer) :])
    if layer == "scripts":
        # Scripts stand above all, the public face included: examples use trepak as its users do.
        return []
    found = []
    for line, name in imported_modules(source, module):
        target = name.split(".")[1] if "." in name else "(face)"
        if target not in allowed:
            found.append(f"line {line}: {module} may not import {name}")
    return found


def circles(imports):
    """Returns the sets of modules that import each other, directly or by others.

    Args:
        imports: module → the modules that it imports.
    """
    reached = {module: set(names) for module, names in imports.items()}
    while True:
        grown = {
            module: names.union(*(reached.get(name, set()) for name in names))
            for module, names in reached.items()
        }
        if grown == reached:
            break
        reached = grown
    return {
        frozenset(other for other in names if module in reached.get(other, ()))
        for module, names in reached.items()
        if module in names
    }


def imports_between_files(files):
    """Returns which modules of these files import which, type-only imports included.

    Args:
        files: module → source.
    """
    found = {}
    for module, source in files.items():
        names = set()
        programs = module.startswith("trepak.scripts.")  # which are started, not imported
        for _, name in imported_modules(source, module, strings=not programs):
            while name and name not in files:  # a name in a module
                name = name.rpartition(".")[0]
            names |= {name} - {"", module}
        found[module] = names
    return found


def face_violations(source):
    """Returns the definitions in a file of the public face, which only re-exports."""
    return [
        f"line {node.lineno}: {node.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name not in ("__getattr__", "__dir__")
    ]


def undocumented(source):
    """Returns the public module, classes and functions without a docstring."""
    tree = ast.parse(source)
    missing = [] if ast.get_docstring(tree) else ["module"]
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not node.name.startswith("_") and not ast.get_docstring(node):
            missing.append(node.name)
    return missing


def source_files():
    """All files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / line for line in listed.splitlines()]
    return [f for f in files if f.suffix in (".py", ".cc", ".h", ".sh") and f.exists()]


def test_layers_import_only_to_their_right():
    found = []
    for file in python_files(*LAYERS):
        found += layering_violations(file.read_text(), module_name(file))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("trepak.ops.loader", "import trepak.horovod_ext.basics"),
        ("trepak.ops.loader", "from trepak import horovod_ext"),
        ("trepak.ops.__init__", "_HOMES = {'x': 'trepak.tf_plugins.x'}"),
        ("trepak.horovod_ext.basics", "from trepak.tf_plugins import sync"),
        ("trepak.horovod_ext.basics", "from ..tf_plugins.sync import BSP"),
        ("trepak.horovod_ext.basics", "from .. import models"),
        ("trepak.tf_plugins.sync.sync_model", "def f():\n    import trepak.models.digits"),
        ("trepak.tf_plugins.sync.sync_model", "import trepak"),
        ("trepak.tf_plugins.sync.sync_model", "import trepak.keras as hvd"),
        ("trepak.models.digits", "from trepak.scripts import cli"),
    ],
)
def test_layering_rule_finds_violations(module, source):
    assert len(layering_violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("trepak.ops.loader", "import tensorflow\nimport trepak.ops.build_info"),
        ("trepak.ops.__init__", "from . import loader"),
        ("trepak.tf_plugins.sync", "from ..horovod_ext import basics\nfrom trepak import ops"),
        ("trepak.scripts.cli", "import trepak.keras as hvd\nfrom trepak.ops import load"),
        ("trepak.models.digits", "'''See trepak.scripts for more.'''"),
    ],
)
def test_layering_rule_allows_what_is_right(module, source):
    assert layering_violations(source, module) == []


def test_no_circle_of_files():
    files = python_files("trepak", *LAYERS)
    sources = {module_name(f).removesuffix(".__init__"): f.read_text() for f in files}
    packages = {name for name in sources if any(one.startswith(name + ".") for one in sources)}
    modules = {name: source for name, source in sources.items() if name not in packages}
    assert len(modules) > 150
    assert circles(imports_between_files(modules)) == set()


def test_circle_rule_finds_a_planted_one():
    files = {
        "trepak.ops.a": "def f():\n    from trepak.ops import b",
        "trepak.ops.b": "if TYPE_CHECKING:\n    from trepak.ops.c import C",
        "trepak.ops.c": "import trepak.ops.a",
        "trepak.ops.d": "from . import a",
    }
    assert circles(imports_between_files(files)) == {
        frozenset({"trepak.ops.a", "trepak.ops.b", "trepak.ops.c"})
    }


def test_no_circle_of_native_files():
    files = {f.relative_to(ROOT).as_posix(): f for f in source_files() if f.suffix in (".h", ".cc")}
    includes = {
        name: {one for one in INCLUDE.findall(f.read_text()) if one in files}
        for name, f in files.items()
    }
    assert sum(map(len, includes.values())) > 300
    assert circles(includes) == set()
    for name, found in includes.items():
        if name.startswith("ops/runtime/"):
            mine = Path(name).parent
            others = {Path(one).parent for one in found} - {mine}
            places = [NATIVE_FOLDERS.index(other.name) for other in others]
            last = NATIVE_FOLDERS.index(mine.name)
            assert all(place < min(last, FIRST_SYSTEM) for place in places), name


def test_benches_are_imported_by_the_command_line_alone():
    """Which finds them by their names."""
    users = [
        f"{file.name}, line {line}: {name}"
        for file in python_files("trepak", *LAYERS)
        if "scripts/bench" not in file.as_posix()
        for line, name in imported_modules(file.read_text(), module_name(file))
        if name.startswith("trepak.scripts.bench.")
    ]
    assert users == []


def test_face_only_reexports():
    found = {str(file): face_violations(file.read_text()) for file in python_files("trepak")}
    assert not any(found.values()), found


def test_face_rule_finds_violations():
    source = "def __getattr__(name): ...\nif True:\n    def f(): ...\nclass C: ..."
    assert sorted(face_violations(source)) == ["line 3: f", "line 4: C"]


def test_runtime_includes_no_tensorflow():
    files = [f for f in (ROOT / "ops/runtime").rglob("*") if f.suffix in (".h", ".cc")]
    assert files
    assert [f.name for f in files if FOREIGN_TO_RUNTIME.search(f.read_text())] == []


def test_runtime_rule_finds_violations():
    assert FOREIGN_TO_RUNTIME.search('int x;\n# include "tensorflow/core/framework/op.h"\n')
    assert FOREIGN_TO_RUNTIME.search("#include <absl/status/status.h>")
    assert not FOREIGN_TO_RUNTIME.search('#include "ops/runtime/net/status.h"')


def test_no_source_file_is_too_long():
    files = source_files()
    assert ROOT / "setup.py" in files
    lengths = {str(f.relative_to(ROOT)): len(f.read_text().splitlines()) for f in files}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_everything_public_has_a_docstring():
    found = {}
    for file in python_files("trepak", *LAYERS):
        if not file.name.startswith("_") or file.name == "__init__.py":
            found[str(file.relative_to(ROOT))] = undocumented(file.read_text())
    assert {name: missing for name, missing in found.items() if missing} == {}


def test_docstring_rule_finds_violations():
    source = "def f(): ...\ndef _g(): ...\nclass C:\n    'Documented.'\nclass D: ..."
    assert undocumented(source) == ["module", "f", "D"]


@pytest.mark.parametrize("module", ["trepak", "trepak.keras"])
def test_import_has_no_side_effects(module):
    # rc.initialize: asking mpi4py must not itself initialise MPI.
    code = f"""
import {module}
import mpi4py, sys
assert "mpi4py.MPI" not in sys.modules, "mpi4py.MPI was imported"
mpi4py.rc.initialize = False
from mpi4py import MPI
assert not MPI.Is_initialized(), "MPI was initialised"
"""
    # TensorFlow's own greeting is not ours to judge.
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_import_rule_finds_initialised_mpi():
    code = """
from mpi4py import MPI
assert not MPI.Is_initialized()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "AssertionError" in done.stderr
