"""Attention and its variants, for one text.

Axes: T tokens, S tokens looked at, D width, H heads, G groups that share a key and a value, d width of a head,
R width of a latent. W_Q, W_K and W_V hold a matrix for each head (or group).
"""

import math

import mlx.core as mx


def softmax(z):  # (…, S) -> (…, S)
    """The exponential of each score, divided by the sum of all."""
    m = z.max(axis=-1, keepdims=True)  # subtracted first, so that no exponential overflows
    e = mx.exp(z - m)
    return e / e.sum(axis=-1, keepdims=True)


def causal_mask(T):  # -> (T, T)
    """Zero where the query at place i may look at the key at place j, −∞ for later keys."""
    i = mx.arange(T)[:, None]  # (T, 1)
    j = mx.arange(T)[None, :]  # (1, T)
    return mx.where(j <= i, 0.0, -mx.inf)


def attention(Q, K, V, M=0.0):  # (T, d), (S, d), (S, d), (T, S) -> (T, d)
    """softmax(Q Kᵀ / √d_k + M) V: each token's mix of the values."""
    d_k = K.shape[-1]
    scores = Q @ K.T / math.sqrt(d_k)  # (T, S)
    shares = softmax(scores + M)  # (T, S), each row sums to one
    return shares @ V


def multi_head(X, W_Q, W_K, W_V, W_O, M=0.0):  # (T, D) -> (T, D)
    """Several attentions side by side, each with its own matrices, mixed by W_O."""
    H = len(W_Q)
    heads = []
    for h in range(H):
        Q, K, V = X @ W_Q[h], X @ W_K[h], X @ W_V[h]  # (T, d) each
        heads.append(attention(Q, K, V, M))
    return mx.concatenate(heads, axis=-1) @ W_O  # (T, H·d) @ (H·d, D)


def grouped_query(X, W_Q, W_K, W_V, W_O, M=0.0):  # (T, D) -> (T, D)
    """H heads of queries, G of keys and values. G = H: multi-head attention, G = 1: multi-query."""
    H, G = len(W_Q), len(W_K)
    K = [X @ W for W in W_K]  # G times (T, d): all that a cache keeps
    V = [X @ W for W in W_V]
    heads = []
    for h in range(H):
        g = h * G // H  # the group of head h, both counted from zero
        heads.append(attention(X @ W_Q[h], K[g], V[g], M))
    return mx.concatenate(heads, axis=-1) @ W_O


def latent(X, W_Q, W_down, U_K, U_V, W_O, M=0.0):  # (T, D) -> (T, D)
    """Keys and values of all heads from one short vector of each token. Positions are left out."""
    c = X @ W_down  # (T, R): all that a cache keeps
    heads = []
    for h in range(len(W_Q)):
        K, V = c @ U_K[h].T, c @ U_V[h].T  # (T, d) each
        heads.append(attention(X @ W_Q[h], K, V, M))
    return mx.concatenate(heads, axis=-1) @ W_O


def cross_attention(H, M, W_Q, W_K, W_V, W_O):  # (T, D), (S, D) -> (T, D)
    """Queries from the decoder's hidden states H, keys and values from the encoder's output M."""
    heads = []
    for h in range(len(W_Q)):
        Q, K, V = H @ W_Q[h], M @ W_K[h], M @ W_V[h]  # (T, d), (S, d), (S, d)
        heads.append(attention(Q, K, V))
    return mx.concatenate(heads, axis=-1) @ W_O
