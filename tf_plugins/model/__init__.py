"""What acts around a Keras model: hooks, state, loading, elastic training."""
