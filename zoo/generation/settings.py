"""The settings of one text as one record: `generation_config.json`, then what the caller gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.architecture.settings import BREAKERS, CACHE, CONSTRAINTS, SHARED
from zoo.cache import CachePolicy
from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.generation_config import check_key, generation_config_of, stop_strings
from zoo.loading import Loaded
from zoo.recipe.policy import GROUP

# The keys of generation_config.json that are settings; the drawn ones count when `do_sample` is set.
DRAWN = ("temperature", "top_k", "top_p", "min_p", "typical_p")
ALWAYS = ("repetition_penalty", "no_repeat_ngram_size", "max_time")
# Any of these without a temperature implies temperature 1.
DRAW_SETTINGS = (*DRAWN[1:], "top_n_sigma", "xtc_probability", "mirostat", "samplers")
# Mirostat replaces these: it chooses how many tokens to draw from.
REPLACED = ("top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability")
POLICY = tuple(setting.name for setting in CACHE)
MOST_BIAS = 1e6  # beyond it the other logits vanish in float32
ONE_OF = tuple(setting.name for setting in CONSTRAINTS)


@frozen(kw_only=True)
class Settings(Frozen):
    """How one text is generated. The names, bounds and meanings are those of `zoo.architecture.settings`.

    None stands for what the checkpoint says (`max_tokens`), or for off.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    max_time: float | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    stop_regex: str | None = None

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    top_n_sigma: float = 0.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    samplers: Mapping[str, Mapping[str, Any]] | None = None
    seed: int | None = None

    repetition_penalty: float = 1.0
    repetition_context_size: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_breakers: tuple[str, ...] = BREAKERS
    no_repeat_ngram_size: int = 0
    logit_bias: Mapping[int, float] | None = None
    banned: tuple[str, ...] = ()

    json_schema: Mapping[str, Any] | None = None
    regex: str | None = None
    grammar: str | None = None

    logprobs: bool | int = False
    prompt_logprobs: bool | int = False

    source_language: str | None = None
    target_language: str | None = None
    special_tokens: bool = True
    prefill_chunk: int | None = None

    max_kv_size: int | None = None
    keep: int = 0
    kv_bits: int | None = None
    key_bits: int | None = None
    value_bits: int | None = None
    kv_group_size: int = GROUP
    kv_start: int = 0

    prompt_lookup: int = 0
    draft_model: Any = None
    draft_tokens: int | None = None
    own_draft: bool = False

    def __post_init__(self) -> None:
        self.policy()
        asked = [name for name in ONE_OF if getattr(self, name) is not None]
        if len(asked) > 1:
            raise PromptError(f"`{asked[0]}` and `{asked[1]}` cannot be given together")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, and none drawn."""
        return self.temperature == 0

    @property
    def drafts(self) -> bool:
        """Whether anything is asked for of drafts."""
        return bool(self.prompt_lookup or self.draft_model is not None or self.own_draft or self.draft_tokens)

    def policy(self, reserve: int = 0) -> CachePolicy:
        """How caches are made, with room for `reserve` tokens."""
        return CachePolicy.of(reserve=reserve, **{name: getattr(self, name) for name in POLICY})


def settings_for(loaded: Loaded, given: Mapping[str, Any]) -> Settings:
    """What the checkpoint's `generation_config.json` says, and in its place what is given; greedy without either.

    None counts as not given. Each value is checked already, by `Strategy.arguments` or `checked_shared`. PromptError for
    settings that do not go together.
    """
    values = generation_config_of(loaded)
    names = (*DRAWN, *ALWAYS) if values.get("do_sample") else ALWAYS
    found: dict[str, Any] = {"temperature": 1.0} if values.get("do_sample") else {}
    for name in names:
        if values.get(name) is not None:
            found[name] = check_key(name, SHARED[name], values[name])
    asked = {name: value for name, value in given.items() if value is not None}
    if asked.get("mirostat"):
        found = {name: value for name, value in found.items() if name not in REPLACED}
        if rival := next((name for name in REPLACED if name in asked), None):
            raise PromptError(
                f"`mirostat` and `{rival}` cannot be given together: each says what to draw from"
            )
    draws = any(asked.get(name) for name in DRAW_SETTINGS)
    if draws and "temperature" not in asked and not found.get("temperature"):
        found["temperature"] = 1.0
    if not asked.get("stop"):
        asked["stop"] = stop_strings(loaded)
    if asked.get("logit_bias"):
        asked["logit_bias"] = biases(asked["logit_bias"], loaded.recipe.embedding.vocab)
    return Settings(**found | asked)


def checked_shared(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, each checked by its declaration; PromptError, naming it, for an unknown one or a bad value."""
    asked = {name: value for name, value in given.items() if value is not None}
    if unknown := next((name for name in asked if name not in Settings.__dataclass_fields__), None):
        raise PromptError(f"`{unknown}`: there is no such setting")
    return {name: SHARED[name].checked(value) if name in SHARED else value for name, value in asked.items()}


def check_policy(model: Any, policy: CachePolicy) -> None:
    """PromptError, naming the setting, where the caches of a model cannot follow a policy."""
    if not policy.plain and (reason := model.refused(model.make_cache(policy), policy)):
        raise PromptError(reason)


def check_prefill(loaded: Loaded, settings: Settings) -> None:
    """PromptError where a model that reads its source in one pass is to read it in chunks."""
    if settings.prefill_chunk is not None and loaded.model.translates:
        raise PromptError("`prefill_chunk`: an encoder-decoder reads its source in one piece")


def biases(given: Mapping[Any, Any], vocab: int) -> dict[int, float]:
    """What is added to the logits of which tokens; ids may be texts, as in JSON. PromptError for what cannot be."""
    found = {}
    for key, value in given.items():
        text = str(key)
        if not text.isdecimal() or int(text) >= vocab:
            raise PromptError(f"`logit_bias` must name tokens by ids below {vocab}, got {key!r:.60}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value <= MOST_BIAS:
            raise PromptError(
                f"`logit_bias` of token {text} must be a number of at most {MOST_BIAS:g}, got {value!r:.60}"
            )
        found[int(text)] = float(value)
    return found
