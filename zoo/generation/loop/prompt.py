"""Prompts: their ids, the ids that end a text, which prompts share a pass, and prefill.

Prefill reads a prompt in one pass, or in chunks, between which other texts get their tokens. Axes: B rows (in prefill 1, or
the sources read together), T length, S source length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import mlx.core as mx

from zoo import runtime, tokenizer
from zoo.cache import evaluate_caches
from zoo.errors import NothingToPredict, PromptError, warn
from zoo.generation.sampling.logits import token_logprobs
from zoo.generation.settings import (
    Constraints,
    Settings,
    check_policy,
    constraints_of,
    generation_config_of,
    token_limit,
)
from zoo.loading import Loaded
from zoo.recipe import EncoderDecoder, learned_context
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from zoo.tokenizer.backend import Languages

SEVERAL = "call it for each of them, [zoo.generate(loaded, prompt) for prompt in prompts]"
MESSAGES = (
    "the prompt is one text or one list of token ids, got chat messages: call zoo.chat(loaded, messages)"
)


def encode_prompt(
    loaded: Loaded,
    prompt: str | Sequence[int],
    special_tokens: bool = True,
    source_language: str | None = None,
    target_language: str | None = None,
) -> list[int]:
    """The ids of a prompt; PromptError when it is empty, too long, or holds an id outside the vocabulary.

    An empty text is the token that begins texts, for a decoder that has one, unless `special_tokens` is False. The
    languages, for a model that has some, are those to translate between; they mark a text, ids stay as they are.
    """
    languages = languages_of(loaded, source_language, target_language)
    limit = learned_context(loaded.recipe)
    if isinstance(prompt, str) and not prompt:
        bos_id = bos_id_of(loaded) if special_tokens and not loaded.model.encodes else None
        ids = [] if bos_id is None else [bos_id]
    elif isinstance(prompt, str):
        if loaded.tokenizer is None:
            raise PromptError(
                f"{loaded.folder}: has no tokenizer, so the prompt must be a list of token ids: [1, 2, 3]"
            )
        if limit is not None and loaded.tokenizer.beginning(prompt, limit) != prompt:
            raise PromptError(f"the prompt has more tokens than the {limit} learned positions")
        if languages is not None and special_tokens:
            first_token(loaded, target_language)
            ids = languages.encode(prompt, source_language, target_language)
        else:
            ids = loaded.tokenizer.encode(prompt, special_tokens)
    else:
        ids = token_ids(prompt)
    if not ids:
        raise PromptError("the prompt is empty")
    vocab = loaded.recipe.embedding.vocab
    strange = next((token for token in ids if not 0 <= token < vocab), None)
    if strange is not None:
        raise PromptError(f"token id {strange} lies outside the vocabulary of {vocab}")
    if limit is not None and len(ids) > limit:
        raise PromptError(f"the prompt has {len(ids)} tokens, more than the {limit} learned positions")
    return ids


def tokenize_prompt(
    loaded: Loaded, prompt: str | Sequence[int], settings: Settings
) -> tuple[list[int], Constraints]:
    """The ids of a prompt, of the source where the model translates, and the constraints of what follows it.

    PromptError for a prompt, text or token ids, that cannot be.
    """
    check_policy(loaded.model, settings.policy())
    languages = (settings.source_language, settings.target_language)
    ids = encode_prompt(loaded, prompt, settings.special_tokens, *languages)
    if (context := loaded.recipe.context) is not None and len(ids) > context:
        warn(f"the prompt has {len(ids):,} tokens, more than the {context:,} the model is made for")
    limit = token_limit(loaded, len(ids), settings.max_tokens, settings.min_tokens)
    named = settings.target_language is not None or isinstance(prompt, str)
    constraints = constraints_of(
        generation_config_of(loaded),
        loaded.recipe.head.vocab or loaded.recipe.embedding.vocab,
        eos_ids=eos_ids_of(loaded) | set(settings.stop_tokens),
        prompt=(start_token(loaded),) if loaded.model.translates else ids,
        max_tokens=limit,
        first_token=first_token(loaded, settings.target_language) if named else None,
    )
    return ids, constraints


def encode_messages(
    loaded: Loaded, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
) -> list[int]:
    """The ids of a conversation: its messages in the checkpoint's chat template, up to where the answer begins.

    The messages are those of `zoo.chat`. `variables` are what the template sees besides (`tools`,
    `enable_thinking`). PromptError when there are no messages or no template, or as for `encode_prompt`; TokenizerError
    for what the template refuses.
    """
    return encode_prompt(loaded, render_messages(loaded, messages, variables), special_tokens=False)


def render_messages(
    loaded: Loaded, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
) -> str:
    """The text that `encode_messages` encodes, which has its special tokens in it; the same errors."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise PromptError(
            f"`messages` must be a list of messages, each with a role and a content, got {messages!r:.60}"
        )
    messages = list(messages)
    if not messages:
        raise PromptError("`messages` is empty")
    if "messages" in (variables or {}):
        raise PromptError("`variables`: the template's `messages` are those of the conversation")
    tokenizer = loaded.tokenizer.for_tools((variables or {}).get("tools")) if loaded.tokenizer else None
    if tokenizer is None or not tokenizer.chat_template:
        name = loaded.folder.name or loaded.architecture.name
        if tokenizer is not None and tokenizer.chat_templates:
            templates = ", ".join(sorted(tokenizer.chat_templates))
            raise PromptError(
                f"{name} has no default chat template, but {templates}: set `tokenizer.chat_template` to one of "
                "`tokenizer.chat_templates`"
            )
        raise PromptError(f"{name} has no chat template: zoo.generate and zoo.stream continue a text")
    from zoo.tokenizer.chat import render_chat

    return render_chat(
        tokenizer.chat_template, messages, special_tokens=tokenizer.special_tokens, variables=variables
    )


