"""Deep & Cross Network (Wang et al., "Deep & cross network for ad click predictions", 2017)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
from keras import layers, ops
from keras_rs.layers import FeatureCross

from trepak.models.click_features import click_inputs, dense_layers, look_up


def dcn(
    embedding: Any,
    features: Iterable[str],
    *,
    numerical: int = 13,
    lengths: Mapping[str, int] | None = None,
    crosses: int = 6,
    units: Sequence[int] = (1024, 1024),
) -> keras.Model:
    """Returns the model: crosses of bounded degree beside a deep part (section 2, figure 1).

        x_{l+1} = x_0 ⊙ (W_l x_l + b_l) + x_l,  logit = wᵀ [x_crosses, a] + b,

    where x_0 are all embeddings and numerical features, and a are ReLU layers over them. The cross
    layers are KerasRS's, with a full matrix as in DCN-V2 (Wang et al., 2021, eq. 1); the paper's
    vector is the matrix of rank one. Train it with `from_logits=True`.

    Args:
        embedding: a layer that maps ids to embeddings, made of `feature_configs` with the same
            features.
        features: names of the categorical features.
        numerical: the number of numerical features, float32 (B, numerical); 0 for none.
        lengths: see `feature_configs`.
        crosses: the number of cross layers; by default those of the paper's best model
            (section 4.3), whose deep part `units` has by default too.
        units: widths of the deep part's layers.

    Returns:
        A model from `click_batches.batch_of`'s inputs to logits of a click, float32 (B, 1).

    Raises:
        ValueError: `numerical` is below 0, or `embedding` has other features.
    """
    inputs = click_inputs(features, numerical, lengths)
    (vectors,) = look_up(embedding, inputs["categorical"])
    numbers = [inputs["numerical"]] if numerical else []
    x0 = crossed = ops.concatenate([*vectors, *numbers], axis=-1)
    for _ in range(crosses):
        crossed = FeatureCross()(x0, crossed)
    both = ops.concatenate([crossed, dense_layers(x0, units)], axis=-1)
    return keras.Model(inputs, layers.Dense(1)(both), name="dcn")
