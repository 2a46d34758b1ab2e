"""Where a model comes from and where it goes."""
