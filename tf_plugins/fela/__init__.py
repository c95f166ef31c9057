"""Fela: sub-models of a Keras model, each trained with a batch size of its own."""
