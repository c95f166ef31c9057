"""Callbacks of `fit`, and what they do."""
