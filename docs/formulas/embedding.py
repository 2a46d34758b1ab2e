"""The embedding table, forwards and backwards. Axes: T tokens, D width, V vocabulary."""


def embedding(E, ids):  # (V, D), (T) -> (T, D)
    """One row of the table for each id."""
    x = E[ids]
    return x


def tied_logits(E, h):  # (V, D), (T, D) -> (T, V)
    """The score of each token: the product of the last vector with the token's row."""
    logits = h @ E.T
    return logits
