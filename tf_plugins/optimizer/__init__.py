"""Optimizers and tapes whose gradients are reduced over the ranks."""