def has_chat_template(loaded: Loaded) -> bool:
    """Whether the checkpoint says how the messages of a conversation are laid out."""
    return loaded.tokenizer is not None and bool(loaded.tokenizer.chat_template)


def token_ids(prompt: object) -> list[int]:
    """A prompt that is no text, as ids; PromptError for anything but whole numbers, saying what to call instead."""
    if isinstance(prompt, bytes | Mapping) or not isinstance(prompt, Iterable):
        if isinstance(prompt, Mapping) and prompt:
            raise PromptError(MESSAGES)
        raise PromptError(f"the prompt must be a text or a list of token ids, got {type(prompt).__name__}")
    ids = prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)
    ids = ids if isinstance(ids, list) else [ids]  # an array of no axes
    ids = [id.item() if getattr(id, "ndim", None) == 0 else id for id in ids]
    for index, id in enumerate(ids):
        if isinstance(id, Mapping):
            raise PromptError(MESSAGES)
        if isinstance(id, str | Iterable):
            what = "texts" if isinstance(id, str) else "lists"
            raise PromptError(
                f"the prompt is one text or one list of token ids, got several {what}: {SEVERAL}"
            )
        if isinstance(id, bool) or not isinstance(id, Integral):
            raise PromptError(f"the prompt must be a text or a list of token ids, got {id!r:.60} at {index}")
    return [int(id) for id in ids]


def languages_of(loaded: Loaded, source: str | None = None, target: str | None = None) -> Languages | None:
    """The languages that a model translates between; PromptError when one is asked of a model that has none."""
    languages = loaded.tokenizer.languages if loaded.tokenizer else None
    asked = "source" if source is not None else "target" if target is not None else None
    if languages is None and asked:
        raise PromptError(
            f"`{asked}_language`: {loaded.folder.name or loaded.architecture.name} has no languages to choose"
        )
    return languages


def first_token(loaded: Loaded, target: str | None = None) -> int | None:
    """The token that a translation into `target` begins with; None when there is none, or the settings force one.

    PromptError when the model needs a language that is not given, or does not know it.
    """
    languages = languages_of(loaded, target=target)
    if languages is None or (
        target is None and generation_config_of(loaded).get("forced_bos_token_id") is not None
    ):
        return None
    return languages.first(target)


def start_token(loaded: Loaded) -> int:
    """The token that every target of an encoder-decoder begins with; PromptError for one outside the vocabulary."""
    recipe, start = loaded.recipe, generation_config_of(loaded).get("decoder_start_token_id")
    assert isinstance(recipe, EncoderDecoder)
    if not isinstance(start, int):
        return recipe.start
    if not 0 <= start < recipe.decoder.embedding.vocab:
        raise PromptError(
            f"generation_config.json: decoder_start_token_id {start} lies outside the vocabulary"
        )
    return start


