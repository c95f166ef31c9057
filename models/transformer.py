"""A Transformer encoder (Vaswani et al., 2017, the base size) that classifies texts."""

from __future__ import annotations

import keras

from trepak.models.builder import Builder


def transformer(
    b: Builder,
    classes: int = 2,
    words: int = 64,
    vocabulary: int = 32_000,
    width: int = 512,
    layers: int = 6,
) -> keras.Model:
    """Returns the classifier; 35,299,330 parameters, 16,384,000 of them in the embedding."""
    text = b.input((words,), dtype="int32")
    x = b.embedding(text, vocabulary, width)
    for _ in range(layers):
        x = b.layer_norm(b.add([x, b.attention(x, heads=8)]))
        y = b.dense(b.pointwise(b.dense(x, 4 * width), "relu"), width)
        x = b.layer_norm(b.add([x, y]))
    return b.model(text, b.dense(b.mean(x), classes), "transformer")
