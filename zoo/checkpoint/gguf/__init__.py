"""GGUF files: their header, config, tensors and tokenizer."""
