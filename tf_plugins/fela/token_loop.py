"""The token loop of a worker: it asks for tokens, trains them and reports them (Section III-A)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trepak.horovod_ext.fela import ChunkKind, FelaWorker, Input, Over, Token, Trained
from trepak.tf_plugins.fela.own_batch import BatchFormat, float_specs_of, specs_of
from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.token_trainer import TokenTrainer


class TokenLoop:
    """One iteration after the other, on this rank."""

    def __init__(
        self,
        worker: FelaWorker,
        trainer: TokenTrainer,
        partition: Partition,
        batches: BatchFormat,
        first: int = 0,
    ) -> None:
        """Makes it.

        Args:
            worker: this rank, as the token server knows it.
            trainer: what trains tokens here.
            partition: of the model.
            batches: how samples and labels lie in chunks.
            first: the number of the session's first iteration among those of the training.
        """
        self._worker, self._trainer, self._batches = worker, trainer, batches
        self._sub_models = partition.sub_models
        self._iteration, self._first = 0, first

    def run(
        self, inputs: Sequence[Any], labels: Sequence[Any], trained: Callable[[int], None]
    ) -> Over:
        """Trains an iteration.

        Args:
            inputs: this rank's samples.
            labels: theirs.
            trained: called with each sub-model, from 0 on, whose tokens are all done.
        """
        samples = int(inputs[0].shape[0])
        self._iteration, parts = self._worker.prepare(samples)
        self._trainer.begin(self._first + self._iteration)
        rows = {part.token: part.samples for part in parts}
        self._put(ChunkKind.SAMPLES, rows, inputs)
        self._put(ChunkKind.LABELS, rows, labels)
        self._worker.begin(samples)
        self._worker.request()
        while True:
            event = self._worker.next()
            if isinstance(event, Over):
                return event
            if isinstance(event, Trained):
                trained(event.sub_model - 1)
            else:
                self._worker.report(event.number, self._train(event))

    def _train(self, token: Token) -> float:
        """Trains a token and puts what it has made; returns the sum of its samples' losses."""
        last = len(self._sub_models)
        if token.stage > last:
            self._backward(2 * last - token.stage - 1, token)
            return 0.0
        if token.stage < last:
            outputs, loss = self._forward(token.stage - 1, token, token.number)
            self._put(ChunkKind.OUTPUT, {token.number: token.samples}, outputs)
            return loss
        labels = self._take(token.of(ChunkKind.LABELS), self._batches.labels)
        inputs = self._inputs(last - 1, token)
        back, loss = self._trainer.last(inputs, labels, token.sample_ids)
        self._put_back(last - 1, _needs(token), back)
        return loss

    def _forward(
        self, sub_model: int, token: Token, forward: int, again: bool = False
    ) -> tuple[list[Any], float]:
        inputs = self._inputs(sub_model, token)
        ids, needs = token.sample_ids, _needs(token)
        return self._trainer.forward(sub_model, forward, inputs, ids, needs, again)

    def _backward(self, sub_model: int, token: Token) -> None:
        of_output = token.of(ChunkKind.GRADIENT)
        forward = of_output[0].token
        if token.recomputes:
            self._forward(sub_model, token, forward, again=True)
        specs = float_specs_of(self._sub_models[sub_model].outputs)
        gradients = self._take(of_output, specs)
        back, needs = self._trainer.backward(sub_model, forward, gradients)
        self._put_back(sub_model, needs, back)

    def _inputs(self, sub_model: int, token: Token) -> list[Any]:
        if samples := token.of(ChunkKind.SAMPLES):
            return self._take(samples, self._batches.inputs)
        return self._take(token.of(ChunkKind.OUTPUT), specs_of(self._sub_models[sub_model].inputs))

    def _take(self, wanted: Sequence[Input], specs: Sequence[Any]) -> list[Any]:
        return self._worker.take(self._iteration, wanted, specs) if specs else []

    def _put(self, kind: ChunkKind, rows: Mapping[int, int], tensors: Sequence[Any]) -> None:
        if tensors:
            self._worker.put(self._iteration, kind, rows, tensors)

    def _put_back(self, sub_model: int, needs: Mapping[int, int], gradients: Any) -> None:
        if sub_model > 0:  # what a model is given needs none
            self._put(ChunkKind.GRADIENT, needs, gradients)


def _needs(token: Token) -> dict[int, int]:
    return {one.token: one.samples for one in token.of(ChunkKind.OUTPUT)}
