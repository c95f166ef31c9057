"""DeepFM (Guo et al., "DeepFM: a factorization-machine based neural network", 2017)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
from keras import layers, ops

from trepak.models.click_features import click_inputs, dense_layers, look_up


def deepfm(
    embedding: Any,
    features: Iterable[str],
    *,
    numerical: int = 13,
    lengths: Mapping[str, int] | None = None,
    units: Sequence[int] = (400, 400, 400),
    dropout: float = 0.5,
) -> keras.Model:
    """Returns the model: a factorization machine and a deep part on the same vectors.

        logit = Σ w_f x_f + Σ_{f<g} ⟨v_f, v_g⟩ x_f x_g + w_dᵀ a + b  (section 2.1, eq. 1 and 2),

    where a are ReLU layers over all vectors v_f x_f. A numerical feature has one vector, which its
    value multiplies; x_f of a categorical one is 1 for its id. Train it with `from_logits=True`.

    Args:
        embedding: a layer that maps ids to embeddings of one dimension, made of
            `feature_configs(…, linear=True)` with the same features.
        features: names of the categorical features.
        numerical: the number of numerical features, float32 (B, numerical); 0 for none.
        lengths: see `feature_configs`.
        units: widths of the deep part's layers; the paper's by default (section 3.1).
        dropout: share of the deep part's activations that training drops; the paper's by default.

    Returns:
        A model from `click_batches.batch_of`'s inputs to logits of a click, float32 (B, 1).

    Raises:
        ValueError: `numerical` is below 0, or `embedding` has other features.
    """
    inputs = click_inputs(features, numerical, lengths)
    vectors, first_order = look_up(embedding, inputs["categorical"], linear=True)
    fields = ops.stack(vectors, axis=1)
    if numerical:
        x, dimension = inputs["numerical"], vectors[0].shape[-1]
        own = layers.EinsumDense("bf,fd->bfd", (numerical, dimension), name="value_vectors")(x)
        fields = ops.concatenate([fields, own], axis=1)
        first_order = [*first_order, layers.Dense(1, use_bias=False, name="first_order")(x)]
    # Σ_{f<g} ⟨v_f, v_g⟩ = ½ Σ ((Σ_f v_f)² − Σ_f v_f²): Rendle's lemma 3.1, linear in the fields.
    squares = ops.square(ops.sum(fields, axis=1)) - ops.sum(ops.square(fields), axis=1)
    pairs = 0.5 * ops.sum(squares, axis=-1, keepdims=True)
    deep = layers.Dense(1)(dense_layers(layers.Flatten()(fields), units, dropout))
    return keras.Model(inputs, layers.Add()([*first_order, pairs, deep]), name="deepfm")
