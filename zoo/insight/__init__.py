"""What can be told of a model without running it: counts, and differences between recipes."""
