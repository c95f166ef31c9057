"""Every figure of docs/results: benches, and what they measure with."""
