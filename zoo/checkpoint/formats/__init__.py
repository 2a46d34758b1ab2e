"""Other libraries' quantized formats: one reader a `quant_method` makes what MLX holds of its tensors."""
