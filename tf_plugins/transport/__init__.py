"""How gradients travel: what `transport=` takes."""
