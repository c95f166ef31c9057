"""`trepak dymem plan` foretells what a training takes; the line that it prints trains."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import pytest

from trepak.tf_plugins.memory.model_step import batch_bytes, model_step

layers = keras.layers
TREPAK = str(Path(sys.executable).parent / "trepak")
SIDE, BATCH, STEPS = 32, 64, 8
LINE = re.compile(r'trepak\.Dymem\(pool="(\w+)", beyond="(\w+)"\)')
TRAINING = """
import json, sys, trepak
dymem = trepak.Dymem(**json.loads(sys.argv[2]))
import keras, tensorflow as tf
batch, steps = int(sys.argv[3]), int(sys.argv[4])
model = keras.saving.load_model(sys.argv[1])
shape = (batch, *model.input_shape[1:])
# Not of constants: those are made once, so that no batch that waits takes memory.
images = lambda _: (tf.random.uniform(shape), tf.zeros([batch]))
batches = tf.data.Dataset.range(steps).map(images)
model.fit(batches, verbose=0)
print(json.dumps(dymem.statistics()))
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def network() -> Any:
    """Convolutions with and without biases; most of the memory is what the backward pass reads."""
    image = x = keras.Input((SIDE, SIDE, 3))
    for _ in range(4):
        x = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
        x = layers.Conv2D(16, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    model = keras.Model(image, layers.Dense(5, "softmax")(layers.GlobalAveragePooling2D()(x)))
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    return model


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    """Returns the model's file, what the command prints, and its JSON."""
    folder = tmp_path_factory.mktemp("plan")
    model, figures = folder / "model.keras", folder / "plan.json"
    network().save(model)
    arguments = ["--batch", str(BATCH), "--pool", "16MiB", "--json", str(figures)]
    done = run(TREPAK, "dymem", "plan", str(model), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return model, done.stdout, json.loads(figures.read_text())


def trained(model: Path, **options: Any) -> dict[str, Any]:
    """Returns Dymem's statistics of a training, in a process of its own."""
    arguments = [str(model), json.dumps(options), str(BATCH), str(STEPS)]
    done = run(sys.executable, "-c", TRAINING, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_the_peak_is_that_of_a_training(planned: tuple[Path, str, dict[str, Any]]) -> None:
    model, _, plan = planned
    pool = trained(model, pool="1GiB", beyond="1GiB", policy="none")["pool"]
    without = plan["ways"][0]
    assert without["policy"] == "none"
    # How many batches wait at the peak, time decides; the plan has all that can.
    least = without["peak_live_bytes"] - plan["waiting_bytes"]
    assert least / 1.05 <= pool["peak_live_bytes"] <= without["peak_live_bytes"] * 1.05
    assert plan["waiting_bytes"] <= 0.05 * least


def test_the_line_that_is_printed_trains(planned: tuple[Path, str, dict[str, Any]]) -> None:
    model, said, plan = planned
    line = LINE.search(said)
    assert line is not None, said
    told = trained(model, pool=line[1], beyond=line[2])
    assert told["pool"]["failures"] == 0 and told["first_failure"] == ""
    assert told["pool"]["peak_occupied_bytes"] <= told["pool"]["limit_bytes"]
    without, dymem = plan["ways"]
    assert told["pool"]["limit_bytes"] < 0.8 * without["smallest_pool_bytes"]
    # A tensor that is read before it has left stays.
    left = told["swaps"]["offloaded_bytes"]
    assert left == pytest.approx(STEPS * dymem["swapped_bytes"], rel=0.05)


def test_what_a_plan_tells(planned: tuple[Path, str, dict[str, Any]]) -> None:
    _, said, plan = planned
    without, dymem = plan["ways"]
    for way in (without, dymem):
        assert way["peak_live_bytes"] <= way["peak_occupied_bytes"]
        assert way["smallest"]["fits"] and way["smallest"]["seconds"] >= plan["step_seconds"] * 0.99
        assert not way["given"]["fits"] and way["given"]["failed_node"] in said
    assert dymem["smallest_pool_bytes"] < plan["recommended"]["pool_bytes"] == plan["pool_bytes"]
    assert len(plan["timed"]) == 2 and max(map(int, plan["timed"])) <= BATCH // 2
    assert "does not fit" in said and plan["notes"] == []


def multi(loss: Any, keyed: bool) -> Any:
    """Two inputs, one of whole numbers, and two outputs, in dicts or in lists."""
    ids, image = keras.Input((12,), dtype="int32", name="ids"), keras.Input((8, 8, 3), name="image")
    words = layers.GlobalAveragePooling1D()(layers.Embedding(50, 8)(ids))
    x = layers.Concatenate()([words, layers.Flatten()(layers.Conv2D(2, 3)(image))])
    kind, age = layers.Dense(5, "softmax", name="kind")(x), layers.Dense(1, name="age")(x)
    inputs: Any = {"image": image, "ids": ids} if keyed else [ids, image]
    outputs: Any = {"kind": kind, "age": age} if keyed else [kind, age]
    model = keras.Model(inputs, outputs)
    model.compile("adam", loss, jit_compile=False)
    return model


SPARSE = "sparse_categorical_crossentropy"


@pytest.mark.parametrize(
    ("loss", "keyed", "labels"),
    [
        ([SPARSE, "mse"], False, 2),
        ({"kind": SPARSE, "age": "mse"}, False, 2),
        ({"age": "mse", "kind": keras.losses.SparseCategoricalCrossentropy()}, True, 2),
        ({"age": "mse", "kind": keras.losses.CategoricalCrossentropy()}, True, 6),
        ("mae", False, 6),
    ],
)
def test_a_step_on_zeros(loss: Any, keyed: bool, labels: int) -> None:
    model = multi(loss, keyed)
    step = model_step(model, 3)
    step()
    step()
    assert int(model.optimizer.iterations.numpy()) == 2
    assert batch_bytes(model, 3) == 3 * 4 * (12 + 8 * 8 * 3 + labels)


def test_a_sequential_model_that_was_not_compiled(tmp_path: Path) -> None:
    file = tmp_path / "model.keras"
    convolution = layers.Conv2D(8, 3, activation="relu")
    head = [layers.Flatten(), layers.Dense(3)]
    keras.Sequential([keras.Input((16, 16, 3)), convolution, *head]).save(file)
    done = run(TREPAK, "dymem", "plan", str(file), "--batch", "16", "--beyond", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "SGD and a mean squared error are planned" in done.stdout
    assert f'beyond="{tmp_path}")' in done.stdout


def test_wrong_input_is_named(tmp_path: Path) -> None:
    text, opened = tmp_path / "text.keras", tmp_path / "open.keras"
    text.write_text("no model")
    image = keras.Input((None, None, 3))
    keras.Model(image, layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(image))).save(opened)
    for file, options, said in (
        (tmp_path / "none.keras", ["--batch", "8"], "No such file"),
        (text, ["--batch", "0"], "--batch: must be a whole number from 1"),
        (text, ["--batch", "8"], "is not a Keras model that can be loaded"),
        (text, ["--batch", "8", "--beyond", "/no/such"], "there is no folder /no/such"),
        (text, ["--batch", "8", "--pool", "7 apples"], "--pool='7 apples' is no size"),
        (opened, ["--batch", "8"], "only the batch may be open"),
    ):
        done = run(TREPAK, "dymem", "plan", str(file), *options)
        assert done.returncode in (1, 2) and done.stdout == ""
        assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
