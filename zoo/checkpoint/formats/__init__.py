"""Other libraries' quantized formats: each module reads the tensors of one `quant_method` into what MLX holds."""
