"""A second model whose tokens are those of a first: a draft model, or a teacher."""

from __future__ import annotations

from pathlib import Path

from zoo.errors import PromptError, TokenizerError, ZooError
from zoo.loading import Loaded, load
from zoo.tokenizer import Tokenizer


def load_same_vocabulary(loaded: Loaded, source: Loaded | str | Path, setting: str) -> Loaded:
    """Load the causal decoder `source`. PromptError, with the name of the `setting`, unless it has the tokens of `loaded`.

    Logits may differ in width: a vocabulary may be padded.
    """
    try:
        other = source if isinstance(source, Loaded) else load(source, registry=loaded.registry)
    except ZooError as error:
        raise PromptError(f"`{setting}`: {error}") from error
    name, model = f"`{setting}` {other.folder}", other.model
    if not model.decodes or model.translates or other.architecture.causality != "causal":
        raise PromptError(f"{name}: {other.architecture.name} is no causal decoder")
    if (other.tokenizer is None) != (loaded.tokenizer is None):
        raise PromptError(f"{name}: one of the two models has a tokenizer, the other none")
    if other.tokenizer is None or loaded.tokenizer is None:
        ours, theirs = loaded.recipe.embedding.vocab, other.recipe.embedding.vocab
        if ours != theirs:
            raise PromptError(f"{name}: its vocabulary has {theirs} tokens, that of {loaded.folder} {ours}")
        return other
    for id in range(max(loaded.tokenizer.vocab_size, other.tokenizer.vocab_size)):
        their, our = token_of(other.tokenizer, id), token_of(loaded.tokenizer, id)
        if their != our:
            raise PromptError(
                f"{name}: it has another tokenizer: token {id} is {their!r} there and {our!r} in {loaded.folder}"
            )
    return other


def token_of(tokenizer: Tokenizer, id: int) -> str | None:
    """The token of an id, None where there is none."""
    try:
        return tokenizer.token(id)
    except TokenizerError:
        return None
