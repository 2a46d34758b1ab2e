"""What an encoder and a decoder cost, and one decoder of as many layers: the 2017 Transformer and a GPT of its sizes."""

from __future__ import annotations

from functools import cache

from zoo.config import Config
from zoo.describe import Sheet, describe, facts_of
from zoo.describe.facts.fact import text_of
from zoo.host.registry import default_registry

TOKENS = 512  # of the source, and of the answer


@cache
def sheets() -> tuple[Sheet, Sheet, Sheet]:
    """The Transformer at `TOKENS`, and the single stack when it has read the source, and when it has written the answer."""
    registry = default_registry()
    two = describe("transformer:base", registry).recipe
    stack = two.decoder
    config = dict(
        n_embd=stack.dim,
        n_layer=len(two.encoder.layers) + len(stack.layers),
        n_head=stack.layers[0].mixer.heads,
        vocab_size=two.vocab,
        n_positions=2 * TOKENS,
    )
    one = registry.architecture("gpt").recipe_of(Config(config))
    return facts_of(two, context=TOKENS), facts_of(one, context=TOKENS), facts_of(one, context=2 * TOKENS)


def costs(name: str) -> tuple[str, str]:
    """One cost of two stacks and of one: "parameters", FLOPs of a token "read" or "written", or the "cache" at the end."""
    two, reading, writing = sheets()
    if name == "parameters":
        return two["parameters.total"].text, reading["parameters.total"].text
    if name == "read":
        return two["flops.prefill"].text, reading["flops.prefill"].text
    if name == "written":
        return two["flops.decode"].text, writing["flops.decode"].text
    held = (two.value("cache.token") + two.value("cache.source_token")) * TOKENS
    return text_of(held, "bytes"), writing["cache.context"].text
