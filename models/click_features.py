"""What models of clicks have in common: tables of embeddings, inputs, look-ups, dense layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
from keras import layers
from keras_rs.layers import FeatureConfig, TableConfig

_LINEAR = "_linear"  # ends the names of the linear part's features


def feature_configs(
    vocabularies: Mapping[str, int],
    dimension: int,
    batch_size: int | None,
    *,
    linear: bool = False,
    lengths: Mapping[str, int] | None = None,
    optimizer: str | keras.optimizers.Optimizer = "adagrad",
) -> dict[str, FeatureConfig]:
    """Returns what a `keras_rs.layers.DistributedEmbedding` is made of: a table for each feature.

    Args:
        vocabularies: rows by feature.
        dimension: of the embeddings, float32 (B, dimension).
        batch_size: B, samples that the layer is called with; None if that varies.
        linear: whether each feature also has a table of dimension 1, which `wide_deep` and
            `deepfm` look up with the same ids.
        lengths: L of the features that have L ids per sample, (B, L), whose embedding is the mean
            of L rows; the others have one id, (B,).
        optimizer: of the rows. KerasRS's own layer leaves it to TPUs: elsewhere the optimizer that
            the model is compiled with updates its tables.

    Raises:
        ValueError: there is no feature, an empty table, or a length of an unknown feature.
    """
    lengths = lengths or {}
    if not vocabularies or min(vocabularies.values()) < 1 or dimension < 1:
        raise ValueError(
            "embeddings need at least one feature, one row of each and one dimension: got "
            f"dimension={dimension}, vocabularies={dict(vocabularies)}."
        )
    if unknown := sorted(set(lengths) - set(vocabularies)):
        raise ValueError(f"lengths has {', '.join(unknown)}, which the vocabularies do not have.")
    configs = {}
    for suffix, width in (("", dimension), (_LINEAR, 1))[: 1 + linear]:
        for feature, rows in vocabularies.items():
            name = feature + suffix
            # With smaller numbers products of rows are learned late: their gradients are smaller.
            start = keras.initializers.RandomNormal(stddev=0.05)
            table = TableConfig(f"{name}_table", rows, width, start, optimizer)
            ids = (batch_size, lengths[feature]) if feature in lengths else (batch_size,)
            configs[name] = FeatureConfig(name, table, ids, (batch_size, width))
    return configs


def click_inputs(
    features: Iterable[str], numerical: int, lengths: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Returns a model's inputs, which are what `click_batches.batch_of` makes.

    Args:
        features: names of the categorical features.
        numerical: the number of numerical features; with 0 there is no such input.
        lengths: see `feature_configs`.

    Raises:
        ValueError: `numerical` is below 0.
    """
    if numerical < 0:
        raise ValueError(f"numerical is a number of features, at least 0, got {numerical}.")
    lengths = lengths or {}
    ids = {
        name: keras.Input((lengths[name],) if name in lengths else (), dtype="int32", name=name)
        for name in features
    }
    numbers = {"numerical": keras.Input((numerical,), name="numerical")} if numerical else {}
    return {"categorical": ids, **numbers}


def look_up(embedding: Any, ids: Mapping[str, Any], *, linear: bool = False) -> list[list[Any]]:
    """Returns the features' embeddings and, with `linear`, their weights in the linear part.

    Both come from one call of the layer, so that a distributed one exchanges them together.

    Args:
        embedding: a layer that maps a dict of ids to a dict of embeddings, made of
            `feature_configs`.
        ids: int32, (B,) or (B, L), by feature.
        linear: whether to look up weights too.

    Returns:
        Float32 (B, dimension) for each feature and, with `linear`, float32 (B, 1) for each.

    Raises:
        ValueError: the layer has other features.
    """
    suffixes = ("", _LINEAR)[: 1 + linear]
    try:
        found = embedding({name + suffix: x for suffix in suffixes for name, x in ids.items()})
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"the embedding layer has other features than {', '.join(ids)}: make it of "
            f"feature_configs(vocabularies, …, linear={linear}) with these vocabularies. ({error})"
        ) from error
    return [[found[name + suffix] for name in ids] for suffix in suffixes]


def dense_layers(x: Any, units: Sequence[int], dropout: float = 0.0) -> Any:
    """Returns x after layers with ReLU, of these widths: float32 (B, units[-1]).

    Args:
        x: float32, (B, any).
        units: width of each layer; with none x is returned.
        dropout: share of each layer's outputs that training drops.
    """
    for width in units:
        x = layers.Dense(width, activation="relu")(x)
        if dropout:
            x = layers.Dropout(dropout)(x)
    return x
