"""The system of docs/adding_a_system.md: put into a copy of the repository, built, and run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import package_of, run_job

ROOT = Path(__file__).parents[2]
MOST_LINES = 250
_BLOCK = re.compile(r"^```(\w+) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """Returns language, path and text of each block of the page that names a file."""
    page = (ROOT / "docs" / "adding_a_system.md").read_text()
    return [(language, path, text) for language, path, text in _BLOCK.findall(page)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a copy of the repository with the system of the page."""
    tree = tmp_path_factory.mktemp("tree") / "trepak"
    names = ("trepak", "tf_plugins", "horovod_ext", "ops", "models", "scripts", "tests")
    for name in names:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for language, path, text in blocks():
        file = tree / path
        if language != "diff":
            assert not file.exists(), path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            continue
        lines = text.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        after = "".join(line[1:] for line in lines if line[0] != "-")
        old = file.read_text()
        assert old.count(before) == 1, (path, before)
        file.write_text(old.replace(before, after))
    return tree


def test_a_system_is_at_most_250_lines() -> None:
    added = {
        path: sum(language != "diff" or line[0] == "+" for line in text.splitlines())
        for language, path, text in blocks()
    }
    assert len(added) == 5 and sum(added.values()) <= MOST_LINES, added


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"


def build_folder() -> Path:
    """Returns where the set-up has built the library that is in use."""
    from trepak.ops.loader import library_path

    library = library_path().name  # _trepak_ops.tf2.21.so
    return ROOT / "build" / f"native-{library.removeprefix('_trepak_ops.').removesuffix('.so')}"


@pytest.fixture(scope="module")
def built(copy: Path) -> Path:
    """Compiles the session, and links the library with it as the set-up has done without."""
    folder = build_folder()
    commands = json.loads((folder / "compile_commands.json").read_text())
    model = next(one for one in commands if one["file"].endswith("ops/adpsgd_session.cc"))
    compiled = copy / "ops" / "echo_session.o"
    command = shlex.split(model["command"].replace(str(ROOT / "ops"), str(copy / "ops")))
    command = [part.replace("adpsgd_session", "echo_session") for part in command]
    command[command.index("-o") + 1] = str(compiled)
    command[command.index(f"-I{ROOT}")] = f"-I{copy}"
    run(command, folder)
    link = shlex.split((folder / "ops/CMakeFiles/trepak_ops.dir/link.txt").read_text())
    output = link.index("-o") + 1
    (copy / "ops" / Path(link[output]).name).unlink()
    link[output : output + 1] = [str(copy / "ops" / Path(link[output]).name), str(compiled)]
    run(link, folder / "ops")
    return copy


@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_it_trains_and_keeps_the_contract(built: Path, gloo: bool, tmp_path: Path) -> None:
    workers = built / "tests" / "workers"
    env = {"PYTHONPATH": f"{workers}:{package_of(built, tmp_path)}"}
    job = run_job([str(workers / "run.py"), "contract:Echo"], tmp_path / "out", gloo=gloo, env=env)
    counts = job.passed("contract")
    assert len(counts) == 2 and counts[0] == counts[1] >= 6, job.output[-4000:]
