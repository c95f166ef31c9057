"""Local SGD as a training of Chicle: what `trepak bench chicle` trains networks with.

Chicle, sections 2.2 and 5.1; Lin et al. (2018). A task takes H steps of momentum SGD on batches of
L of its own samples; the next iteration begins from the mean of all tasks' weights and momenta.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trepak.models.builder import Builder
from trepak.models.convnet import convnet
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.drawing import Draws
from trepak.tf_plugins.chicle.trainer import Iteration, Solver, Trainer

MOMENTUM = 0.9
_TOLD_EVERY = (
    1 / 16
)  # of an epoch: the error is measured then, or after an iteration that is longer
_SMOOTHED_OVER = 1 / 4  # of an epoch: how much of the past counts


def compute_alike() -> None:
    """Gives each of TensorFlow's operations one thread: a sum is then the same in every run.

    Tasks have threads of their own. To be called before anything is computed.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)


class Schedule(NamedTuple):
    """How many samples tasks take in an iteration.

    Attributes:
        samples: of all tasks together.
        steps: H.
        batch: L, of a task with as many samples as the others.
    """

    samples: int
    steps: int
    batch: int

    def quota(self, local: int, tasks: int, share: float = 1.0) -> int:
        """Returns how many samples a task takes: of H·L·K its part of all samples (section 3).

        Args:
            local: samples that it has.
            tasks: K.
            share: of its usual samples, how much it takes.
        """
        everyone = self.steps * self.batch * tasks
        return max(1, round(share * everyone * local / self.samples)) if local else 0

    def batches(self, samples: int) -> np.ndarray:
        """Returns the sizes of its batches, which differ by one at most: int32.

        There are H of them, or as many as samples, if these are fewer.
        """
        edges = np.arange(self.steps + 1) * samples // self.steps
        sizes = np.diff(edges).astype(np.int32)
        return sizes[sizes > 0]


class Network:
    """The network of images of a shape, with its steps and its errors as compiled functions.

    All weights are one vector, and so are their momenta: tasks train at the same time, each on its
    own.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        """Builds and compiles it."""
        self._shape = shape
        self._model = convnet(Builder(), shape)
        vector, number = tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)
        samples = [tf.TensorSpec([None, *shape], tf.uint8), tf.TensorSpec([None], tf.int64)]
        sizes = tf.TensorSpec([None], tf.int32)
        self._steps = tf.function(self._trained, [vector, vector, *samples, sizes, number])
        self._wrong = tf.function(self._erred, [vector, *samples])

    def weights(self, seed: int) -> np.ndarray:
        """Returns those to begin with."""
        keras.utils.set_random_seed(seed)
        fresh = convnet(Builder(), self._shape).trainable_variables
        return np.concatenate([variable.numpy().ravel() for variable in fresh])

    def train(
        self,
        model: Sequence[np.ndarray],
        samples: Sequence[np.ndarray],
        sizes: np.ndarray,
        rate: float,
    ) -> list[np.ndarray]:
        """Returns weights and momenta after a step on each batch.

        Args:
            model: weights and momenta to begin with.
            samples: images and labels of all batches.
            sizes: of the batches.
            rate: the learning rate.
        """
        return [array.numpy() for array in self._steps(*model, *samples, sizes, np.float32(rate))]

    def error(self, weights: np.ndarray, samples: Sequence[np.ndarray]) -> float:
        """Returns the share of samples that are given a wrong class."""
        return float(self._wrong(weights, *samples))

    def _trained(self, weights: Any, momenta: Any, x: Any, y: Any, sizes: Any, rate: Any) -> Any:
        """Takes a step on each batch, in one call."""
        ends = tf.cumsum(sizes)

        def step(number: Any, weights: list[Any], momenta: list[Any]) -> Any:
            mine = slice(ends[number] - sizes[number], ends[number])
            with tf.GradientTape() as tape:
                tape.watch(weights)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    y[mine], self._logits(weights, x[mine])
                )
                loss = tf.reduce_sum(losses) / tf.cast(sizes[number], tf.float32)
            gradients = tape.gradient(loss, weights)
            momenta = [MOMENTUM * m - rate * g for m, g in zip(momenta, gradients, strict=True)]
            weights = [w + m for w, m in zip(weights, momenta, strict=True)]
            return number + 1, weights, momenta

        def unfinished(number: Any, *_: Any) -> Any:
            return number < tf.size(sizes)

        begin = (0, self._parts(weights), self._parts(momenta))
        return [_joined(parts) for parts in tf.while_loop(unfinished, step, begin)[1:]]

    def _erred(self, weights: Any, x: Any, y: Any) -> Any:
        missed = tf.argmax(self._logits(self._parts(weights), x), axis=1) != y
        return tf.reduce_mean(tf.cast(missed, tf.float32))

    def _logits(self, weights: list[Any], images: Any) -> Any:
        images = tf.cast(images, tf.float32) / 255 - 0.5
        return self._model.stateless_call(weights, [], images)[0]

    def _parts(self, vector: Any) -> list[Any]:
        shapes = [variable.shape for variable in self._model.trainable_variables]
        parts = tf.split(vector, [math.prod(shape) for shape in shapes])
        return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def _joined(parts: list[Any]) -> Any:
    return tf.concat([tf.reshape(part, [-1]) for part in parts], 0)


@functools.cache
def network(shape: tuple[int, ...]) -> Network:
    """Returns the network of a shape, compiled once."""
    return Network(shape)


class LocalSgdSolver(Solver):
    """A task's H steps."""

    def __init__(self, task: int, store: ChunkStore, trainer: LocalSgdTrainer) -> None:
        """Makes it; the order of its samples depends on the trainer's seed and the task."""
        super().__init__(store)
        self._trainer = trainer
        self._draws = Draws(store, ("x", "y"), np.random.default_rng([trainer.seed, task]))

    def solve(
        self, model: Sequence[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], int]:
        """See `Solver`; what it made counts as much as the samples that it took."""
        trainer = self._trainer
        count = trainer.schedule.quota(self.store.samples, iteration.tasks, iteration.share)
        self._draws.begin()
        samples = self._draws.draw(count)
        made = trainer.network.train(
            model,
            samples,
            trainer.schedule.batches(count),
            trainer.rate * math.sqrt(iteration.tasks),  # section 5.1
        )
        return [*(np.float32(count) * array for array in made), np.array(float(count))], count


