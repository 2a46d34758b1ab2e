"""Encoders told as differences from BERT. The padding's id is one that texts do not have: positions begin after it."""

from .family import UNTIED, VOCAB, Family, heads

PADDED = dict(vocab_size=VOCAB + 1, pad_token_id=VOCAB, max_position_embeddings=VOCAB + 65)
SHAPES = (heads(4, 4), heads(3, 3, 16))

ENCODERS = {
    "roberta": Family(
        "Roberta",
        (dict(type_vocab_size=1), UNTIED | dict(hidden_act="relu", layer_norm_eps=1e-3)),
        PADDED,
        SHAPES,
        model="ForMaskedLM",
        mlx=None,
    ),
    "distilbert": Family(
        "DistilBert",
        (dict(), UNTIED | dict(activation="relu", sinusoidal_pos_embds=True)),
        dict(dim=32, hidden_dim=48, n_layers=3, n_heads=4),
        (dict(), dict(dim=48, n_heads=3)),
        model="ForMaskedLM",
        mlx=None,
    ),
}
