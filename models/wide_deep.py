"""Wide & Deep (Cheng et al., "Wide & deep learning for recommender systems", 2016)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
from keras import layers, ops

from trepak.models.click_features import click_inputs, dense_layers, look_up


def wide_deep(
    embedding: Any,
    features: Iterable[str],
    *,
    numerical: int = 13,
    lengths: Mapping[str, int] | None = None,
    units: Sequence[int] = (1024, 512, 256),
) -> keras.Model:
    """Returns the model: a linear one and a deep one whose logits are added (section 3.3, eq. 3).

        logit = wᵀx + w_dᵀ a + b,  a = ReLU layers over all embeddings and numerical features.

    The linear one sees every id and numerical feature, and no products of them: which to cross is a
    choice for each data set. Train it with `from_logits=True`.

    Args:
        embedding: a layer that maps ids to embeddings, made of `feature_configs(…, linear=True)`
            with the same features.
        features: names of the categorical features.
        numerical: the number of numerical features, float32 (B, numerical); 0 for none.
        lengths: see `feature_configs`.
        units: widths of the deep part's layers; by default those of figure 4.

    Returns:
        A model from `click_batches.batch_of`'s inputs to logits of a click, float32 (B, 1).

    Raises:
        ValueError: `numerical` is below 0, or `embedding` has other features.
    """
    inputs = click_inputs(features, numerical, lengths)
    vectors, weights = look_up(embedding, inputs["categorical"], linear=True)
    numbers = [inputs["numerical"]] if numerical else []
    deep = dense_layers(ops.concatenate([*vectors, *numbers], axis=-1), units)
    wide = [*weights, *(layers.Dense(1, use_bias=False, name="wide")(x) for x in numbers)]
    return keras.Model(inputs, layers.Add()([*wide, layers.Dense(1)(deep)]), name="wide_deep")
