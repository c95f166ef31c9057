"""What scripts/setup.sh does again, and what it takes from the cache."""

import shutil

import pytest
from setup_machine import Machine


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


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
    machine.environment["JOBS"] = "7"
    assert machine.key() == before


def test_second_run_does_nothing(machine):
    machine.equip_for_builds()
    done = machine.run()
    assert done.returncode == 0, done.stdout
    assert "up to date" in done.stdout.splitlines()[0]
    assert "up to date" not in "".join(done.stdout.splitlines()[1:])
    assert machine.calls("pip wheel") == 1
    done = machine.run()
    assert [line.endswith("up to date") for line in done.stdout.splitlines()] == [True] * 4
    assert machine.calls("pip") == 0


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ("requirements.txt", ["Python packages", "trepak"]),
        ("ops/x_ops.cc", ["trepak"]),
        ("CMakeLists.txt", ["trepak"]),
    ],
)
def test_only_what_depends_on_a_change_is_done_again(machine, change, steps):
    machine.equip_for_builds()
    machine.run()
    with open(machine.checkout / change, "a") as file:
        file.write("# changed\n")
    lines = machine.run().stdout.splitlines()
    redone = [line for line in lines if not line.endswith("up to date")]
    assert [line[6:].split(" …")[0] for line in redone] == steps


def test_removed_library_is_built_again(machine):
    machine.equip_for_builds()
    machine.run()
    (machine.checkout / "ops/_trepak_ops.tf2.21.so").unlink()
    machine.run()
    assert (machine.checkout / "ops/_trepak_ops.tf2.21.so").exists()


def test_wheel_is_shared_by_all_checkouts(machine):
    machine.equip_for_builds()
    machine.run()
    assert machine.calls("pip wheel") == 1
    assert [f.name for f in machine.cache.iterdir()] == [machine.key()]
    shutil.rmtree(machine.checkout / ".venv")
    assert machine.run().returncode == 0
    assert machine.calls("pip wheel") == 0


def test_failed_build_leaves_nothing_in_the_cache(machine):
    machine.equip_for_builds()
    (machine.folder / "fail").touch()
    done = machine.run()
    assert done.returncode == 1
    assert "[3/4] Horovod 0.28.1 (a few minutes, once) … failed" in done.stdout
    assert list(machine.cache.iterdir()) == []
    (machine.folder / "fail").unlink()
    assert machine.run().returncode == 0


def test_faster_concurrent_build_wins(machine):
    machine.equip_for_builds()
    (machine.folder / "race").write_text(machine.key())
    assert machine.run().returncode == 0
    wheels = [f.relative_to(machine.cache).as_posix() for f in machine.cache.rglob("*.whl")]
    assert wheels == [f"{machine.key()}/horovod-first.whl"]


def test_callers_horovod_settings_do_not_reach_the_wheel(machine):
    machine.equip_for_builds()
    machine.environment["HOROVOD_GPU_OPERATIONS"] = "NCCL"
    assert machine.run().returncode == 0