class LocalSgdTrainer(Trainer):
    """Averages weights and momenta, until the network errs little enough on samples of its own.

    Attributes:
        network: what is trained.
        schedule: of samples.
        rate: the learning rate of a single task.
        seed: the first weights, and all orders of samples, depend on it alone.
        trained: the weights and their momenta.
        errors: by iteration, the share of wrong classes before it, smoothed over a part of an
            epoch. With it the first has no past: it is that of the first weights.
    """

    def __init__(
        self,
        schedule: Schedule,
        test: tuple[np.ndarray, np.ndarray],
        rate: float,
        goal: float,
        most_iterations: int,
        seed: int = 0,
    ) -> None:
        """Begins with random weights.

        Args:
            schedule: of samples.
            test: images and labels that are not trained on.
            rate: the learning rate of a single task.
            goal: the error that is small enough.
            most_iterations: after so many it ends anyway.
            seed: of the first weights, and of the order of samples.
        """
        self.network = network(test[0].shape[1:])
        self.schedule, self.rate, self.seed = schedule, rate, seed
        self._test, self._goal, self._most = test, goal, most_iterations
        weights = self.network.weights(seed)
        self.trained = [weights, np.zeros_like(weights)]
        self._untold = 0.0  # epochs since the error was measured
        self.errors = [self.network.error(weights, test)]

    def solver(self, task: int, store: ChunkStore) -> LocalSgdSolver:
        """See `Trainer`."""
        return LocalSgdSolver(task, store, self)

    def no_update(self) -> list[np.ndarray]:
        """See `Trainer`."""
        return [*(np.zeros_like(array) for array in self.trained), np.zeros(())]

    def model(self) -> list[np.ndarray] | None:
        """See `Trainer`."""
        is_over = self.errors[-1] <= self._goal or len(self.errors) > self._most
        return None if is_over else self.trained

    def merge(self, updates: list[np.ndarray], iteration: Iteration) -> None:
        """See `Trainer`."""
        *sums, samples = updates
        self.trained = [array / np.float32(samples) for array in sums]
        self._untold += float(samples) / self.schedule.samples
        self.errors.append(self._told())

    def metrics(self) -> dict[str, Any]:
        """See `Trainer`."""
        return {"error": self.errors[-1]}

    def _told(self) -> float:
        """Returns the smoothed error: the last one, where too little was trained since."""
        if self._untold < _TOLD_EVERY:
            return self.errors[-1]
        kept = math.exp(-self._untold / _SMOOTHED_OVER)
        self._untold = 0.0
        now = self.network.error(self.trained[0], self._test)
        return kept * self.errors[-1] + (1 - kept) * now
