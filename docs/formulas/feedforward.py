"""The feed-forward and the mixture of experts. Axes: T tokens, D width, F hidden features, N experts."""

import math

import mlx.core as mx

from formulas.attention import softmax


def gelu(x):  # any shape
    """GPT-2's form of GELU: x times about the probability that a normal variable is below x."""
    return x / 2 * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def feedforward(x, W_1, b_1, W_2, b_2, activation=gelu):  # (T, D) -> (T, D)
    """Two projections with a function between them."""
    hidden = activation(x @ W_1 + b_1)  # (T, F)
    return hidden @ W_2 + b_2


def swiglu(x, W, V, W_2):  # (T, D) -> (T, D)
    """A gated feed-forward: SiLU(x W) says how much of each feature x V passes."""
    z = x @ W  # (T, F)
    gate = z / (1 + mx.exp(-z))  # SiLU(z) = z σ(z)
    return (gate * (x @ V)) @ W_2


def mixture_of_experts(x, W_g, E, k):  # (D) -> (D), for one token
    """The sum of the k experts with the highest scores, weighted by the softmax of these scores."""
    scores = x @ W_g  # (N)
    top_k = mx.argsort(-scores)[:k].tolist()
    g = softmax(scores[mx.array(top_k)])  # (k), sums to one
    y = 0
    for n, i in enumerate(top_k):
        y = y + g[n] * E[i](x)  # the other experts are not computed
    return y
