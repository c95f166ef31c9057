"""`distribute_embeddings(model)`: a Keras model whose own embeddings become tables over ranks."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import keras_rs
from keras.src.models.functional import functional_like_constructor

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding
from trepak.tf_plugins.layers.embedding_graph import (
    EmbeddingCall,
    GraphWalk,
    embeddings_of,
    functional_graph,
)


def distribute_embeddings(
    model: Any,
    optimizer: Any,
    *,
    leave: Collection[str] = (),
    name: str = "distributed_embeddings",
    **options: Any,
) -> Any:
    """Returns a model whose embeddings are the tables of one `DistributedEmbedding`.

    Each `keras.layers.Embedding` and `keras_rs.layers.EmbedReduce` of a functional or Sequential
    model becomes a table over all ranks, of the layer's name and with its values: those of rank 0.
    All look-ups of a step share one exchange in each direction (thesis, section 6.1.1), whichever
    places of the model they have. A layer that is called several times is one table with several
    features. Models within the model are searched too, and those that have embeddings become part
    of it. The other layers are not copied: they are the given model's. The tables' values leave
    the given model, which can't be called any more.

    A collective call: make it on all ranks, after `hvd.init()` and before `compile`. What the given
    model was compiled with is not carried over.

    Args:
        model: a built functional or Sequential model.
        optimizer: of the tables: a Keras optimizer, or what names one; or a mapping of layers'
            names to them. SGD trains as it would have trained the given model. Keras' Adagrad
            squares the gradients of an id that comes twice in a batch one by one, here it is their
            sum; and Adam and FTRL change only the rows that a step looks up.
        leave: names of embedding layers that stay what they are: whole on each rank, trained by
            the optimizer that the model is compiled with.
        name: of the new layer.
        **options: of `DistributedEmbedding`, such as `sharding` or `folder`.

    Returns:
        A model with the given one's inputs, outputs and name; of its class if that is made as a
        functional model is, otherwise a `keras.Model`.

    Raises:
        ValueError: the model is a subclassed one, not built, or has no such embedding; one of them
            can't be a table, and is not in `leave`; ids depend on what another one returns; layers
            of models within the model have equal names; or the optimizer is one that rows can't
            have.
        RuntimeError: rank 0 could not give the tables their values; there it is what happened.
    """
    graph = _graph_of(model)
    found = embeddings_of(model)
    unknown = sorted(set(leave) - {layer.name for layer in found})
    if unknown:
        raise ValueError(f"leave= names {unknown[0]!r}, which is no embedding of {model.name!r}.")
    wanted = {id(layer): layer for layer in found if layer.name not in leave}
    if not wanted:
        raise ValueError(f"the model {model.name!r} has no embeddings to distribute.")
    walk = GraphWalk(graph, wanted)
    walk.begin()
    tied = _tied(model, wanted.values()) | walk.tied
    _check([(layer, walk.calls_of(layer)) for layer in wanted.values()], tied)
    configs, features = _features(walk.calls, _optimizers(wanted.values(), optimizer))
    layer = DistributedEmbedding(configs, name=name, dtype="float32", **options)
    with _begun_with_zeros(layer):
        outputs = walk.finish(_looked_up(layer, walk.calls, features))
    made = _class_of(model)(inputs=graph._inputs_struct, outputs=outputs, name=model.name)
    _move_values(wanted.values(), layer)
    for one in (model, *wanted.values()):
        one.call = _gone(one.name)
    # What has been traced would go on with the old tables, and keep them.
    model.train_function = model.test_function = model.predict_function = None
    return made


def _gone(name: str) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"{name!r} has given its tables to the model that distribute_embeddings has returned: "
            "call that one."
        )

    return call


def _graph_of(model: Any) -> Any:
    graph = functional_graph(model)
    if graph is not None:
        return graph
    if isinstance(model, keras.Sequential):
        raise ValueError(
            f"the Sequential model {model.name!r} is not built: begin it with a keras.Input."
        )
    raise ValueError(
        f"the model {model.name!r} is neither functional nor Sequential: what its call() does with "
        "embeddings is not known. Use trepak.layers.DistributedEmbedding in it."
    )


def _class_of(model: Any) -> Any:
    as_functional = not isinstance(model, keras.Sequential) and functional_like_constructor(
        type(model)
    )
    return type(model) if as_functional else keras.Model


def _tied(model: Any, embeddings: Collection[Any]) -> set[int]:
    """Returns the ids of embeddings whose variable another layer has too."""
    owners = {id(one): id(layer) for layer in embeddings for one in layer.variables}
    found = set()
    for layer in model._flatten_layers():
        if id(layer) in owners.values():
            continue
        # A functional model has what its layers have, and they are looked at by themselves.
        own = layer._trainable_variables + layer._non_trainable_variables
        variables = own if functional_graph(layer) is not None else layer.variables
        found |= {owners[id(one)] for one in variables if id(one) in owners}
    return found


def _check(pairs: Sequence[tuple[Any, Sequence[EmbeddingCall]]], tied: Collection[int]) -> None:
    """Checks that embeddings can be tables, and names all that can't.

    Args:
        pairs: each embedding with its calls.
        tied: the ids of those whose variable is used elsewhere.
    """
    names = [layer.name for layer, _ in pairs]
    weighted = any(call.weights is not None for _, calls in pairs for call in calls)
    reasons = [
        f"{layer.name!r} {reason}"
        for layer, calls in pairs
        for reason in [*_reasons(layer, calls), *_reasons_of_calls(calls, weighted)]
    ]
    reasons += [
        f"{layer.name!r} has a variable that another layer or operation has too"
        for layer, calls in pairs
        if calls and id(layer) in tied
    ]
    # Tables are told apart by their names, which Keras lets layers of inner models share.
    alike = sorted({name for name in names if names.count(name) > 1})
    reasons += [f"{name!r} is the name of several, which need names of their own" for name in alike]
    if reasons:
        raise ValueError(
            f"these embeddings can't be tables over ranks: {'; '.join(reasons)}. To leave them "
            f"whole on each rank, name them in leave=."
        )


def _reasons(layer: Any, calls: Sequence[EmbeddingCall]) -> Iterator[str]:
    if type(layer) not in (keras.layers.Embedding, keras_rs.layers.EmbedReduce):
        yield f"is of a class of its own, {type(layer).__name__}"
    if not calls:
        yield "is called inside of another layer, or not at all"
    if not layer.trainable:
        yield "is not trainable"
    if layer.mask_zero:
        yield "has mask_zero=True"
    if layer.embeddings_regularizer is not None or layer.activity_regularizer is not None:
        yield "has a regularizer"
    if layer.embeddings_constraint is not None:
        yield "has a constraint"
    if layer.lora_enabled:
        yield "has LoRA"
    if layer.quantization_mode is not None:
        yield "is quantized"
    if layer.variable_dtype != "float32":
        yield f"has weights of {layer.variable_dtype}, tables have float32"


def _reasons_of_calls(calls: Sequence[EmbeddingCall], weighted: bool) -> Iterator[str]:
    for layer, ids, weights in calls:
        varies = bool(getattr(ids, "sparse", False) or getattr(ids, "ragged", False))
        if varies and not isinstance(layer, keras_rs.layers.EmbedReduce):
            yield "looks up sparse or ragged ids without reducing them"
        if varies and weighted and weights is None:
            yield "has sparse or ragged ids without weights, while other embeddings have weights"
        if weights is not None and _is_trained(weights):
            yield "gets weights from layers that are trained, which get no gradient"


def _is_trained(tensor: Any) -> bool:
    """Tells whether a tensor of a graph depends on weights that are trained."""
    rest, seen = [tensor], set()
    while rest:
        one = rest.pop()
        history = getattr(one, "_keras_history", None)
        if history is None or id(one) in seen:
            continue
        seen.add(id(one))
        if getattr(history.operation, "trainable_variables", None):
            return True
        rest += history.operation._inbound_nodes[history.node_index].input_tensors
    return False


def _optimizers(layers: Collection[Any], given: Any) -> dict[str, Any]:
    """Returns the optimizers by layer's name."""
    names = [layer.name for layer in layers]
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    unlike = sorted(set(names) ^ set(given))
    if unlike:
        raise ValueError(
            f"optimizer= must name the embeddings {', '.join(sorted(names))}; it differs in "
            f"{', '.join(unlike)}."
        )
    return dict(given)


