"""Where tensors live: training within a memory budget."""
