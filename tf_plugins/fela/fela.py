"""`Fela`: hybrid-parallel training by tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras

from trepak.horovod_ext import basics
from trepak.tf_plugins.fela.agreed import agreed_partition
from trepak.tf_plugins.fela.compiled import distribute
from trepak.tf_plugins.fela.graph import layers_in
from trepak.tf_plugins.fela.partition import Partition, partition_at
from trepak.tf_plugins.fela.rules import TokenRules
from trepak.tf_plugins.fela.training import Training
from trepak.tf_plugins.model.flushing import flushing_methods
from trepak.tf_plugins.model.model_hooks import ModelHook, Wrap, attach, detach

_NAME = "fela"
_THRESHOLD = 16  # samples: what the paper's layers need at least (footnote 14)


class Fela:
    """Has `fit` train a model by tokens: any free rank takes the next one.

    To be called on all ranks, before `compile`:

        hvd.init()
        trepak.Fela(model)
        model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
        model.fit(x, y, batch_size=32)

    `batch_size` is a rank's. An iteration changes the weights as one step of one process does with
    the samples of all ranks. The optimizer becomes a `DistributedOptimizer`.

    Attributes:
        partition: the model in sub-models.
    """

    def __init__(
        self,
        model: Any,
        partition: str | int | Sequence[str] = "auto",
        *,
        bin_size: int = 16,
        profile: str | Path | None = None,
        threshold: int | None = None,
        weights: Sequence[int] | None = None,
        subset: int | None = None,
        depth_first: bool = True,
        hierarchical: bool = True,
        recompute: bool = True,
        staleness: int = 0,
    ) -> None:
        """Attaches it to a model.

        Args:
            model: a Functional or Sequential Keras model.
            partition: "auto" cuts where the layers' threshold batch sizes change (the paper's
                bin-partitioned method); a number is the same with so many sub-models at most;
                names of layers are cuts after these.
            bin_size: of the bins of threshold batch sizes, in samples.
            profile: the file in which rank 0 keeps the thresholds that it has measured, by default
                one of this machine's user.
            threshold: samples of a T-1 token; by default the first sub-model's threshold batch
                size, or 16 where none was measured.
            weights: how many times larger a T-i token is than a T-1 token, by sub-model; by
                default as the thresholds are, in powers of two up to the number of ranks.
            subset: how many ranks, from rank 0 on, train the sub-models that have a Dense layer
                (CTD); by default all. Horovod needs `hvd.init(process_sets="dynamic")`.
            depth_first: whether tokens of the highest level go first (ADS); else by their numbers.
            hierarchical: whether each rank has a sub-bucket (HF).
            recompute: whether a free rank may make activations anew to go backward for another;
                with a staleness none does.
            staleness: iterations whose updates a rank's weights may lack when it begins another
                (SSP by token age); 0 is BSP. It does not go with `subset`.

        Raises:
            TypeError: the model has a call of its own.
            ValueError: an option is wrong, Horovod was not initialized, the job is elastic and no
                cuts are given, or the model can't be trained by tokens; says why.
        """
        path = None if profile is None else Path(profile)
        self.partition: Partition = agreed_partition(model, partition, bin_size, path)
        self._model = model
        measured = self.partition.thresholds or [_THRESHOLD] * len(self.partition.sub_models)
        self._rules = TokenRules(
            measured[0] if threshold is None else threshold,
            TokenRules.weights_for(measured, basics.size()) if weights is None else weights,
            tuple(map(_has_dense, self.partition.sub_models)),
            subset,
            depth_first,
            hierarchical,
            recompute,
            staleness,
        )
        self._training: Training | None = None
        self._is_fitting = False
        methods = flushing_methods(lambda _: self._flush(), lambda _: self._begin())
        methods |= {"compile": self._compiling, "fit": self._fitting(methods["fit"])}
        methods["_get_metrics_result_or_logs"] = self._counting  # of an epoch, before its end
        acts = self._close, self._flush, lambda: self._rules.staleness > 0
        attach(model, ModelHook(_NAME, methods, self._function, True, *acts))

    @property
    def rules(self) -> TokenRules:
        """The rules that tokens are made and given by."""
        return self._rules

    @property
    def batch_sizes(self) -> list[int]:
        """Each rank's samples of an iteration; none before the first batch."""
        return [] if self._training is None else self._training.batch_sizes

    def change(self, **rules: Any) -> None:
        """Changes rules, such as weights=(1, 2, 4), from the next iteration on; a collective call.

        Raises:
            ValueError: a rule is wrong, or the job is elastic.
        """
        if basics.is_elastic():
            raise ValueError(
                "Fela's rules can't change in an elastic job, since ranks that join later would "
                "not know them: give them to Fela."
            )
        changed = dataclasses.replace(self._rules, **rules)
        if self._training is not None:
            self._training.close()
            self._training.rules = changed
        self._rules = changed

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted: what `FelaWorker.statistics` has, and more.

        waiting_seconds: seconds in which training has waited for the token server's word.
        stale_iterations: that began with weights that lacked updates.
        most_stale: of so many iterations, at most.
        """
        return {} if self._training is None else self._training.statistics()

    def close(self) -> None:
        """Takes it off the model, whose next `fit` is an ordinary one; a collective call."""
        detach(self._model, _NAME)

    def _compiling(self, model: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            done = plain(*args, **kwargs)
            self._close()
            distribute(model)
            return done

        return compile

    def _fitting(self, flushing: Wrap) -> Wrap:
        """Has an error in a callback or in the data end this rank's part at once."""

        def wrap(model: Any, plain: Any) -> Any:
            fit = flushing(model, plain)

            def method(*args: Any, **kwargs: Any) -> Any:
                self._is_fitting = True
                try:
                    return fit(*args, **kwargs)
                except BaseException as error:
                    if self._training is not None:
                        self._training.give_up(error)
                    raise
                finally:
                    self._is_fitting = False

            return method

        return wrap

    def _counting(self, model: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Has an epoch's metrics be those of all its iterations."""
        del model

        def result(logs: Any) -> Any:
            if self._training is not None:
                self._training.finish()
            return plain(logs)

        return result

    def _function(self, model: Any, plain: Any) -> Callable[[Iterator[Any]], Any]:
        del plain
        if self._training is None:
            distribute(model)  # it may have been compiled before
            self.partition = partition_at(model, self.partition.places, self.partition.thresholds)
            self._training = Training(model, self.partition, self._rules)
        training = self._training
        return lambda iterator: training.step(iterator, by_itself=not self._is_fitting)

    def _begin(self) -> None:
        """Lets `fit` have another batch size than before."""
        if self._training is not None:
            self._training.close()

    def _flush(self) -> None:
        if self._training is not None:
            self._training.flush()

    def _close(self) -> None:
        training, self._training = self._training, None
        if training is not None:
            training.close()


def _has_dense(sub_model: Any) -> bool:
    inner = (one for layer in sub_model.layers for one, _ in layers_in(layer))
    return any(
        isinstance(layer, keras.layers.Dense) or getattr(layer, "kind", "") == "dense"  # emulated
        for layer in inner
    )
