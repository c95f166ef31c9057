"""Keras models and data that trepak trains, measures and shows."""
