"""scripts/setup.sh: the real script, with stubs in place of the machine's tools."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What the script itself needs, apart from what it checks for.
TOOLS = (
    "bash basename cat cut dirname find flock getconf head mkdir paste rm sed sha256sum tail uname"
)
CHECKED = "g++ make cmake pkg-config mpicxx mpirun ip clang-format"
PACKAGES = (
    "g++ make cmake pkg-config libopenmpi-dev openmpi-bin libzmq3-dev libucx-dev iproute2 "
    "libgtest-dev libgmock-dev clang-format python3 python3-venv"
)


class Machine:
    """A checkout with a PATH on which only stubs are found."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.checkout = folder / "checkout"
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/setup.sh", self.checkout / "scripts")
        shutil.copy(ROOT / "requirements.txt", self.checkout)
        self.environment = {"PATH": str(self.bin), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        for tool in TOOLS.split():
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.stub("id", "echo 1000")

    def stub(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def equip(self):
        """Puts everything that the script checks for on the PATH."""
        for name in CHECKED.split():
            self.stub(name, f"echo {name} 1.0")
        self.stub("python3.11", "echo 3.11")

    def run(self, *arguments):
        command = [str(self.bin / "bash"), str(self.checkout / "scripts/setup.sh"), *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def key(self):
        done = self.run("horovod-key")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_everything_missing_without_root_on_debian(machine):
    machine.stub("apt-get", "echo apt-get was called; exit 1")
    done = machine.run()
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == f"trepak needs system packages that are missing: {PACKAGES}"
    assert lines[2].strip() == (
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends " + PACKAGES
    )


def test_only_what_is_missing_is_named(machine):
    machine.equip()
    machine.stub("apt-get", "exit 1")
    machine.stub("pkg-config", "[[ $2 != libzmq ]]")
    (machine.bin / "ip").unlink()
    done = machine.run("check-packages")
    assert done.returncode == 1
    assert "missing: libzmq3-dev iproute2\n" in done.stderr


def test_other_systems_get_names_but_no_debian_command(machine):
    machine.equip()
    (machine.bin / "cmake").unlink()
    done = machine.run()
    assert done.returncode == 1
    assert "missing: cmake\n" in done.stderr
    assert "Debian names" in done.stderr
    assert "apt-get" not in done.stderr


def test_nothing_missing_says_nothing(machine):
    machine.equip()
    done = machine.run("check-packages")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_root_on_debian_installs_what_is_missing(machine):
    machine.equip()
    (machine.bin / "cmake").unlink()
    machine.stub("id", "echo 0")
    machine.stub("apt-get", f'echo "$DEBIAN_FRONTEND $*" >>{machine.folder}/calls')
    # The Python stub can't make a virtual environment, so the next step fails.
    done = machine.run()
    assert done.returncode == 1
    assert (machine.folder / "calls").read_text().splitlines() == [
        "noninteractive update",
        "noninteractive install -y --no-install-recommends cmake",
    ]
    assert "[1/4] System packages … 0 s" in done.stdout
    assert "[2/4] Python packages … failed" in done.stdout


def test_failure_shows_the_end_of_the_log(machine):
    machine.stub("id", "echo 0")
    machine.stub("apt-get", "for i in {1..50}; do echo line $i; done; echo no network >&2; exit 7")
    done = machine.run()
    assert done.returncode == 1
    assert "failed after" in done.stdout
    assert "build/logs/setup.log" in done.stdout
    shown = done.stdout.splitlines()
    assert shown[-1] == "no network"
    assert "line 22" in shown
    assert "line 21" not in shown


def test_wrong_python_is_explained(machine):
    machine.equip()
    machine.stub("python3.11", "echo 3.13")
    machine.stub("id", "echo 0")
    machine.stub("apt-get", "exit 0")
    done = machine.run()
    assert done.returncode == 1
    assert "pinned for Python 3.11" in done.stderr
    assert "PYTHON=" in done.stderr


def test_python_variable_names_another_one(machine):
    machine.equip()
    (machine.bin / "python3.11").unlink()
    machine.stub("snake", "echo 3.11")
    machine.environment["PYTHON"] = str(machine.bin / "snake")
    assert machine.run("check-packages").returncode == 0


def test_cache_key_is_stable(machine):
    machine.equip()
    first = machine.key()
    assert len(first) == 16
    assert machine.key() == first


@pytest.mark.parametrize(
    ("tool", "script"),
    [
        ("g++", "echo g++ 13.1"),
        ("mpirun", "echo mpirun 5.0"),
        ("uname", "echo riscv64"),
        ("getconf", "echo glibc 9.99"),
    ],
)
def test_cache_key_depends_on_tools(machine, tool, script):
    machine.equip()
    before = machine.key()
    (machine.bin / tool).unlink()
    machine.stub(tool, script)
    assert machine.key() != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("requirements.txt", "tensorflow-cpu==2.21.0", "tensorflow-cpu==2.21.1"),
        ("scripts/setup.sh", "HOROVOD_VERSION=0.28.1", "HOROVOD_VERSION=0.28.2"),
        ("scripts/setup.sh", "PYTHON_VERSION=3.11", "PYTHON_VERSION=3.12"),
        ("scripts/setup.sh", "HOROVOD_WITH_GLOO=1", "HOROVOD_WITHOUT_GLOO=1"),
    ],
)
def test_cache_key_depends_on_versions_and_recipe(machine, file, old, new):
    machine.equip()
    before = machine.key()
    path = machine.checkout / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert machine.key() != before


def test_cache_key_ignores_what_the_wheel_does_not_depend_on(machine):
    machine.equip()
    before = machine.key()
    path = machine.checkout / "requirements.txt"
    path.write_text(path.read_text() + "another-package==1.0\n")
    machine.environment["TREPAK_JOBS"] = "7"
    assert machine.key() == before


def test_unknown_command_is_refused(machine):
    done = machine.run("install")
    assert done.returncode == 1
    assert "usage:" in done.stderr


@pytest.mark.parametrize("script", ["scripts/setup.sh", "scripts/check.sh", ".ci/run"])
def test_scripts_are_executable_and_parse(script):
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


def test_check_refuses_unknown_stages():
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/check.sh"), "nothing"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "no stage named nothing" in done.stderr
