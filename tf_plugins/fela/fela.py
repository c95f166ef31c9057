"""`Fela`: hybrid-parallel training by tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trepak.tf_plugins.fela.partition import partition as partition_of
from trepak.tf_plugins.fela.training import Training
from trepak.tf_plugins.model.model_hooks import ModelHook, attach
from trepak.tf_plugins.optimizer.wrappers import DistributedOptimizer

_NAME = "fela"


class Fela:
    """Has `fit` train a model by tokens; see docs/fela.md.

    To be called on all ranks, before `compile` or after it:

        trepak.Fela(model, partition=["block3_pool"], weights=[1, 2])
        model.compile(optimizer, loss)
        model.fit(x, y, batch_size=32)

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
        depth_first: bool = True,
        hierarchical: bool = True,
        recompute: bool = True,
    ) -> None:
        """Attaches it to a model."""
        self.partition = partition_of(model, partition)
        self._model = model
        self._threshold = threshold
        self._weights = list(weights or [1] * len(self.partition.sub_models))
        self._switches = {
            "depth_first": depth_first,
            "hierarchical": hierarchical,
            "recompute": recompute,
        }
        self._training: Training | None = None
        attach(model, ModelHook(_NAME, {"compile": self._compiling}, self._function, True))

    def statistics(self) -> dict[str, Any]:
        """Returns what this rank has counted; see `FelaWorker.statistics`."""
        return {} if self._training is None else self._training.statistics()

    def _compiling(self, model: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            done = plain(*args, **kwargs)
            model.optimizer = DistributedOptimizer(model.optimizer)  # in place
            self._training = None
            return done

        return compile

    def _function(self, model: Any, plain: Any) -> Callable[[Iterator[Any]], Any]:
        del plain
        if self._training is None:
            self._training = Training(model, self.partition, self._rules)
        return self._training.step

    def _rules(self, batches: list[int]) -> Mapping[str, Any]:
        return {
            "batches": batches,
            "threshold": self._threshold,
            "weights": self._weights,
            "subsets": [],
            **self._switches,
        }
