"""Shared by `zoo run`, `zoo chat` and `zoo trace`: a prompt's ids, a model's name, the notice of a truncated answer, and
hints about small models: which corpus trained one, and which words of a prompt that corpus does not have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from zoo.architecture import Corpus
from zoo.cli.program import GENERAL
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.loading import Loaded

INCOMPLETE = {
    "json_schema": "the JSON is incomplete",
    "regex": "the expression matches only with more",
    "grammar": "the grammar asks for more",
}
SHOWN = 4  # words


def typed_prompt(loaded: Loaded, text: str) -> str | list[int]:
    """The prompt of a typed text: for a model without a tokenizer, the list of token ids "[1, 2, 3]"."""
    ids = parse_token_ids(text) if loaded.tokenizer is None else None
    return text if ids is None else ids


def parse_token_ids(text: str) -> list[int] | None:
    """The token ids in a text such as "[1, 2, 3]"; None for any other text."""
    try:
        values = json.loads(text)
    except ValueError:
        return None
    return values if isinstance(values, list) and all(type(value) is int for value in values) else None


def model_name(loaded: Loaded) -> str:
    """The name of a model: "llama:pocket" for an embedded checkpoint, otherwise its own, or its architecture's."""
    architecture = loaded.architecture
    presets = (p.name for p in architecture.presets if p.embedded and p.folder == loaded.folder)
    preset = next(presets, None)
    return f"{architecture.name}:{preset}" if preset else loaded.name or architecture.name


def truncation_notice(settings: Iterable[str], change: str) -> str:
    """A line about an answer with these settings that reached its maximum of tokens; `change` says how to allow more."""
    name = output_constraint(settings)
    return f"(cut: the answer may have no more tokens{f', {INCOMPLETE[name]}' if name else ''}; {change})"


def output_constraint(settings: Iterable[str]) -> str | None:
    """The name of the setting that constrains the whole answer, if one of these settings does."""
    return next((name for name in settings if name in INCOMPLETE), None)


def model_hint(loaded: Loaded) -> str | None:
    """A line with a model's size and training corpus. None when no record names the corpus."""
    corpus = _corpus(loaded)
    if corpus is None:
        return None
    count = loaded.recipe.parameters(loaded.recipe.dim) / 1e6
    return (
        f"It has {count:.3g} million parameters and knows only {corpus.summary or corpus.name}. "
        f"For other questions: {GENERAL}"
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
        f"{'does' if len(words) == 1 else 'do'} not occur. For other questions: {GENERAL}"
    )


def _corpus(loaded: Loaded) -> Corpus | None:
    """The corpus named by the record beside a model, if that corpus is registered."""
    from zoo.training.corpora import trained_on

    try:
        corpus = trained_on(loaded.folder, loaded.registry)
    except ZooError:
        return None
    return corpus if isinstance(corpus, Corpus) else None
