"""Training from nothing: corpora, tokenizer, loss, loop. It makes the embedded pocket checkpoints."""
