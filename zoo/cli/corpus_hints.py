"""Hints about small models: which corpus trained one, and which words of a prompt that corpus does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.architecture import Corpus
from zoo.cli.generation import model_name
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.loading import Loaded

GENERAL = "zoo chat HuggingFaceTB/SmolLM2-135M-Instruct"
SHOWN = 4  # words


def model_hint(loaded: Loaded) -> str | None:
    """A line with a model's size and training corpus. None when no record names the corpus."""
    corpus = _corpus(loaded)
    if corpus is None:
        return None
    count = loaded.recipe.parameters(loaded.recipe.dim) / 1e6
    return (
        f"It has {count:.3g} million parameters and knows only {corpus.summary or corpus.name}. "
        f"A general model: {GENERAL}"
    )


def prompt_hint(loaded: Loaded, prompt: str) -> str | None:
    """A line with the words of a prompt that the model's corpus does not have. None when it has all of them."""
    from zoo.training.corpora import corpus as opened
    from zoo.training.corpora import unseen_words

    corpus = _corpus(loaded)
    if corpus is None or loaded.tokenizer is None:
        return None
    for token in loaded.tokenizer.special_tokens.values():
        prompt = prompt.replace(token, " ")
    try:
        texts = opened(corpus.name, loaded.architecture.task, loaded.registry)
        words = unseen_words(prompt, texts)
    except ZooError:  # the plugin's corpus is broken: the answer stands
        return None
    if not words:
        return None
    named = ", ".join(f'"{word}"' for word in words[:SHOWN]) + (", …" if len(words) > SHOWN else "")
    return (
        f"zoo: {model_name(loaded)} was trained only on {corpus.summary or corpus.name}, where {named} "
        f"{'does' if len(words) == 1 else 'do'} not occur. A general model: {GENERAL}"
    )


def _corpus(loaded: Loaded) -> Corpus | None:
    """The corpus named by the record beside a model, if that corpus is registered."""
    from zoo.training.corpora import trained_on

    try:
        found = trained_on(loaded.folder, loaded.registry)
    except ZooError:
        return None
    return found if isinstance(found, Corpus) else None
