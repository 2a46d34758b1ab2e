"""What every strategy asks first: the ids of a prompt, the sampling settings, the ids that end a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo import tokenizer
from zoo.errors import PromptError
from zoo.loading import Loaded
from zoo.sampling import Sampling


def encode_prompt(loaded: Loaded, prompt: str | Sequence[int], special_tokens: bool = True) -> list[int]:
    """The ids of a prompt; PromptError when it is empty, too long, or holds an id outside the vocabulary."""
    if isinstance(prompt, str):
        if not prompt:
            raise PromptError("the prompt is empty")
        if loaded.tokenizer is None:
            raise PromptError(f"{loaded.folder}: has no tokenizer, so the prompt must be a list of token ids")
        ids = loaded.tokenizer.encode(prompt, special_tokens)
    else:
        ids = [int(token) for token in prompt]
    if not ids:
        raise PromptError("the prompt is empty")
    vocab = loaded.recipe.embedding.vocab
    strange = next((token for token in ids if not 0 <= token < vocab), None)
    if strange is not None:
        raise PromptError(f"token id {strange} lies outside the vocabulary of {vocab}")
    if learned_context(loaded.recipe) is not None and len(ids) > learned_context(loaded.recipe):
        limit = learned_context(loaded.recipe)
        raise PromptError(f"the prompt has {len(ids)} tokens, more than the {limit} learned positions")
    return ids


def learned_context(recipe: Any) -> int | None:
    """The number of positions that a model has a vector for; None when its positions have no end."""
    return getattr(recipe.embedding.positions, "context", None)


def sampling_of(loaded: Loaded, **given: float | int | None) -> Sampling:
    """The settings given, else the checkpoint's `generation_config.json`, else greedy."""
    defaults = loaded.generation_config
    settings: dict[str, Any] = {}
    if defaults.get("do_sample"):
        settings["temperature"] = 1.0
        settings |= {
            k: defaults[k] for k in ("temperature", "top_k", "top_p", "min_p") if defaults.get(k) is not None
        }
    settings |= {key: value for key, value in given.items() if value is not None}
    narrowing = [key for key in ("top_k", "top_p", "min_p") if given.get(key) is not None]
    if narrowing and given.get("temperature") is None and not settings.get("temperature"):
        settings["temperature"] = 1.0  # a filter is asked for, so a draw is wanted
    return Sampling(**settings)


def end_ids(loaded: Loaded) -> frozenset[int]:
    """Every id that ends a text: those that config, generation_config and tokenizer name."""
    if loaded.tokenizer is not None:
        return loaded.tokenizer.eos_ids
    return tokenizer.end_ids(loaded.config, loaded.generation_config)
