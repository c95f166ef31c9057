"""scripts/setup.sh: the real script, with stubs in place of the machine's tools."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from setup_machine import Machine

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "g++ make cmake pkg-config libopenmpi-dev openmpi-bin libzmq3-dev libsodium-dev "
    "nlohmann-json3-dev libxxhash-dev libucx-dev iproute2 libgtest-dev libgmock-dev clang-format "
    "python3 python3-venv"
)


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
    assert re.search(r"\[1/4\] System packages … \d+ s\n", done.stdout)
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
