"""`Fela`: hybrid-parallel training by tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.partition import partition as partition_of
from trepak.tf_plugins.fela.rules import TokenRules
from trepak.tf_plugins.fela.training import Training
from trepak.tf_plugins.model.distributed_models import is_distributed
from trepak.tf_plugins.model.flushing import flushing_methods
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, detach
from trepak.tf_plugins.optimizer.wrappers import DistributedOptimizer
from trepak.tf_plugins.sync.bsp import BSP

_NAME = "fela"


class Fela:
    """Has `fit` train a model by tokens: any free rank takes the next one.

    To be called on all ranks, before `compile`:

        trepak.Fela(model, partition=["block3_pool", "block5_pool"], weights=[1, 2, 4])
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
        partition: Sequence[str],
        *,
        threshold: int = 16,
        weights: Sequence[int] | None = None,
        subset: int | None = None,
        depth_first: bool = True,
        hierarchical: bool = True,
        recompute: bool = True,
    ) -> None:
        """Attaches it to a model.

        Args:
            model: a Functional or Sequential Keras model.
            partition: names of the layers after which to cut it.
            threshold: samples of a T-1 token.
            weights: how many times larger a T-i token is than a T-1 token, by sub-model; by
                default 1.
            subset: how many ranks, from rank 0 on, train the sub-models that have a Dense layer
                (CTD); by default all. Horovod needs `hvd.init(process_sets="dynamic")`.
            depth_first: whether tokens of the highest level go first (ADS); else by their numbers.
            hierarchical: whether each rank has a sub-bucket (HF).
            recompute: whether a free rank may make activations anew to go backward for another.

        Raises:
            TypeError: the model has a call of its own.
            ValueError: an option is wrong, or the model can't be trained by tokens; says why.
        """
        self.partition: Partition = partition_of(model, partition)
        self._model = model
        count = len(self.partition.sub_models)
        self._rules = TokenRules(
            threshold,
            tuple(weights or [1] * count),
            tuple(map(_has_dense, self.partition.sub_models)),
            subset,
            depth_first,
            hierarchical,
            recompute,
        )
        self._training: Training | None = None
        methods = flushing_methods(lambda _: self._flush(), lambda _: self._begin())
        compiling = {"compile": self._compiling}
        hook = ModelHook(_NAME, {**methods, **compiling}, self._function, True, self._close)
        attach(model, hook)

    @property
    def rules(self) -> TokenRules:
        """The rules that tokens are made and given by."""
        return self._rules

    def change(self, **rules: Any) -> None:
        """Changes rules, such as weights=(1, 2, 4), from the next iteration on; a collective call.

        Raises:
            ValueError: a rule is wrong.
        """
        self._rules = dataclasses.replace(self._rules, **rules)
        if self._training is not None:
            self._training.close()
            self._training.rules = self._rules

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted; see `FelaWorker.statistics`."""
        return {} if self._training is None else self._training.statistics()

    def close(self) -> None:
        """Takes it off the model, whose next `fit` is an ordinary one; a collective call."""
        detach(self._model, _NAME)

    def _compiling(self, model: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            done = plain(*args, **kwargs)
            self._close()
            _distribute(model)
            return done

        return compile

    def _function(self, model: Any, plain: Any) -> Callable[[Iterator[Any]], Any]:
        del plain
        if self._training is None:
            _distribute(model)  # it may have been compiled before
            self._training = Training(model, self.partition, self._rules)
        return self._training.step

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


def _distribute(model: Any) -> None:
    """Makes a model's optimizer distributed, in place.

    Raises:
        ValueError: it is distributed in a way that tokens don't go with.
    """
    optimizer = model.optimizer
    if is_distributed(optimizer):
        if not isinstance(optimizer._trepak.sync, BSP):
            raise ValueError(
                "Fela trains all ranks' samples in each step, and the optimizer's sync= lets ranks "
                "go at their own pace: leave sync out, or use sync=trepak.BSP()."
            )
        return
    DistributedOptimizer(optimizer)


def _has_dense(sub_model: Any) -> bool:
    return any(isinstance(layer, keras.layers.Dense) for layer in sub_model.layers)
