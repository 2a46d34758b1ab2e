"""Reading checkpoints of any kind, and writing them."""