def _features(
    calls: Sequence[EmbeddingCall], optimizers: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Returns configurations by feature, and each call's feature."""
    tables: dict[int, Any] = {}
    configs: dict[str, Any] = {}
    features: list[str] = []
    taken = {layer.name for layer, _, _ in calls}  # of the first feature of each
    for layer, ids, _ in calls:
        if id(layer) not in tables:
            tables[id(layer)] = keras_rs.layers.TableConfig(
                name=layer.name,
                vocabulary_size=layer.input_dim,
                embedding_dim=layer.output_dim,
                initializer=layer.embeddings_initializer,
                optimizer=optimizers[layer.name],
                combiner=getattr(layer, "combiner", "sum"),
            )
        again = any(one is layer for one, _, _ in calls[: len(features)])
        features.append(_unused(layer.name, taken) if again else layer.name)
        shape = (*ids.shape, 1) if _keeps_all(layer, ids) else tuple(ids.shape)
        samples = shape[:-1] if len(shape) > 1 else shape
        configs[features[-1]] = keras_rs.layers.FeatureConfig(
            features[-1], tables[id(layer)], shape, (*samples, layer.output_dim)
        )
    return configs, features


def _unused(name: str, taken: set[str]) -> str:
    """Returns the name with the first number that makes it a new one, and takes it."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    found = next(one for one in numbered if one not in taken)
    taken.add(found)
    return found


def _keeps_all(layer: Any, ids: Any) -> bool:
    """Tells whether ids that stand beside each other have rows of their own: each is a sample."""
    return len(ids.shape) > 1 and not isinstance(layer, keras_rs.layers.EmbedReduce)


def _looked_up(layer: Any, calls: Sequence[EmbeddingCall], features: Sequence[str]) -> list[Any]:
    """Calls the new layer for all calls of embeddings; returns what each of them returns."""
    weighted = any(call.weights is not None for call in calls)
    ids: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for feature, call in zip(features, calls, strict=True):
        given = call.inputs
        if given.dtype not in ("int32", "int64"):
            given = keras.ops.cast(given, "int32")  # as Embedding does
        ids[feature] = keras.ops.expand_dims(given, -1) if _keeps_all(call.layer, given) else given
        if weighted:
            ones = call.weights is None
            made = keras.ops.ones_like(ids[feature], dtype="float32") if ones else call.weights
            weights[feature] = made
    outputs = layer(ids, weights) if weighted else layer(ids)
    return [
        _as(call.layer.compute_dtype, outputs[feature])
        for feature, call in zip(features, calls, strict=True)
    ]


def _as(dtype: str, rows: Any) -> Any:
    return rows if dtype == "float32" else keras.ops.cast(rows, dtype)


@contextlib.contextmanager
def _begun_with_zeros(layer: Any) -> Iterator[None]:
    """Draws no rows for tables that are built inside, since rank 0's values take their place.

    A table with a `min_count` needs its initializer, which draws the default row.
    """
    drawn = [
        (table, table.initializer)
        for table in layer._table_configs
        if not layer.storage.of_table(table.name)["min_count"]
    ]
    try:
        for table, _ in drawn:
            table.initializer = "zeros"
        yield
    finally:
        for table, initializer in drawn:  # a layer that is made from the configuration draws
            table.initializer = initializer


def _move_values(layers: Collection[Any], to: Any) -> None:
    """Gives the tables rank 0's values, and takes them from the embeddings; a collective call."""
    failure = None
    if basics.rank() == 0:
        try:
            to.set_embedding_tables({layer.name: layer.embeddings for layer in layers})
        except Exception as error:
            failure = error
    told = None if failure is None else str(failure)
    told = exchange.gather(told, "that embedding tables have the model's values")[0]
    if failure is not None:
        raise failure
    if told is not None:
        raise RuntimeError(f"rank 0 can't give the tables the model's values: {told}")
    for layer in layers:
        layer._untrack_variable(layer._embeddings)
        layer._embeddings = None
