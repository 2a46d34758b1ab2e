"""The settings of one text as one record: `generation_config.json`, then what the caller gives.

A checkpoint's `generation_config.json` has keys and meanings of transformers. It also bounds lengths, and bans and forces
tokens (`Constraints`); `warn_of_ignored` warns of the keys that are not followed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from zoo.architecture import Sampler, Setting, Strategy
from zoo.architecture.settings import CONSTRAINTS, SHARED, Settings
from zoo.blocks.model import Model
from zoo.cache import CachePolicy
from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.loading import Loaded
from zoo.recipe import EncoderDecoder, learned_context

MAX_TOKENS = 256


class Key(NamedTuple):
    """A key that can change the text: its neutral value, and the setting that implements it.

    `only_with` names a key without which it has no effect.
    """

    neutral: Any = None
    setting: str | None = None
    only_with: str | None = None


@cache
def known_keys() -> dict[str, Key | None]:
    """The keys of transformers' generation configs; None for one that changes no text."""
    keys: dict[str, Key | None] = {}
    for line in Path(__file__).with_name("generation_config_keys.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            key, *columns = line.split()
            rest = [None if column == "-" else column for column in columns[1:]]
            keys[key] = Key(json.loads(columns[0]), *rest) if columns else None
    return keys


def ignored_keys(values: Mapping[str, Any], settings: Collection[str], known_only: bool = False) -> list[str]:
    """The keys that ask for something which none of the `settings` follows.

    `known_only` leaves out unknown keys, such as those of a `config.json` that describe the model.
    """
    ignored, table = [], known_keys()
    for key, value in values.items():
        if value is None or value in ([], {}) or key.startswith("_"):
            continue
        if key not in table:
            ignored += [] if known_only else [key]
        elif (known := table[key]) and known.setting not in settings and value != known.neutral:
            only = known.only_with
            other = table[only] if only else None
            if not (only and other) or (values.get(only) or other.neutral) != other.neutral:
                ignored.append(key)
    return ignored


def warn_of_ignored(loaded: Loaded, strategy: Strategy) -> None:
    """Warn once a checkpoint, by name, of the keys that the strategy does not support."""
    if "max_tokens" not in strategy.setting_names:  # it writes no text of any length
        return
    config = not loaded.generation_config
    # A setting with a default of the strategy's own never takes the checkpoint's value.
    fixed = {setting.name for setting in strategy.own_settings if setting.default is not None}
    taken = set(strategy.setting_names) - fixed
    ignored = ignored_keys(generation_config_of(loaded), taken, known_only=config)
    if ignored:
        file = "config.json" if config else "generation_config.json"
        message = f"{loaded.folder}: {file}: ignored, {strategy.name} generation does not have it: {', '.join(ignored)}"
        warnings.warn(message, stacklevel=2)  # once, as Python shows one message: it has the folder


def generation_config_of(loaded: Loaded) -> Mapping[str, Any]:
    """The checkpoint's `generation_config.json`; older folders have its keys in `config.json`."""
    return loaded.generation_config or loaded.config


def check_key(key: str, setting: Setting, value: object) -> Any:
    """The value of a key, checked as its setting; PromptError names the key."""
    try:
        return setting.checked(value)
    except PromptError as error:
        message = str(error).replace(f"`{setting.name}`", key)
        raise PromptError(f"generation_config.json: {message}") from error


def token_limit(loaded: Loaded, prompt: int, max_tokens: int | None, min_tokens: int | None = None) -> int:
    """The maximum number of new tokens after a prompt of so many: those asked for, else the checkpoint's, else 256.

    Learned positions limit it. A checkpoint's `max_length` includes the prompt, except in translation, and allows a
    continued text at most 256 new tokens. PromptError for bounds that leave no room.
    """
    values, translation = generation_config_of(loaded), loaded.model.translates
    given = 1 if translation else prompt  # a target's first token is given
    limit = max_tokens
    if limit is None:
        total = whole(values, "max_length")
        room = total - given if total else MAX_TOKENS
        limit = whole(values, "max_new_tokens") or (room if translation else min(room, MAX_TOKENS))
        if limit < 1:
            raise PromptError(
                f"the prompt has {given} tokens and generation_config.json allows {total} in all (max_length): set "
                "`max_tokens`"
            )
    recipe = loaded.recipe
    context = learned_context(recipe.decoder if isinstance(recipe, EncoderDecoder) else recipe)
    if context is not None:
        limit = min(limit, context - given + 1)  # the last token chosen needs no position of its own
    if min_tokens is not None and min_tokens > limit:
        raise PromptError(f"`min_tokens` must be from 0 to {limit}, the most new tokens, got {min_tokens}")
    return limit


def stop_strings(loaded: Loaded) -> tuple[str, ...]:
    """The checkpoint's stop strings; PromptError if they are not texts."""
    value = generation_config_of(loaded).get("stop_strings") or ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise PromptError(f"generation_config.json: stop_strings must be a list of texts, got {value!r:.60}")
    return tuple(texts)


def whole(values: Mapping[str, Any], key: str) -> int:
    """The whole number of a key, 0 when it is absent or null; PromptError for anything else."""
    value = values.get(key)
    if value is not None and (type(value) is not int or value < 0):
        raise PromptError(f"generation_config.json: {key} must be a whole number, got {value!r}")
    return value or 0


@frozen()
class Constraints(Frozen):
    """How long one sequence is, how it ends, and which tokens are banned or forced in it.

    `prompt` are the tokens before the first new one. `min_tokens` and `max_tokens` count new tokens, `min_length` the
    prompt too. `first_token` is forced where the prompt is a start token alone; one of `last_tokens` is forced at
    `max_tokens`. `bad_words` are sequences of tokens that never come, `suppressed` tokens that never come, and
    `suppressed_first` tokens that never come first.
    """

    eos_ids: frozenset[int] = frozenset()
    prompt: tuple[int, ...] = ()
    max_tokens: int = 0
    min_tokens: int = 0
    min_length: int = 0
    first_token: int | None = None
    last_tokens: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()

    @property
    def banned(self) -> tuple[tuple[int, ...], ...]:
        """The sequences that never come: bad words, but for a single end token, and suppressed tokens."""
        words = (word for word in self.bad_words if len(word) > 1 or word[0] not in self.eos_ids)
        return (*words, *((token,) for token in self.suppressed))

    def forced(self, count: int) -> tuple[int, ...]:
        """The only tokens that may come after `count` new ones; empty where none is forced."""
        if self.first_token is not None and len(self.prompt) + count == 1:
            return (self.first_token,)
        return self.last_tokens if count == self.max_tokens - 1 else ()


def constraints_of(
    values: Mapping[str, Any],
    vocab: int,
    *,
    eos_ids: frozenset[int],
    prompt: Sequence[int],
    max_tokens: int,
    first_token: int | None = None,
) -> Constraints:
    """The constraints of a generation config. `first_token` replaces its `forced_bos_token_id`.

    PromptError names a key whose value is malformed.
    """
    banned = values.get("bad_words_ids") or []
    if not isinstance(banned, list) or not all(isinstance(ids, list) and ids for ids in banned):
        raise PromptError(
            f"generation_config.json: bad_words_ids must be a list of lists of ids, got {banned!r:.60}"
        )
    if first_token is None:
        first_token = next(iter(_ids(values, "forced_bos_token_id", vocab)), None)
    return Constraints(
        eos_ids=eos_ids,
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        min_tokens=whole(values, "min_new_tokens"),
        min_length=whole(values, "min_length"),
        first_token=first_token,
        last_tokens=_ids(values, "forced_eos_token_id", vocab),
        bad_words=tuple(_ids({"bad_words_ids": ids}, "bad_words_ids", vocab) for ids in banned),
        suppressed=_ids(values, "suppress_tokens", vocab),
        suppressed_first=_ids(values, "begin_suppress_tokens", vocab),
    )


def _ids(values: Mapping[str, Any], key: str, vocab: int) -> tuple[int, ...]:
    """The ids of a key that holds one, several or none."""
    value = values.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocab:
            raise PromptError(
                f"generation_config.json: {key} must name tokens of the vocabulary, got {token!r}"
            )
    return tuple(ids)


# The keys of generation_config.json that are settings; the drawn ones count when `do_sample` is set.
DRAWN = ("temperature", "top_k", "top_p", "min_p", "typical_p")
ALWAYS = (
    *("repetition_penalty", "no_repeat_ngram_size", "max_time"),
    *("exponential_decay_length_penalty", "guidance_scale"),
)
# Any of these without a temperature implies temperature 1.
DRAW_SETTINGS = (*DRAWN[1:], "top_n_sigma", "xtc_probability", "mirostat")
# Mirostat replaces these: it chooses how many tokens to draw from.
REPLACED = (*DRAWN[1:], "top_n_sigma", "xtc_probability", "min_tokens_to_keep")
MOST_BIAS = 1e6  # beyond it the other logits vanish in float32
ONE_OF = tuple(setting.name for setting in CONSTRAINTS)


def settings_for(loaded: Loaded, given: Mapping[str, Any]) -> Settings:
    """The settings of the checkpoint's `generation_config.json`, replaced by those given; greedy by default.

    None counts as not given. Each value is checked already, by `Strategy.arguments` or `checked_shared`. PromptError for
    settings that do not go together.
    """
    values = generation_config_of(loaded)
    names = (*DRAWN, *ALWAYS) if values.get("do_sample") else ALWAYS
    defaults: dict[str, Any] = {"temperature": 1.0} if values.get("do_sample") else {}
    for name in names:
        if values.get(name) is not None:
            defaults[name] = check_key(name, SHARED[name], values[name])
    asked = {name: value for name, value in given.items() if value is not None}
    if asked.get("mirostat"):
        defaults = {name: value for name, value in defaults.items() if name not in REPLACED}
        if rival := next((name for name in REPLACED if name in asked), None):
            raise PromptError(
                f"`mirostat` and `{rival}` cannot be given together: each chooses the tokens to sample from"
            )
    samplers = asked.get("samplers") or {}
    if not isinstance(samplers, Mapping) or not all(isinstance(v, Mapping) for v in samplers.values()):
        raise PromptError(f"`samplers` must be settings by a sampler's name, got {samplers!r:.60}")
    table = loaded.registry.table(Sampler)
    draws = any(asked.get(name) for name in DRAW_SETTINGS)
    draws = draws or any(not table.require(name).processor for name in samplers)
    if draws and "temperature" not in asked and not defaults.get("temperature"):
        defaults["temperature"] = 1.0
    if not asked.get("stop"):
        asked["stop"] = stop_strings(loaded)
    if asked.get("logit_bias"):
        asked["logit_bias"] = biases(asked["logit_bias"], loaded.recipe.embedding.vocab)
    checked = Settings(**defaults | asked)
    if checked.adapter is not None and checked.adapter not in loaded.adapters.names:
        known = ", ".join(loaded.adapters.names) or "none"
        raise PromptError(f"`adapter` {checked.adapter}: the model was loaded with {known}")
    return checked


def checked_shared(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, each checked by its declaration; PromptError, naming it, for an unknown one or a bad value."""
    asked = {name: value for name, value in given.items() if value is not None}
    if unknown := next((name for name in asked if name not in Settings.__dataclass_fields__), None):
        raise PromptError(f"`{unknown}`: there is no such setting")
    return {name: SHARED[name].checked(value) if name in SHARED else value for name, value in asked.items()}


def check_policy(model: Model, policy: CachePolicy) -> None:
    """PromptError, naming the setting, where the caches of a model cannot follow a policy."""
    if not policy.plain and (reason := model.refused(model.make_cache(policy), policy)):
        raise PromptError(reason)


def check_prefill(loaded: Loaded, settings: Settings) -> None:
    """PromptError where a model that reads its source in one pass is to read it in chunks."""
    if settings.prefill_chunk is not None and loaded.model.translates:
        raise PromptError("`prefill_chunk`: an encoder-decoder reads its source in one piece")


def biases(given: Mapping[Any, Any], vocab: int) -> dict[int, float]:
    """The bias of each token's logit; ids may be texts, as in JSON. PromptError for an invalid one."""
    by_token = {}
    for key, value in given.items():
        text = str(key)
        if not text.isdecimal() or int(text) >= vocab:
            raise PromptError(f"`logit_bias` must name tokens by ids below {vocab}, got {key!r:.60}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value <= MOST_BIAS:
            raise PromptError(
                f"`logit_bias` of token {text} must be a number of at most {MOST_BIAS:g}, got {value!r:.60}"
            )
        by_token[int(text)] = float(value)
    return by_token
