"""The formulas of the tour in plain MLX, with the names of their symbols; the tour shows them, and no model runs them."""
