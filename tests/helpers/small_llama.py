"""The config of a LLaMA that takes milliseconds a training step."""

NUMBERS = dict(
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    vocab_size=1,  # a run takes that of its tokenizer
    max_position_embeddings=64,
    tie_word_embeddings=True,
)
