"""Version 1 of the contract: a strategy. NEVER EDIT THIS FILE: see pyproject.toml."""

import mlx.core as mx

from zoo.errors import PromptError
from zoo.generation import Step
from zoo.generation.prompt import encode_prompt, end_ids, learned_context


def stream(loaded, prompt, *, max_tokens=8):
    """The likeliest token each time."""
    ids = encode_prompt(loaded, prompt)
    if max_tokens < 1:
        raise PromptError(f"max-tokens must be at least 1, got {max_tokens}")
    context = learned_context(loaded.recipe)
    return _steps(loaded, ids, max_tokens if context is None else min(max_tokens, context - len(ids) + 1))


def _steps(loaded, ids, limit):
    ends = end_ids(loaded)
    detokenizer = loaded.tokenizer.detokenizer() if loaded.tokenizer else None
    cache, tokens = loaded.model.make_cache(), mx.array([ids])
    for count in range(1, limit + 1):
        hidden = loaded.model.backbone(tokens, cache)[:, -1:]  # (1, 1, D)
        token = int(mx.argmax(loaded.model.head(hidden)[0, -1]).item())
        ended = token in ends
        text = "" if detokenizer is None or ended else detokenizer.add(token)
        if detokenizer is not None and (ended or count == limit):
            text += detokenizer.finish()
        yield Step(token, text, finish_reason="stop" if ended else "length" if count == limit else None)
        if ended:
            return
        tokens = mx.array([[token]])
