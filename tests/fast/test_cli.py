"""The `trepak` command, as a user types it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trepak.horovod_ext.config import KNOBS
from trepak.scripts import cli

TREPAK = str(Path(sys.executable).parent / "trepak")


def run(*arguments, **env):
    return subprocess.run(
        [TREPAK, *arguments],
        env=os.environ | env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def test_version():
    import trepak

    assert run("--version").stdout == f"trepak {trepak.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *([command, "--help"] for command in ("bench", "doctor", "dymem")),
        ["dymem", "plan", "--help"],
        ["train", "ctr", "--help"],
        ["train", "resnet", "--help"],
        [],
    ],
)
def test_help_is_shown_without_importing_tensorflow(arguments):
    code = (
        "import sys\n"
        "from trepak.scripts.cli import main\n"
        "try:\n"
        "    status = main(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    status = end.code\n"
        "heavy = {'tensorflow', 'keras', 'horovod', 'matplotlib', 'numpy'} & sys.modules.keys()\n"
        "sys.exit(f'imported {heavy}' if heavy else status)\n"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: trepak" in done.stdout


def test_kept_trainings_are_for_benches_that_train(tmp_path):
    assert "has nothing to tune" in run("bench", "lab", "--tune").stderr
    assert "has nothing to scale" in run("bench", "lab", "--lab").stderr
    assert "leave --quick out" in run("bench", "sven", "--lab", "--quick").stderr
    assert "keeps no trainings" in run("bench", "bsp", "--kept", str(tmp_path)).stderr
    assert "there is no folder" in run("bench", "rna", "--kept", str(tmp_path / "x")).stderr


def test_every_bench_can_be_loaded():
    names = cli.bench_names()
    assert "bsp" in names
    for name in names:
        bench = cli.load_bench(name)
        assert bench.SUMMARY and callable(bench.measure)
        assert name in run("bench", "--help").stdout


def test_unknown_bench_lists_those_that_exist():
    done = run("bench", "nothing")
    assert done.returncode == 2
    assert "there is no bench 'nothing'; there are: alltoall, bsp" in done.stderr
    assert "Traceback" not in done.stderr


ELASTIC = ["elastic", "-np", "2", "--hosts", "/nowhere/hosts"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["nothing"],
            "(choose from 'bench', 'doctor', 'dymem', 'elastic', 'lab', 'top', 'trace', 'train')",
        ),
        (["bench"], "the following arguments are required: NAME"),
        (["bench", "bsp", "--np", "0"], "--np: must be a whole number from 1 to 1024"),
        (["bench", "bsp", "--nothing"], "unrecognized arguments: --nothing"),
        ([*ELASTIC, "--", "/nowhere/at all"], "there is no program '/nowhere/at all'"),
        (ELASTIC, "what shall run? `trepak elastic -np 4"),
        ([*ELASTIC, "--min-np", "3", "--", "true"], "--min-np may be no more than -np"),
        ([*ELASTIC, "--max-np", "1", "--", "true"], "--max-np no less"),
        ([*ELASTIC, "--cooldown", "9", "8", "--", "true"], "LOW may be no more than HIGH"),
        ([*ELASTIC, "--cooldown", "0", "8", "--", "true"], "a whole number from 1 to 3600"),
        (["train", "resnet", "--pool", "much"], "--pool='much' is no size"),
        (["train", "resnet", "--beyond", "/nowhere/at all"], "there is no folder /nowhere/at all"),
        (["train", "resnet", "--steps", "0"], "--steps: must be a whole number from 1 to"),
    ],
)
def test_wrong_usage_is_explained(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(200)
def test_doctor_shows_versions_and_every_setting():
    done = run("doctor", COLUMNS="200", TREPAK_STALL_SECONDS="77", TREPAK_TIMELINE="[/x]")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("trepak", "Python", "TensorFlow", "Keras", "Horovod", "native library"):
        assert f"  {name} " in done.stdout
    assert "MPI, Gloo" in done.stdout
    for knob in KNOBS:
        assert knob.name in done.stdout
        assert knob.meaning.split()[-1] in done.stdout
    assert "77 *" in done.stdout and "[/x] *" in done.stdout
    assert done.stderr == ""


@pytest.mark.timeout(200)
def test_doctor_names_wrong_settings():
    done = run("doctor", TREPAK_TYPO="1")
    assert done.returncode == 1
    assert "unknown environment variable TREPAK_TYPO" in done.stdout


@pytest.mark.timeout(200)
def test_doctor_says_what_is_broken(tmp_path):
    """A Horovod that cannot be loaded, as after an update of TensorFlow."""
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod/__init__.py").write_text("raise ImportError('undefined symbol: x')")
    done = run("doctor", COLUMNS="300", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "undefined symbol: x. Build it with `make setup`." in done.stdout
    assert "Traceback" not in done.stderr
