"""Texts to vectors: hidden states pooled over a text, as sentence-transformers does.

Axes: N texts, B batch, S length, D width.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.blocks.model import protocol_of
from zoo.errors import ConfigError, PromptError
from zoo.files import read_json, read_object
from zoo.generation import check_loaded
from zoo.generation.prompt import encode_prompt, pieces
from zoo.generation.sampling import check_numbers
from zoo.loading import Loaded

POOLINGS = ("mean", "first", "last")
BATCH = 32  # texts a pass

# What sentence-transformers calls them, in its folders' old and new spelling.
_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
_NAMES = {"mean": "mean", "cls": "first", "lasttoken": "last"}


@dataclass(frozen=True)
class Pooling:
    """How a text's hidden states become one vector: their mean, or the first or last token's.

    `normalise` to length 1. Texts are cut to `length` tokens (None: never).
    """

    mode: str = "mean"
    normalise: bool = False
    length: int | None = None


def embed(
    loaded: Loaded, texts: Sequence[str], *, pooling: str | None = None, normalise: bool | None = None
) -> mx.array:
    """The vectors (N, D) of N texts, float32.

    `pooling` ("mean", "first", "last") and `normalise` default to what the folder's sentence-transformers files
    say (`modules.json`, `1_Pooling/config.json`), else to the mean, as it is. A text longer than their
    `max_seq_length` is cut. PromptError for an empty text, ConfigError for a module or mode that is not implemented.
    """
    check_loaded(loaded, "embed")
    runtime.check_process()
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise PromptError(
            f"`texts` must be a list of texts, got {texts!r:.60}; one text: zoo.embed(loaded, [text])"
        )
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str | Sequence) or isinstance(text, bytes):
            raise PromptError(f"`texts` must be a list of texts, got {text!r:.60} among them")
    if normalise is not None and not isinstance(normalise, bool):
        raise PromptError(f"`normalise` must be true or false, got {normalise!r:.60}")
    settings = pooling_of(loaded.folder)
    mode = pooling or settings.mode
    if mode not in POOLINGS:
        raise PromptError(f"`pooling` {mode!r} is not one of {', '.join(POOLINGS)}")
    ids = [_encode(loaded, text, settings.length) for text in texts]
    # Texts of like length share a batch, so that little of it is padding.
    order = sorted(range(len(ids)), key=lambda text: len(ids[text]))
    vectors: dict[int, mx.array] = {}
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        pooled = _pool(*_states(loaded, [ids[text] for text in chosen]), mode)  # (B, D)
        mx.eval(pooled)
        check_numbers(pooled.max().item(), "a text's vector")
        vectors |= zip(chosen, pooled, strict=True)
    if not vectors:
        raise PromptError("there is no text to embed")
    found = mx.stack([vectors[text] for text in range(len(ids))])  # (N, D)
    if settings.normalise if normalise is None else normalise:
        found = found / mx.maximum(mx.linalg.norm(found, axis=-1, keepdims=True), 1e-12)
    return found


def _encode(loaded: Loaded, text: str, limit: int | None) -> list[int]:
    """The ids of a text, at most `limit` of them; the tokens that the tokenizer puts around a text stay.

    Ids are kept as they are.
    """
    if limit is None or loaded.tokenizer is None or not isinstance(text, str) or not text:
        return encode_prompt(loaded, text)
    before, own, after = pieces(loaded.tokenizer, text)
    room = max(limit - len(before) - len(after), 0)
    if len(own) > room:
        warnings.warn(
            f"texts longer than {limit} tokens are cut, as the folder's max_seq_length says", stacklevel=3
        )
    return encode_prompt(loaded, before + own[:room] + after)


def _states(loaded: Loaded, rows: list[list[int]]) -> tuple[mx.array, mx.array]:
    """Hidden states (B, S, D) of rows of ids, and their mask (B, S): 1 for a token, 0 for padding."""
    width = max(map(len, rows))
    model: Any = loaded.model
    if protocol_of(model).encodes:
        tokens = mx.array([row + [0] * (width - len(row)) for row in rows])
        mask = mx.array([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        return model.encode(tokens, mask), mask
    tokens = mx.array([[0] * (width - len(row)) + row for row in rows])
    mask = mx.array([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    if loaded.architecture.causality == "prefix":
        return model.backbone(tokens, mask=mask, prefix=mask.sum(axis=1)), mask
    return model.backbone(tokens, mask=mask), mask


def _pool(states: mx.array, mask: mx.array, mode: str) -> mx.array:
    """One vector a text, (B, S, D) -> (B, D), in float32."""
    states, width = states.astype(mx.float32), mask.shape[1]
    if mode == "mean":
        kept = mask[..., None].astype(mx.float32)  # (B, S, 1)
        return (states * kept).sum(axis=1) / kept.sum(axis=1)
    first = mx.argmax(mask, axis=1)
    index = first if mode == "first" else width - 1 - mx.argmax(mask[:, ::-1], axis=1)  # (B,)
    return states[mx.arange(states.shape[0]), index]


def pooling_of(folder: Path) -> Pooling:
    """What a folder's sentence-transformers files or a GGUF file say; the mean where nothing is said.

    ConfigError for a module or a mode that is not implemented.
    """
    if folder.is_file():
        from zoo.checkpoint.gguf import file as gguf

        return Pooling(gguf.pooling_of(gguf.read_headers(folder)) or "mean")
    modules = list(_modules(folder))
    if not modules:
        return Pooling()
    mode, normalise = "mean", False
    for kind, path in modules:
        if kind == "Pooling":
            mode = _mode(folder, f"{path}/config.json" if path else "config.json")
        elif kind == "Normalize":
            normalise = True
        elif kind != "Transformer":
            raise ConfigError(f"{folder / 'modules.json'}: the module {kind} is not implemented")
    name = "sentence_bert_config.json"
    length = read_object(folder, name, ConfigError).get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise ConfigError(f"{folder / name}: max_seq_length {length!r} is no number of tokens")
    return Pooling(mode, normalise, length)


def _modules(folder: Path) -> Iterator[tuple[str, str]]:
    """The class name and folder of each module that a `modules.json` lists; nothing when there is none."""
    path = folder / "modules.json"
    modules = read_json(folder, path.name, ConfigError)
    if not isinstance(modules, list | None):
        raise ConfigError(f"{path}: must be a list of modules with a type and a path")
    for module in modules or ():
        try:
            kind, place = str(module["type"]).rpartition(".")[2], str(module["path"])
        except (TypeError, KeyError) as error:
            raise ConfigError(f"{path}: must be a list of modules with a type and a path") from error
        if place and (PurePosixPath(place).name != place or place == ".."):
            raise ConfigError(f"{path}: path {place!r} is not a folder beside it")
        yield kind, place


def _mode(folder: Path, name: str) -> str:
    path = folder / name
    values = read_object(folder, name, ConfigError, required=True)
    given = values.get("pooling_mode")
    if given is not None:
        names = list(map(str, given)) if isinstance(given, list) else [str(given)]
        modes = [_NAMES.get(name, name) for name in names]
    else:
        keys = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
        modes = [_MODES.get(key, key) for key in keys]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ConfigError(
            f"{path}: pooling by {' and '.join(map(str, modes)) or 'nothing'} is not implemented"
        )
    return modes[0]
