"""Chicle: one task per node, and chunks of data that move between them."""