def split_special_ids(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int], list[int]]:
    """The ids of a text in three parts: special tokens before it, its own, special tokens after it."""
    ids, own = tokenizer.encode(text), tokenizer.encode(text, special_tokens=False)
    around = len(ids) - len(own)
    start = next((index for index in range(around + 1) if ids[index : index + len(own)] == own), 0)
    return ids[:start], ids[start : start + len(own)], ids[start + len(own) :]


def mask_id(loaded: Loaded) -> int:
    """The id that stands for a hidden token, by the config or the tokenizer; NothingToPredict when neither names one."""
    id = loaded.config.get("mask_token_id")
    if id is None and loaded.tokenizer is not None and "mask_token" in loaded.tokenizer.special_tokens:
        id = loaded.tokenizer.id(loaded.tokenizer.special_tokens["mask_token"])
    if not isinstance(id, int) or not 0 <= id < loaded.recipe.embedding.vocab:
        raise NothingToPredict(f"{loaded.folder}: neither config.json nor the tokenizer names a mask token")
    return id


def bos_id_of(loaded: Loaded) -> int | None:
    """The id that begins a text, by the tokenizer, config.json or generation_config.json; None when none names one."""
    named = [config.get("bos_token_id") for config in (loaded.config, loaded.generation_config)]
    if loaded.tokenizer is not None:
        named.insert(0, loaded.tokenizer.bos_id)
    return next((id for id in named if isinstance(id, int)), None)


def eos_ids_of(loaded: Loaded) -> frozenset[int]:
    """Every id that ends a text: those that config, generation_config and tokenizer name."""
    if loaded.tokenizer is not None:
        return loaded.tokenizer.eos_ids
    return tokenizer.eos_ids_of(loaded.config, loaded.generation_config)


Made = TypeVar("Made")
BATCH = 16  # prompts that share the passes, unless a number is asked for


def each_prompt(prompts: Iterable[Any], make: Callable[[Any], Made]) -> list[Made]:
    """What `make` gives for each prompt; of several prompts its PromptError names the one that cannot be."""
    results, prompts = [], list(prompts)
    for index, prompt in enumerate(prompts):
        try:
            results.append(make(prompt))
        except PromptError as error:
            name = f"prompts[{index}]: " if len(prompts) > 1 else ""
            raise type(error)(f"{name}{error}") from error
    return results


def in_batches(loaded: Loaded, lengths: Sequence[int], size: int = BATCH) -> list[list[int]]:
    """The indices of prompts of these lengths in batches of at most `size`, those of like length together.

    The longest come first, so that what does not fit in memory is known at once. A model that takes no padding on the
    side where its prompts have it reads one at a time.
    """
    side = "right" if loaded.model.encodes else "left"
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    if side in loaded.model.padding:
        return [order[start : start + size] for start in range(0, len(order), size)]
    return [[index] for index in order]


def padded(rows: Sequence[Sequence[int]], left: bool = False) -> tuple[mx.array, mx.array | None]:
    """Rows of ids (B, T), padded on the right, or on the left, and the mask (B, T), 1 for a token; None without padding."""
    longest = max(map(len, rows))
    tokens, mask = [], []
    for row in rows:
        padding, ones = [0] * (longest - len(row)), [1] * len(row)
        tokens.append([*padding, *row] if left else [*row, *padding])
        mask.append([*padding, *ones] if left else [*ones, *padding])
    return mx.array(tokens), None if min(map(len, rows)) == longest else mx.array(mask)


MOST_RESERVED = 4096  # tokens that a new cache has room for: few texts are as long as they may be
LONG = 64  # tokens whose pass is evaluated layer by layer, so that it can be interrupted and followed

Report = Callable[[int, int], None]
OnHidden = Callable[[int, mx.array], None]


