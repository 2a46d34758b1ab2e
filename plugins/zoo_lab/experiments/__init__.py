"""The zoo's own experiments: each a function that returns a plan."""
