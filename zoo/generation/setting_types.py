"""The types of the settings of generation, for type checkers: a name that is misspelt in a call is found before it runs.

`zoo/architecture/settings.py` and the strategies declare the settings themselves; a test holds that all agree. Settings of a third
party's strategy are given as `**more`, a `dict[str, Any]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from zoo.generation.prefix_cache import PromptCache


class SharedSettings(TypedDict, total=False):
    """The settings that strategies share, but for `max_tokens`; None stands for one that is not given."""

    min_tokens: int | None
    max_time: float | None
    stop: str | Sequence[str] | None
    stop_tokens: int | Sequence[int] | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    min_tokens_to_keep: int | None
    typical_p: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    top_n_sigma: float | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    seed: int | None
    repetition_penalty: float | None
    repetition_context_size: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_breakers: str | Sequence[str] | None
    no_repeat_ngram_size: int | None
    exponential_decay_length_penalty: Sequence[float] | None
    logit_bias: Mapping[Any, Any] | str | None
    banned: str | Sequence[str] | None
    logits_processors: Callable[..., Any] | Sequence[Callable[..., Any]] | None
    guidance_scale: float | None
    negative_prompt: Any
    json_schema: Mapping[Any, Any] | str | bool | None
    regex: str | None
    grammar: str | None
    logprobs: int | None
    prompt_logprobs: int | None
    source_language: str | None
    target_language: str | None
    prefill_chunk: int | None
    special_tokens: bool | None
    adapter: str | None
    max_kv_size: int | None
    keep: int | None
    kv_bits: int | None
    key_bits: int | None
    value_bits: int | None
    kv_group_size: int | None
    kv_start: int | None
    prompt_lookup: int | None
    draft_model: Any
    draft_tokens: int | None
    own_draft: bool | None
    samplers: Mapping[str, Any] | None


class EngineSettings(SharedSettings, total=False):
    """The settings of `zoo.Engine.add`."""

    max_tokens: int | None


class StrategySettings(SharedSettings, total=False):
    """The settings that all strategies of the zoo take, together."""

    prompt_cache: PromptCache | None
    checkpoints: Iterable[int]
    beams: int | None
    length_penalty: float | None
    early_stopping: bool | str | None
    beam_groups: int | None
    diversity_penalty: float | None
    return_sequences: int | None
    best_of: int | None
    penalty_alpha: float | None
    steps: int | None
    block_length: int | None


class StreamSettings(StrategySettings, total=False):
    """The settings of `zoo.stream` and `zoo.batch`, beside their other arguments."""

    max_tokens: int | None


class GenerateSettings(StreamSettings, total=False):
    """The settings of `zoo.generate` and `zoo.chat`."""

    strategy: str | None
    report: Callable[[int, int], None] | None