@dataclass
class Prefill:
    """Reads a prompt into `cache`, in chunks of at most `chunk` tokens; the cache has the first `read` already.

    `prefix`: the prompt's tokens see each other both ways, so that it is read in one chunk. A chunk ends at each of the
    lengths `checkpoints`, and `at_checkpoint` is True after it. `report` is called with the tokens that were read and
    those in all. `prompt_logprobs`: keep the log-probabilities of the prompt's own tokens, and of so many alternatives;
    without it the head works on the last position only. `on_hidden` is called with the position of a chunk and its
    hidden states (1, T, D). Rotary angles are those of a text of the prompt and `following` tokens.
    """

    model: Any
    ids: Sequence[int]
    cache: list[Any]
    read: int = 0
    chunk: int | None = None
    prefix: bool = False
    checkpoints: Sequence[int] = ()
    report: Report | None = None
    prompt_logprobs: bool | int = False
    on_hidden: OnHidden | None = None
    following: int = 0

    def __post_init__(self) -> None:
        self.at_checkpoint = False
        self.logprobs: list[float] = []
        self.alternatives: list[dict[int, float]] = []

    def advance(self, chunk: int | None = None) -> mx.array | None:
        """Read one more chunk, of at most `chunk` tokens; after the last, the logits (1, V) of the first new token."""
        chunk = chunk or self.chunk or runtime.prefill_chunk()
        start = self.read
        whole = self.prefix or len(self.ids) - start <= (self.model.last_chunk or chunk)
        stop = len(self.ids) if whole else min(start + chunk, len(self.ids) - 1)
        if not self.prefix:
            stop = min([end for end in self.checkpoints if start < end < stop], default=stop)
        self._set_least_length(len(self.ids) + self.following)
        tokens = mx.array([self.ids[start:stop]])  # (1, T)
        arguments = {"prefix": len(self.ids)} if self.prefix else {}
        with runtime.eager():
            hidden = self.model.backbone(tokens, self.cache, **arguments)  # (1, T, D)
        if self.on_hidden is not None:
            self.on_hidden(start, hidden)
        if self.prompt_logprobs and (following := list(self.ids[start + 1 : stop + 1])):
            logits = self.model.head(hidden)[0, : len(following)]  # (T, V)
            count = 0 if isinstance(self.prompt_logprobs, bool) else self.prompt_logprobs
            scored = token_logprobs(logits, mx.array(following), count).rows()
            self.logprobs += [value for value, _ in scored]
            self.alternatives += [likeliest for _, likeliest in scored if likeliest is not None]
        last = stop == len(self.ids)
        if last:
            self._set_least_length(0)
        if not last or stop - start >= LONG:
            report, total = self.report, len(self.ids)
            evaluate_caches(self.cache, stop - start, report and (lambda done: report(start + done, total)))
            runtime.release_memory()
        self.read, self.at_checkpoint = stop, stop in self.checkpoints
        return self.model.head(hidden[:, -1:])[:, -1] if last else None

    def _set_least_length(self, length: int) -> None:
        """Have each chunk rotated by the angles of a text of `length` tokens."""
        if self.model.angles.switches:
            for cache in self.model.plain_caches(self.cache):
                cache.least_length = length

    def finish(self) -> mx.array:
        """Read all that is left: the logits (1, V) of the first new token."""
        logits = None
        while logits is None:
            logits = self.advance()
        return logits


@dataclass
class ShortPrefill:
    """Reads some short prompts in one pass, a row each, padded on the left to the longest.

    Of an encoder-decoder these are the sources of some texts; the targets begin with the token `start`.
    """

    model: Any
    prompts: Sequence[Sequence[int]]
    cache: list[Any]
    start: int | None = None
    read: int = 0

    def advance(self) -> mx.array:
        """The logits (B, V) of the first new token of each text."""
        self.read = sum(map(len, self.prompts))
        tokens, mask = padded(self.prompts, left=self.start is None)  # (B, T)
        if self.start is not None:
            with runtime.eager():
                memory = self.model.encode(tokens, mask)  # (B, S, D)
            starts = mx.array([[self.start]] * len(self.prompts))
            return self.model.decode(starts, memory, self.cache, mask)[:, -1]  # type: ignore[no-any-return]
        with runtime.eager():
            hidden = self.model.backbone(tokens, self.cache, mask=mask)  # (B, T, D)
        evaluate_caches(self.cache, self.read)
        return self.model.head(hidden[:, -1:])[:, -1]  # type: ignore[no-any-return]
