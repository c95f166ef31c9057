"""A model's iterations under Fela: this rank's samples, the token loop, and the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters import data_adapter_utils

from trepak.horovod_ext import exchange
from trepak.horovod_ext.fela import ChunkKind, FelaWorker, Over, Token, Trained
from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.reduction import Reduction
from trepak.tf_plugins.fela.token_trainer import TokenTrainer, float_state


class Training:
    """What one compiled model has of Fela on this rank, from its first batch on."""

    def __init__(
        self, model: Any, partition: Partition, rules: Callable[[list[int]], Mapping[str, Any]]
    ) -> None:
        """Makes it; nothing is opened before the first batch.

        Args:
            model: compiled with a distributed optimizer.
            partition: of the model.
            rules: makes the token server's rules, of each rank's batch size.
        """
        self._model, self._partition, self._rules = model, partition, rules
        self._trainer = TokenTrainer(partition, self._loss, self._scaled, bool(model.run_eagerly))
        self._apply = (lambda f: f if model.run_eagerly else tf.function(f))(self._applied)
        self._worker: FelaWorker | None = None
        self._reduction = Reduction(f"Fela of {model.name}")
        self._inputs = [_spec(one.dtype, one.shape) for one in partition.sub_models[0].inputs]
        self._labels: list[tf.TensorSpec] = []
        self._structure: Any = None  # of labels and sample weights

    def step(self, iterator: Iterator[Any]) -> Any:
        """Trains on a batch: Keras' train function; returns logs.

        Raises:
            StopIteration: there is no more data.
            HorovodInternalError: a rank has died, left, or kept the others waiting too long.
        """
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(next(iterator))
        inputs = self._standardized(x)
        labels = _tensors((y, sample_weight))
        samples = int(inputs[0].shape[0])
        if self._worker is None or not self._worker.is_open:
            self._open(samples, (y, sample_weight), labels)
        assert self._worker is not None
        iteration, parts = self._worker.prepare(samples)
        self._trainer.begin(iteration)
        rows = {part.token: part.samples for part in parts}
        self._worker.put(iteration, ChunkKind.SAMPLES, rows, inputs)
        if labels:
            self._worker.put(iteration, ChunkKind.LABELS, rows, labels)
        self._worker.begin(samples)
        over = self._train_tokens(self._worker, iteration)
        return self._update(over)

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted; nothing before the first batch."""
        return {} if self._worker is None else self._worker.statistics()

    def close(self) -> None:
        """Ends what was opened; call it on all ranks."""
        self._reduction.close()
        if self._worker is not None:
            self._worker.close()

    def _open(self, samples: int, structure: Any, labels: Sequence[Any]) -> None:
        self._structure = structure
        self._labels = [_spec(one.dtype, one.shape[1:]) for one in labels]
        self._worker = FelaWorker(self._rules(exchange.gather(samples, "Fela's batch sizes")))

    def _standardized(self, x: Any) -> list[Any]:
        functional = getattr(self._model, "_functional", None) or self._model
        flat = functional._standardize_inputs(x)
        pairs = zip(flat, self._partition.sub_models[0].inputs, strict=True)
        return [keras.ops.convert_to_tensor(one, dtype=into.dtype) for one, into in pairs]

    # The token loop.

    def _train_tokens(self, worker: FelaWorker, iteration: int) -> Over:
        worker.request()
        while True:
            event = worker.next()
            if isinstance(event, Over):
                return event
            if isinstance(event, Trained):
                sums = self._trainer.sums[event.sub_model - 1]
                self._reduction.start(event.sub_model - 1, [*sums.gradients, *sums.state])
                continue
            worker.report(event.number, self._train(worker, iteration, event))

    def _train(self, worker: FelaWorker, iteration: int, token: Token) -> float:
        """Trains a token and puts what it has made; returns the sum of its samples' losses."""
        last = len(self._partition.sub_models)
        if token.stage < last:
            outputs, loss = self._forward(worker, iteration, token, token.number)
            made = {token.number: token.samples}
            worker.put(iteration, ChunkKind.OUTPUT, made, outputs)
            return loss
        if token.stage == last:
            inputs = self._read(worker, iteration, token)
            labels = worker.take(iteration, token.of(ChunkKind.LABELS), self._labels)
            back, loss = self._trainer.last(inputs, labels, token.sample_ids)
            needs = {one.token: one.samples for one in token.of(ChunkKind.OUTPUT)}
            self._put_back(worker, iteration, last - 1, needs, back)
            return loss
        sub_model = 2 * last - token.stage - 1
        of_output = token.of(ChunkKind.GRADIENT)
        forward = of_output[0].token
        if token.recomputes:
            self._forward(worker, iteration, token, forward, again=True)
        outputs = self._partition.sub_models[sub_model].outputs
        gradients = worker.take(iteration, of_output, _float_specs(outputs))
        back, needs = self._trainer.backward(sub_model, forward, gradients)
        self._put_back(worker, iteration, sub_model, needs, back)
        return 0.0

    def _forward(
        self, worker: FelaWorker, iteration: int, token: Token, forward: int, again: bool = False
    ) -> tuple[list[Any], float]:
        last = len(self._partition.sub_models)
        sub_model = token.stage - 1 if token.stage < last else 2 * last - token.stage - 1
        needs = {one.token: one.samples for one in token.of(ChunkKind.OUTPUT)}
        inputs = self._read(worker, iteration, token, sub_model)
        return self._trainer.forward(sub_model, forward, inputs, token.sample_ids, needs, again)

    def _read(
        self, worker: FelaWorker, iteration: int, token: Token, sub_model: int = -1
    ) -> list[Any]:
        """Returns a sub-model's inputs for a token."""
        if samples := token.of(ChunkKind.SAMPLES):
            return worker.take(iteration, samples, self._inputs)
        specs = [
            _spec(one.dtype, one.shape) for one in self._partition.sub_models[sub_model].inputs
        ]
        return worker.take(iteration, token.of(ChunkKind.OUTPUT), specs)

    def _put_back(
        self,
        worker: FelaWorker,
        iteration: int,
        sub_model: int,
        needs: Mapping[int, int],
        gradients: Sequence[Any],
    ) -> None:
        if sub_model > 0:
            worker.put(iteration, ChunkKind.GRADIENT, needs, gradients)

    # The loss and the update.

    def _loss(self, outputs: Sequence[Any], labels: Sequence[Any]) -> Any:
        model = self._model
        y, sample_weight = _packed(self._structure, labels)
        functional = getattr(model, "_functional", None) or model
        y_pred = keras.tree.pack_sequence_as(functional._outputs_struct, list(outputs))
        loss = model._compile_loss(y, y_pred, sample_weight)
        model.compute_metrics(None, y, y_pred, sample_weight=sample_weight)
        return loss

    def _scaled(self, loss: Any) -> Any:
        return self._model.optimizer.scale_loss(loss)

    def _update(self, over: Over) -> Any:
        sums = self._reduction.finish()
        self._trainer.end()
        in_order = [sums[i] for i in range(len(self._partition.sub_models))]
        regularization = self._apply(in_order, tf.constant(over.samples, tf.float64))
        loss = over.loss / over.samples + float(regularization)
        self._model._loss_tracker.update_state(loss, sample_weight=over.samples)
        return self._model.get_metrics_result()

    def _applied(self, sums: Sequence[Sequence[Any]], samples: Any) -> Any:
        """Updates weights and state; returns the loss of weight regularizers."""
        gradients, variables, total = [], [], []
        for sub_model, of_sub_model in zip(self._partition.sub_models, sums, strict=True):
            count = len(sub_model.trainable)
            values = [v.value.read_value() for v in sub_model.trainable]
            with tf.GradientTape() as tape:
                tape.watch(values)
                loss = sub_model.regularization(values)
                scaled = self._scaled(loss)
            zero = tf.UnconnectedGradients.ZERO
            of_weights = tape.gradient(scaled, values, unconnected_gradients=zero)
            gradients += [
                one / tf.cast(samples, one.dtype) + tf.cast(of_weight, one.dtype)
                for one, of_weight in zip(of_sub_model[:count], of_weights, strict=True)
            ]
            variables += sub_model.trainable
            total.append(tf.cast(loss, tf.float64))
            for variable, value in zip(float_state(sub_model), of_sub_model[count:], strict=True):
                variable.assign(tf.cast(value / tf.cast(samples, value.dtype), variable.dtype))
        self._model.optimizer._apply_plainly(gradients, variables)
        return tf.add_n(total)


def _spec(dtype: Any, shape: Any) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype)


def _float_specs(crossing: Sequence[Any]) -> list[tf.TensorSpec]:
    return [_spec(one.dtype, one.shape) for one in crossing if tf.as_dtype(one.dtype).is_floating]


def _tensors(structure: Any) -> list[Any]:
    return [tf.convert_to_tensor(one) for one in keras.tree.flatten(structure) if one is not None]


def _packed(structure: Any, tensors: Sequence[Any]) -> Any:
    """Puts tensors in a structure's place; None stays."""
    left = iter(tensors)
    flat = [None if one is None else next(left) for one in keras.tree.flatten(structure)]
    return keras.tree.pack_sequence_as(structure, flat)
