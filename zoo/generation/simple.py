"""The shortest way from a prompt to a text. Read it first.

`zoo.generation.loop` does the same for many texts at once, with every setting. A test holds the two equal for every embedded
decoder.

Axes: T length of the prompt, V vocabulary. The batch has one row.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from zoo.errors import PromptError
from zoo.loading import Loaded


def generate(
    loaded: Loaded, prompt: str, *, max_tokens: int = 100, temperature: float = 0.0, seed: int = 0
) -> Iterator[str]:
    """Yield the text that a decoder writes after `prompt`, piece by piece.

    The likeliest token is chosen at `temperature` 0; above, one is drawn. The text ends with an end token, or after
    `max_tokens`. PromptError for a model without a tokenizer, and for one that does not continue texts.

    >>> import zoo
    >>> from zoo.generation.simple import generate
    >>> "".join(generate(zoo.load("llama"), "The capital city of China is"))
    ' Beijing.'
    """
    model, tokenizer = loaded.model, loaded.tokenizer
    if tokenizer is None or not model.decodes or model.translates:
        raise PromptError(f"{loaded.architecture.name} has no tokenizer, or does not continue a text")
    ids = tokenizer.encode(prompt)  # text -> T token ids
    detokenizer = tokenizer.detokenizer()
    cache = model.make_cache()  # one a layer, empty
    key = mx.random.key(seed)

    # Prefill: the whole prompt in one pass. `prefix` matters only where its tokens see each other both ways.
    logits = model(mx.array([ids]), cache, prefix=len(ids))[:, -1]  # (1, T) -> (1, V), of the first new token
    for _ in range(max_tokens):
        key, drawn = mx.random.split(key)
        token = choose(logits, temperature, drawn)
        if token in tokenizer.eos_ids:
            break
        yield detokenizer.add(token)  # "" until a character is whole
        # Decode: one token a pass. The cache holds the keys and values of all tokens before.
        logits = model(mx.array([[token]]), cache)[:, -1]  # (1, 1) -> (1, V)
    yield detokenizer.finish()


def choose(logits: mx.array, temperature: float, key: mx.array) -> int:  # (1, V) -> a token id
    """The likeliest token, or one drawn from softmax(logits ÷ temperature)."""
    if temperature == 0:
        return int(mx.argmax(logits, axis=-1).item())
    return int(mx.random.categorical(logits / temperature, key=key).item())
