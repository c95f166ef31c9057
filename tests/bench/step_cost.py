"""CPU time of a training step of each system, in trees of this repository by turns.

    python tests/bench/step_cost.py OLD_TREE NEW_TREE [--rounds 5]

Each tree must have its native library built. A job of two ranks trains with one system after the
other; a step's computation is emulated, so that what is left of the CPU time is trepak's and
TensorFlow's own. Prints the ratio of the second tree's CPU time per step to the first one's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

SYSTEMS = ("BSP", "Geryon", "RNA", "ElasticBSP")
WARM_UP, STEPS = 30, 200
MILLISECONDS = 5.0  # of computation in a step


def step_of(optimizer: Any, variables: list[Any]) -> Any:
    """Returns a training step, as a tf.function."""
    import tensorflow as tf

    from trepak.ops.emulation import emulated_compute

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(variable.value**2) for variable in variables)
            loss = emulated_compute(loss, MILLISECONDS)
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)

    return step


def train() -> None:
    """One rank: writes the CPU seconds of a step of each system."""
    import resource

    import trepak
    import trepak.keras as hvd

    # isort: split
    import keras
    import tensorflow as tf

    hvd.init()
    seconds = {}
    for system in SYSTEMS:
        options = {
            "BSP": {},
            "Geryon": {"transport": trepak.Geryon()},
            "RNA": {"sync": trepak.RNA()},
            "ElasticBSP": {"sync": trepak.ElasticBSP()},
        }[system]
        keras.utils.set_random_seed(1)
        variables = [keras.Variable(tf.random.normal([64, 64]), name=f"v{i}") for i in range(20)]
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3), **options)
        optimizer.build(variables)

        step = step_of(optimizer, variables)
        for count in (WARM_UP, STEPS):
            hvd.barrier()
            before = resource.getrusage(resource.RUSAGE_SELF)
            for _ in range(count):
                step()
            optimizer.flush()
            after = resource.getrusage(resource.RUSAGE_SELF)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds[system] = used / STEPS
    Path(os.environ["OUT"], f"{hvd.rank()}.json").write_text(json.dumps(seconds))
    hvd.shutdown()


def measure(tree: Path, turn: int) -> dict[str, float]:
    """Runs a job of one tree; returns both ranks' CPU seconds of a step, by system."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from conftest import finish, horovodrun, package_of, start

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, f"out{turn}")
        env = {"PYTHONPATH": package_of(tree, Path(folder))}
        command = [*horovodrun(2, gloo=False), sys.executable, str(Path(__file__)), "--train"]
        code, output = finish(start(command, out, env), 280)
        if code != 0:
            raise SystemExit(output[-4000:])
        ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]
    return {system: ranks[0][system] + ranks[1][system] for system in SYSTEMS}


def main() -> None:
    """Measures both trees by turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*", type=lambda text: Path(text).resolve())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train()
        return
    found: list[list[dict[str, float]]] = [[], []]
    for turn in range(given.rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            found[which].append(measure(given.trees[which], turn))
        for system in SYSTEMS:
            old, new = (1000 * found[which][-1][system] for which in (0, 1))
            print(f"round {turn}: {system:10} {old:.3f} ms → {new:.3f} ms", flush=True)
    for system in SYSTEMS:
        old, new = (statistics.median(one[system] for one in found[w]) for w in (0, 1))
        print(f"{system:10} median {1000 * old:.3f} ms → {1000 * new:.3f} ms, {new / old:.3f}")


if __name__ == "__main__":
    main()
