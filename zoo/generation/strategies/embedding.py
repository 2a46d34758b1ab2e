"""Texts to vectors: hidden states pooled over a text, as sentence-transformers does.

Axes: N texts, B batch, S length, D width.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence

import mlx.core as mx

from zoo import runtime
from zoo.blocks.model import Model
from zoo.checkpoint.checkpoint import POOLINGS, Pooling, open_checkpoint
from zoo.checkpoint.sentence_vectors import unit
from zoo.errors import PromptError
from zoo.generation import check_loaded
from zoo.generation.loop.prompt import encode_prompt, in_batches, padded, split_special_ids
from zoo.generation.sampling.logits import check_numbers
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer

BATCH = 32  # texts a pass


def embed(
    loaded: Loaded,
    texts: Sequence[str],
    *,
    pooling: str | None = None,
    normalise: bool | None = None,
    prompt_name: str | None = None,
    dimensions: int | None = None,
) -> mx.array:
    """The vectors (N, D) of N texts, float32.

    What the folder's sentence-transformers files say is followed: prompts, pooling, the modules after it, and the longest
    text, which is cut. `pooling` ("mean", "first", "last", "max", "weighted-mean", "mean-sqrt-length", or several joined
    by "+") and `normalise` replace theirs; without such files they are the mean, as it is. `prompt_name` names another of
    the folder's prompts than its default. `dimensions` keeps so many numbers of each vector, the first, as models that are
    trained for it allow (Kusupati et al., 2022, "Matryoshka"); None: as the folder says. PromptError for an empty text, an
    unknown prompt or too many dimensions, ConfigError for what is not implemented.

    >>> loaded = zoo.load("bert")
    >>> vectors = zoo.embed(loaded, ["Paris is in France.", "Paris is the capital of France.", "一"], normalise=True)
    >>> vectors.shape  # (N, D)
    (3, 128)
    >>> likeness = vectors @ vectors.T  # (N, N), the cosines
    >>> (likeness[0, 1] > likeness[0, 2]).item()
    True
    """
    check_loaded(loaded, "embed")
    runtime.check_not_forked()
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise PromptError(
            f"`texts` must be a list of texts, got {texts!r:.60}; one text: zoo.embed(loaded, [text])"
        )
    texts = list(texts)
    if not texts:
        raise PromptError("there is no text to embed")
    for text in texts:
        if not isinstance(text, str | Sequence) or isinstance(text, bytes):
            raise PromptError(f"`texts` must be a list of texts, got {text!r:.60} among them")
    if normalise is not None and not isinstance(normalise, bool):
        raise PromptError(f"`normalise` must be true or false, got {normalise!r:.60}")
    settings = open_checkpoint(loaded.folder, loaded.registry, loaded.architecture).pooling()
    mode = pooling or settings.mode
    for part in str(mode).split("+"):
        if part not in POOLINGS:
            raise PromptError(f"`pooling` {part!r} is not one of {', '.join(POOLINGS)}")
    prompt = prompt_of(settings, prompt_name)
    ids = [encode_text(loaded, text, settings, prompt) for text in texts]
    before = 0 if settings.include_prompt else prompt_length(loaded, settings, prompt)
    left_out = [before if isinstance(text, str) else 0 for text in texts]
    vectors: dict[int, mx.array] = {}
    for chosen in in_batches(loaded, list(map(len, ids)), BATCH):
        tokens, mask = padded_texts(loaded, [ids[text] for text in chosen])  # (B, S)
        with runtime.eager():
            states = hidden_states(loaded.model, loaded.architecture.causality, tokens, mask)  # (B, S, D)
        pooled = pool(states, mask, mode, mx.array([[left_out[text]] for text in chosen]))  # (B, D)
        for module in settings.modules:
            pooled = module(pooled)
        mx.eval(pooled)
        check_numbers(pooled.max().item(), "a text's vector")
        vectors |= zip(chosen, pooled, strict=True)
    stacked = mx.stack([vectors[text] for text in range(len(ids))])  # (N, D)
    if settings.normalise if normalise is None else normalise:
        stacked = unit(stacked)
    if dimensions is not None and not (type(dimensions) is int and 1 <= dimensions <= stacked.shape[1]):
        raise PromptError(f"`dimensions` must be from 1 to {stacked.shape[1]}, got {dimensions!r:.60}")
    width = settings.width if dimensions is None else dimensions
    if width is not None:
        stacked = stacked[:, :width]
        stacked = unit(stacked) if normalise else stacked
    return stacked


def prompt_of(settings: Pooling, name: str | None = None) -> str:
    """The prompt of a name, of the default one for None; "" for none. PromptError for an unknown name."""
    if name is not None and name not in settings.prompts:
        known = ", ".join(settings.prompts) or "it has none"
        raise PromptError(f"`prompt_name` {name!r} is not one of the folder's prompts: {known}")
    name = name or settings.prompt_name
    return "" if name is None else settings.prompts[name]


def prompt_length(loaded: Loaded, settings: Pooling, prompt: str) -> int:
    """The number of tokens that a prompt puts before a text, what the tokenizer puts before both included."""
    if not prompt or loaded.tokenizer is None:
        return 0
    before, own, _ = split_special_ids(loaded.tokenizer, prompt.lower() if settings.lower_case else prompt)
    return len(before) + len(own)


def encode_text(loaded: Loaded, text: str | Sequence[int], settings: Pooling, prompt: str = "") -> list[int]:
    """The ids of a text after a prompt, no more than the settings say; the tokens that the tokenizer puts around it stay.

    Ids are kept as they are. PromptError for an empty text.
    """
    if not text:
        raise PromptError("a text to embed is empty")
    limit = settings.length
    if isinstance(text, str):
        text = (prompt + text).lower() if settings.lower_case else prompt + text
    if limit is None or loaded.tokenizer is None or not isinstance(text, str):
        return encode_prompt(loaded, text)
    ids, cut = cut_text(loaded.tokenizer, text, limit)
    if cut:
        warnings.warn(
            f"texts longer than {limit} tokens are cut, as the folder's max_seq_length says", stacklevel=3
        )
    return encode_prompt(loaded, ids)


def cut_text(tokenizer: Tokenizer, text: str, limit: int) -> tuple[list[int], int]:
    """At most `limit` ids of a text, those that the tokenizer puts around it included, and how many were cut, or more."""
    before, own, after = split_special_ids(tokenizer, tokenizer.beginning(text, limit))
    kept = own[: max(limit - len(before) - len(after), 0)]
    return before + kept + after, len(own) - len(kept)


def padded_texts(loaded: Loaded, rows: Sequence[Sequence[int]]) -> tuple[mx.array, mx.array]:
    """Rows of ids (B, S), and their mask (B, S): 1 for a token, 0 for padding, on the side that the model takes it."""
    tokens, mask = padded(rows, left=not loaded.model.encodes)
    return tokens, mx.ones(tokens.shape, mx.int32) if mask is None else mask


def hidden_states(model: Model, causality: str, tokens: mx.array, mask: mx.array) -> mx.array:
    """The hidden states (B, S, D) of padded texts (B, S)."""
    if model.encodes:
        return model.encode(tokens, mask)  # type: ignore[no-any-return]
    prefix = {"prefix": mask.sum(axis=1)} if causality == "prefix" else {}
    return model.backbone(tokens, mask=mask, **prefix)  # type: ignore[no-any-return]


def pool(states: mx.array, mask: mx.array, mode: str, left_out: mx.array | int = 0) -> mx.array:
    """One vector a text, (B, S, D) -> (B, D) in float32; of several modes joined by "+", one after the other (B, n·D).

    `left_out`, (B, 1) or one number: so many first tokens of each text are not pooled, those of its prompt.
    """
    states = states.astype(mx.float32)
    places = mx.cumsum(mask, axis=1) * mask  # (B, S), from 1; 0 for padding
    mask = mx.where(places > left_out, mask, 0)
    return mx.concatenate([_pool(states, mask, places, part) for part in mode.split("+")], axis=-1)


def _pool(states: mx.array, mask: mx.array, places: mx.array, mode: str) -> mx.array:
    """The vectors (B, D) of one mode; `places` (B, S) count the tokens of each text from 1."""
    weight = mask[..., None].astype(mx.float32)  # (B, S, 1)
    if mode == "max":
        return mx.where(weight > 0, states, -mx.inf).max(axis=1)
    if mode in ("first", "last"):
        first = mx.argmax(mask, axis=1)
        index = first if mode == "first" else mask.shape[1] - 1 - mx.argmax(mask[:, ::-1], axis=1)  # (B,)
        return states[mx.arange(states.shape[0]), index]
    weights = weight * places[..., None] if mode == "weighted-mean" else weight
    total = mx.maximum(weights.sum(axis=1), 1e-9)
    return (states * weights).sum(axis=1) / (mx.sqrt(total) if mode == "mean-sqrt-length" else total)
