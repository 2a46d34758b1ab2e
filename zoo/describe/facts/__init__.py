"""Facts of a recipe: parameters, FLOPs, bytes of cache and weights, structure. Imports no mlx."""
