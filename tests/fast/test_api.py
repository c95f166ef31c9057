"""The public surface: Horovod's names and signatures, settings, versions, and what docs say."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import horovod.tensorflow
import horovod.tensorflow.keras
import keras
import pytest

import trepak
import trepak.elastic
import trepak.keras
from trepak.horovod_ext import basics, config, startup

ROOT = Path(__file__).parents[2]

# Horovod's private helpers that its modules show without an underscore, and what docs/migrating.md
# names as gone.
NOT_API = {
    *"LocalGradientAggregationHelper check_extension refs_to_vars split_list vars_to_refs".split(),
    *"is_version_greater_equal_than BestModelCheckpoint ObjectState run_fn".split(),
    # in elastic: what it imports for itself
    *"broadcast_object broadcast_object_fn broadcast_variables init rank shutdown".split(),
}
PAIRS = [
    (horovod.tensorflow, trepak),
    (horovod.tensorflow.keras, trepak.keras),
    (horovod.tensorflow.keras.callbacks, trepak.keras.callbacks),
    (horovod.tensorflow.elastic, trepak.elastic),
    (horovod.tensorflow.keras.elastic, trepak.keras.elastic),
]


def public(module: Any) -> list[str]:
    names = []
    for name, value in vars(module).items():
        is_module = isinstance(value, types.ModuleType) and name not in ("callbacks", "elastic")
        if not name.startswith("_") and not is_module and name not in NOT_API:
            names.append(name)
    return names


@pytest.mark.parametrize(("upstream", "ours"), PAIRS, ids=[o.__name__ for _, o in PAIRS])
def test_every_name_with_its_signature(upstream: Any, ours: Any) -> None:
    names = public(upstream)
    assert len(names) >= 4
    for name in names:
        assert hasattr(ours, name), f"{ours.__name__}.{name} is missing"
        theirs = getattr(upstream, name)
        if not inspect.isfunction(theirs) and not inspect.isclass(theirs):
            continue
        try:
            expected = list(inspect.signature(theirs).parameters.values())
        except ValueError:
            continue
        if any(p.kind is p.VAR_POSITIONAL for p in expected):
            continue  # init(*args, **kwargs)
        got = list(inspect.signature(getattr(ours, name)).parameters.values())
        same = [(p.name, p.default) for p in got[: len(expected)]]
        assert same == [(p.name, p.default) for p in expected], f"{ours.__name__}.{name}"


def test_the_face_lists_what_it_has() -> None:
    for module in (trepak, trepak.keras, trepak.callbacks, trepak.elastic):
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trepak.nothing


@pytest.mark.parametrize("version", ["2.20.0", "2.22.0rc1", "3.0.0", "2.2.1"])
def test_a_wrong_tensorflow_is_refused(version: str) -> None:
    with pytest.raises(ImportError, match=rf"2\.21.*{re.escape(version)}.*pip install"):
        startup.check_versions(version, keras.__version__)


def test_a_wrong_keras_is_refused() -> None:
    with pytest.raises(ImportError, match=r"Keras 3.*found 2\.15\.0"):
        startup.check_versions("2.21.0", "2.15.0")
    startup.check_versions("2.21.3", keras.__version__)


def test_a_wrong_tensorflow_ends_the_import_of_trepak() -> None:
    """In a process of its own, whose TensorFlow claims another version."""
    program = (
        "import tensorflow as tf; tf.__version__ = '2.19.0'\nimport trepak.keras\nprint('imported')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0 and "imported" not in done.stdout
    assert "trepak needs TensorFlow 2.21, found 2.19.0" in done.stderr


def test_another_backend_is_refused() -> None:
    program = "import keras\nkeras.backend.backend = lambda: 'jax'\nimport trepak.keras\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0 and "KERAS_BACKEND=tensorflow" in done.stderr


def test_unknown_settings_are_refused() -> None:
    config.check_environment({"TREPAK_QUIET": "0", "HOME": "/", "TREPAK_STALL_SECONDS": "5"})
    with pytest.raises(ValueError, match="TREPAK_QUITE.*TREPAK_QUIET"):
        config.check_environment({"TREPAK_QUITE": "0"})
    with pytest.raises(
        ValueError, match="TREPAK_STALL_SECONDS is wrong: it must be a whole number"
    ):
        config.check_environment({"TREPAK_STALL_SECONDS": "soon"})


def test_every_setting_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    for knob in config.KNOBS:
        assert f"| `{knob.name}` | {knob.default} | {knob.meaning} |" in page
    read = set()
    for path in [*ROOT.glob("*/**/*.py"), *ROOT.glob("scripts/*.sh")]:
        if not {"tests", "build", ".venv"} & set(path.parts):
            found = re.findall(r"(?:environ\S*[\"']|\$\{?)(TREPAK_\w+)", path.read_text())
            read.update(found)
    assert read <= {knob.name for knob in config.KNOBS}, read


def test_what_was_begun_last_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basics, "_ends", [])
    monkeypatch.setattr(basics._hvd, "shutdown", lambda: None)
    ended: list[str] = []
    ends = {name: partial(ended.append, name) for name in ("streams", "servers")}
    for name in ("streams", "servers", "streams"):
        basics.before_shutdown(ends[name])
    basics.shutdown()
    assert ended == ["streams", "servers"]


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_noise_is_dropped_and_errors_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    import os

    with startup.quiet_stderr():
        os.write(2, b"I0000 port.cc:153] oneDNN custom operations are on. You may see\n")
        os.write(2, b"E0000 something is really wrong\n")
    assert capfd.readouterr().err == "E0000 something is really wrong\n"
