"""The calls of embeddings in a functional model's graph, apart from all its other calls.

A graph is walked twice. The first walk makes all calls that need no embedding, and so finds out
what is looked up; the second one makes the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras.src.models.functional import Functional

_LATER = object()  # stands for what an embedding must have been looked up for


class EmbeddingCall(NamedTuple):
    """A call of an embedding, named as its arguments are: ids, and their weights or None."""

    layer: Any
    inputs: Any
    weights: Any = None


class GraphWalk:
    """Makes a graph's calls anew, those of embeddings apart.

    Attributes:
        calls: of embeddings, in the order of the graph.
        tied: the ids of embeddings whose variable another call has among its arguments.
    """

    def __init__(self, graph: Any, wanted: Mapping[int, Any]) -> None:
        """Takes a functional model, and the embeddings by their ids."""
        self._graph, self._wanted = graph, wanted
        self.calls: list[EmbeddingCall] = []
        self.tied: set[int] = set()
        self._owners = {id(one): key for key, layer in wanted.items() for one in layer.variables}
        self._made: list[Any] = []  # what each other call has returned, or _LATER

    def calls_of(self, layer: Any) -> list[EmbeddingCall]:
        """Returns the calls of one embedding."""
        return [call for call in self.calls if call.layer is layer]

    def begin(self) -> None:
        """Makes the calls that need no embedding.

        Raises:
            ValueError: ids depend on an embedding.
        """
        self._run(self._graph, self._graph.inputs, self._first)

    def finish(self, rows: Sequence[Any]) -> Any:
        """Makes all other calls; `rows`: by call of an embedding, what it returns."""
        looked_up, made = iter(rows), iter(self._made)

        def second(operation: Any, *args: Any, **kwargs: Any) -> Any:
            if id(operation) in self._wanted:
                return next(looked_up)
            before = next(made)
            return operation(*args, **kwargs) if before is _LATER else before

        return self._run(self._graph, self._graph.inputs, second)

    def _first(self, operation: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = keras.tree.flatten((args, kwargs))
        later = any(one is _LATER for one in arguments)
        self.tied |= {self._owners[id(one)] for one in arguments if id(one) in self._owners}
        if id(operation) in self._wanted:
            if later:
                raise ValueError(
                    f"what {operation.name!r} looks up depends on what another embedding returns: "
                    "one exchange can't look up both. Name one of them in leave=."
                )
            self.calls.append(EmbeddingCall(operation, *args, **kwargs))
            return _LATER
        self._made.append(_LATER if later else operation(*args, **kwargs))
        count = len(keras.tree.flatten(operation.output))
        return [_LATER] * count if later else self._made[-1]

    def _run(self, graph: Any, inputs: Any, call: Any) -> Any:
        def called(operation: Any, *args: Any, **kwargs: Any) -> Any:
            inner = functional_graph(operation)
            if inner is None or not any(
                id(one) in self._wanted for one in embeddings_of(operation)
            ):
                return call(operation, *args, **kwargs)
            _check_inner(operation, inner, args, kwargs)
            return self._run(inner, args[0], call)

        return graph._run_through_graph(inputs, call_fn=called)


def functional_graph(operation: Any) -> Any:
    """Returns the functional model that a model is; None: it is none."""
    sequential = isinstance(operation, keras.Sequential)
    graph = operation._functional if sequential else operation
    return graph if isinstance(graph, Functional) else None


def embeddings_of(model: Any) -> list[Any]:
    """Returns the embeddings anywhere in a model, each once."""
    found = (one for one in model._flatten_layers() if isinstance(one, keras.layers.Embedding))
    return list({id(layer): layer for layer in found}.values())


def _check_inner(model: Any, graph: Any, args: Any, kwargs: Any) -> None:
    """Checks that a call of a model can be put in the place of the calls that it makes."""
    given = {key: value for key, value in kwargs.items() if value is not None}
    pairs = zip(keras.tree.flatten(args[:1]), graph.inputs, strict=True)
    alike = all(one is _LATER or len(one.shape) == len(own.shape) for one, own in pairs)
    if given or len(args) != 1 or not alike:
        raise ValueError(
            f"the model {model.name!r}, which has embeddings, is called within another one with "
            f"{', '.join(given) or 'inputs of another rank'}: convert it by itself, before the "
            "other one is made of it."
        )
