"""Keras layers whose weights are spread over ranks."""
