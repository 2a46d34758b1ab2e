"""The zoo's own experiments: each a function that gives a plan."""
