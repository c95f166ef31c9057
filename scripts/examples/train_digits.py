"""Trains a Keras 3 network on real handwritten digits, with as many processes as it is given.

    horovodrun -np 2 python -m trepak.scripts.examples.train_digits
    mpirun -np 2 python -m trepak.scripts.examples.train_digits --epochs 20
    python -m trepak.scripts.examples.train_digits

Every process trains on its share of the images; their gradients are averaged in every step.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras

from trepak.models import digits
from trepak.scripts.examples.learning_curve import draw_learning_curve

EPOCHS, BATCH_SIZE, WARMUP_EPOCHS = 15, 32, 3
LEARNING_RATE = 0.001  # per process, because the batch of a step grows with their number
EXPECTED_ACCURACY = 0.97  # with the default settings


class Throughput(keras.callbacks.Callback):
    """Measures training alone: without validation, and without the first epoch, which compiles."""

    def __init__(self, images_per_epoch: int, batch_size: int) -> None:
        super().__init__()
        self.images_per_epoch, self.batch_size = images_per_epoch, batch_size
        self.images, self.seconds = 0, 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the clock."""
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads the clock."""
        self.batches, self.end = batch + 1, time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds up the epoch."""
        if epoch > 0 or self.params["epochs"] == 1:
            self.images += min(self.images_per_epoch, self.batches * self.batch_size)
            self.seconds += self.end - self.start

    def images_per_second(self) -> float:
        """Returns the rate of all ranks together; a collective call."""
        return float(hvd.allreduce(self.images / self.seconds, op=hvd.Sum))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="train_digits", description=summary)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE, help="of each process")
    parser.add_argument("--output", type=Path, default=Path("runs/digits"), metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.batch_size < 1:
        parser.error("--epochs and --batch-size must be at least 1.")
    return options


def processes() -> str:
    """Returns "1 process" or, say, "2 processes"."""
    return f"{hvd.size()} process" + ("es" if hvd.size() > 1 else "")


def main(arguments: list[str] | None = None) -> int:
    """Trains, evaluates, saves and reports; returns the exit code."""
    options = parse(arguments)
    hvd.init()
    # Every rank draws dropout masks of its own; the weights of rank 0 are broadcast to all.
    keras.utils.set_random_seed(options.seed + hvd.rank())

    data = digits.load()
    train = data.train.shard(hvd.rank(), hvd.size())
    test = data.test.shard(hvd.rank(), hvd.size())
    model = digits.build_model()
    if hvd.rank() == 0:
        weights = f"{model.count_params():,} weights"
        print(f"Training {weights} on {len(data.train):,} digits with {processes()}.", flush=True)

    learning_rate = LEARNING_RATE * hvd.size()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(learning_rate)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    throughput = Throughput(len(train), options.batch_size)
    history = model.fit(
        train.images,
        train.labels,
        batch_size=options.batch_size,
        epochs=options.epochs,
        # Only watched, never acted upon, so the test digits can serve as validation data too.
        validation_data=(test.images, test.labels),
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(learning_rate, warmup_epochs=WARMUP_EPOCHS),
            throughput,
        ],
        verbose=2 if hvd.rank() == 0 else 0,
    )
    images_per_second = throughput.images_per_second()
    if hvd.rank() != 0:
        return 0
    return report(model, history.history, data, images_per_second, options)


def report(
    model: Any,
    history: dict[str, list[float]],
    data: digits.Digits,
    images_per_second: float,
    options: argparse.Namespace,
) -> int:
    """Evaluates, saves and draws, on one rank alone; returns the exit code."""
    result = model.evaluate(data.test.images, data.test.labels, verbose=0, return_dict=True)
    accuracy = result["accuracy"]
    options.output.mkdir(parents=True, exist_ok=True)
    model_path = options.output / "digits.keras"
    curve_path = options.output / "learning_curve.png"
    model.save(model_path)
    draw_learning_curve(history, f"Handwritten digits, {processes()}", curve_path)
    print(f"test accuracy      {accuracy:.2%} of {len(data.test)} digits")
    print(f"images per second  {images_per_second:,.0f}")
    print(f"saved model        {model_path}")
    print(f"learning curve     {curve_path}", flush=True)
    defaults = (options.epochs, options.batch_size) == (EPOCHS, BATCH_SIZE)
    if defaults and accuracy < EXPECTED_ACCURACY:
        print(
            f"train_digits: the test accuracy of {accuracy:.2%} is under the "
            f"{EXPECTED_ACCURACY:.0%} that these settings reach: something is wrong with the "
            "training, not with your settings.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
