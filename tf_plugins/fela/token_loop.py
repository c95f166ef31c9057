"""The token loop of a worker: it asks for tokens, trains them and reports them (Section III-A)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trepak.horovod_ext.fela import ChunkKind, FelaWorker, Input, Over, Token, Trained
from trepak.tf_plugins.fela.listening import Listener
from trepak.tf_plugins.fela.own_batch import BatchFormat, float_specs_of, specs_of
from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.token_trainer import Iteration, TokenTrainer


class TokenLoop:
    """One iteration after the other, on this rank."""

    def __init__(
        self,
        worker: FelaWorker,
        trainer: TokenTrainer,
        partition: Partition,
        batches: BatchFormat,
        trained: Callable[[int, Iteration, int], None],
        first: int = 0,
        staleness: int = 0,
    ) -> None:
        """Makes it.

        Args:
            worker: this rank, as the token server knows it.
            trainer: what trains tokens here.
            partition: of the model.
            batches: how samples and labels lie in chunks.
            trained: called with an iteration's number in the session, what it has here, and a
                sub-model, from 0 on, whose tokens are all done; in another thread.
            first: the number of the session's first iteration among those of the training.
            staleness: iterations that this rank may be ahead of the oldest that is not over.
        """
        self._worker, self._trainer, self._batches = worker, trainer, batches
        self._sub_models = partition.sub_models
        self._trained, self._first, self._staleness = trained, first, staleness
        self._open: dict[int, Iteration] = {}  # that have begun and are not over, in their order
        self._listener = Listener(worker, self._hear_trained)

    def run(self, inputs: Sequence[Any], labels: Sequence[Any]) -> list[Over]:
        """Begins an iteration, and trains tokens until this rank may begin the next one.

        Without a staleness that is its end.

        Args:
            inputs: this rank's samples.
            labels: theirs.

        Returns:
            The iterations that have ended meanwhile, in their order.
        """
        samples = int(inputs[0].shape[0])
        iteration, parts = self._worker.prepare(samples)
        self._open[iteration] = self._trainer.begin(
            self._first + iteration, sums_changes=self._staleness > 0
        )
        rows = {part.token: part.samples for part in parts}
        self._put(iteration, ChunkKind.SAMPLES, rows, inputs)
        self._put(iteration, ChunkKind.LABELS, rows, labels)
        self._worker.begin(samples)
        to_the_end = not self._staleness
        self._listen(to_the_end)
        self._worker.request()
        return self._train_tokens(to_the_end)

    @property
    def waiting_seconds(self) -> float:
        """Seconds in which this rank's Trainer has waited for the token server's word."""
        return self._listener.waited_seconds

    def finish(self) -> list[Over]:
        """Trains tokens until all iterations that this rank has begun are over; returns those."""
        if not self._open:
            return []
        self._listen(to_the_end=True)
        self._worker.finish()
        return self._train_tokens(to_the_end=True)

    def _train_tokens(self, to_the_end: bool) -> list[Over]:
        ended = []
        while True:
            event = self._listener.next()
            if isinstance(event, Token):
                loss = self._train(event)
                self._listen(to_the_end)
                self._worker.report(event.number, loss)
            elif isinstance(event, Over):
                ended.append(event)
                del self._open[event.iteration]
                if to_the_end and not self._open:
                    return ended
            elif not to_the_end:
                return ended

    def _listen(self, to_the_end: bool) -> None:
        self._listener.ask(next(reversed(self._open)), to_the_end)

    def _hear_trained(self, event: Trained) -> None:
        self._trained(event.iteration, self._open[event.iteration], event.sub_model - 1)

    def _train(self, token: Token) -> float:
        """Trains a token and puts what it has made; returns the sum of its samples' losses."""
        last = len(self._sub_models)
        if token.stage > last:
            self._backward(2 * last - token.stage - 1, token)
            return 0.0
        if token.stage < last:
            outputs, loss = self._forward(token.stage - 1, token, token.number)
            self._put(token.iteration, ChunkKind.OUTPUT, {token.number: token.samples}, outputs)
            return loss
        flat = self._take(token, token.of(ChunkKind.LABELS), self._batches.labels)
        labels = self._batches.pack_labels(flat)
        inputs = self._inputs(last - 1, token)
        back, loss = self._trainer.last(
            self._open[token.iteration], inputs, labels, token.sample_ids
        )
        self._put_back(token, last - 1, _needs(token), back)
        return loss

    def _forward(
        self, sub_model: int, token: Token, forward: int, again: bool = False
    ) -> tuple[list[Any], float]:
        inputs = self._inputs(sub_model, token)
        ids, needs = token.sample_ids, _needs(token)
        now = self._open[token.iteration]
        return self._trainer.forward(now, sub_model, forward, inputs, ids, needs, again)

    def _backward(self, sub_model: int, token: Token) -> None:
        of_output = token.of(ChunkKind.GRADIENT)
        forward = of_output[0].token
        if token.recomputes:
            self._forward(sub_model, token, forward, again=True)
        specs = float_specs_of(self._sub_models[sub_model].outputs)
        gradients = self._take(token, of_output, specs)
        now = self._open[token.iteration]
        back, needs = self._trainer.backward(now, sub_model, forward, gradients)
        self._put_back(token, sub_model, needs, back)

    def _inputs(self, sub_model: int, token: Token) -> list[Any]:
        if samples := token.of(ChunkKind.SAMPLES):
            return self._take(token, samples, self._batches.inputs)
        specs = specs_of(self._sub_models[sub_model].inputs)
        return self._take(token, token.of(ChunkKind.OUTPUT), specs)

    def _take(self, token: Token, wanted: Sequence[Input], specs: Sequence[Any]) -> list[Any]:
        return self._worker.take(token.iteration, wanted, specs) if specs else []

    def _put(
        self, iteration: int, kind: ChunkKind, rows: Mapping[int, int], tensors: Sequence[Any]
    ) -> None:
        if tensors:
            self._worker.put(iteration, kind, rows, tensors)

    def _put_back(
        self, token: Token, sub_model: int, needs: Mapping[int, int], gradients: Any
    ) -> None:
        if sub_model > 0:  # what a model is given needs none
            self._put(token.iteration, ChunkKind.GRADIENT, needs, gradients)


def _needs(token: Token) -> dict[int, int]:
    return {one.token: one.samples for one in token.of(ChunkKind.OUTPUT)}
