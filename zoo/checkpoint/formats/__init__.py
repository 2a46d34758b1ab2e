"""Quantized formats of others: each module's `read` makes what MLX can hold of one `quant_method`'s tensors."""
