"""What a checkpoint's `generation_config.json` asks for: lengths, and a warning of what is not followed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from zoo.architecture import Strategy
from zoo.errors import PromptError
from zoo.loading import Loaded
from zoo.recipe import learned_context

MAX_TOKENS = 256

# Keys that change no text: who wrote the file, which tokens are special, how fast it goes, what is returned besides.
HARMLESS = frozenset(
    (
        *("transformers_version", "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"),
        *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size"),
        *("low_memory", "disable_compile", "compile_config", "continuous_batching_config"),
        *("return_dict_in_generate", "return_legacy_cache", "output_attentions", "output_hidden_states"),
        *("output_logits", "output_scores", "is_assistant", "num_assistant_tokens"),
        *("num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_early_exit"),
        *(
            "assistant_ensemble_weight",
            "assistant_lookbehind",
            "target_lookbehind",
            "prompt_lookup_num_tokens",
        ),
        *("max_matching_ngram_size", "speculation_type", "use_mtp", "trust_remote_code"),
    )
)

# Keys that would change the text, and the values with which they change nothing.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "bad_words_ids": (),
    "suppress_tokens": (),
    "begin_suppress_tokens": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "max_new_tokens": (),
    "max_length": (),
    "min_new_tokens": (0,),
    "min_length": (0,),
    "max_time": (),
    "stop_strings": (),
    "sequence_bias": (),
    "exponential_decay_length_penalty": (),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "penalty_alpha": (0.0,),
    "constraints": (),
    "force_words_ids": (),
    "guidance_scale": (1.0,),
    "remove_invalid_values": (False,),
    "renormalize_logits": (False,),
    "token_healing": (False,),
    "dola_layers": (),
    "watermarking_config": (),
    "do_sample": (False,),
}
# Keys that matter only where tokens are drawn, or beams searched.
SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "temperature": (1.0,),
    "top_k": (0,),
    "top_p": (1.0,),
    "min_p": (0.0,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "top_h": (),
}
BEAMS: Mapping[str, tuple[Any, ...]] = {"length_penalty": (1.0,), "early_stopping": (False,)}


# The setting of a strategy by which each key is followed.
FOLLOWED_BY = {
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "min_new_tokens": "min_tokens",
    "min_length": "min_tokens",
    "max_time": "max_time",
    "stop_strings": "stop",
    "do_sample": "temperature",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "bad_words_ids": "banned",
    "suppress_tokens": "banned",
    "begin_suppress_tokens": "banned",
    "forced_bos_token_id": "banned",
    "forced_eos_token_id": "banned",
    "num_beams": "beams",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "num_beam_groups": "beam_groups",
    "diversity_penalty": "diversity_penalty",
    "num_return_sequences": "return_sequences",
    "penalty_alpha": "penalty_alpha",
}


def followed_keys(strategy: Strategy) -> tuple[str, ...]:
    """The keys that a strategy follows: those whose setting it takes."""
    return tuple(key for key, setting in FOLLOWED_BY.items() if setting in strategy.setting_names)


def ignored_keys(values: Mapping[str, Any], followed: tuple[str, ...], known_only: bool = False) -> list[str]:
    """The keys that ask for something which is not among those `followed`.

    `known_only` leaves out unknown keys, such as those of a `config.json` that describe the model.
    """
    effects = dict(NEUTRAL)
    if values.get("do_sample"):
        effects |= SAMPLING
    if (values.get("num_beams") or 1) != 1:
        effects |= BEAMS
    silent = HARMLESS | SAMPLING.keys() | BEAMS.keys()
    found = []
    for key, value in values.items():
        if value is None or value in ([], {}) or key in followed or key.startswith("_"):
            continue
        if key in effects:
            neutral = effects[key]
        elif known_only or key in silent:
            continue
        else:
            neutral = ()
        if value not in neutral:
            found.append(key)
    return found


def warn_of_ignored(loaded: Loaded, strategy: Strategy) -> None:
    """Warn, once a checkpoint, of the keys that ask for what the strategy does not do, each by its name."""
    if "max_tokens" not in strategy.setting_names:  # it writes no text of any length
        return
    config = not loaded.generation_config
    found = ignored_keys(generation_config_of(loaded), followed_keys(strategy), known_only=config)
    if found:
        file = "config.json" if config else "generation_config.json"
        message = f"{loaded.folder}: {file}: ignored, {strategy.name} generation does not have it: {', '.join(found)}"
        warnings.warn(message, stacklevel=2)  # once, as Python shows one message: it has the folder


def generation_config_of(loaded: Loaded) -> Mapping[str, Any]:
    """The checkpoint's `generation_config.json`; older folders have its keys in `config.json`."""
    return loaded.generation_config or loaded.config


def token_limit(loaded: Loaded, prompt: int, max_tokens: int | None, min_tokens: int | None = None) -> int:
    """The most new tokens after a prompt of so many: those asked for, else what the checkpoint says, else 256.

    Learned positions bound it. A checkpoint's `max_length` counts the prompt too, but a translation's, and makes a
    continued text no longer than 256 new tokens. PromptError for bounds that leave no room.
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
    context = learned_context(loaded.recipe.decoder if translation else loaded.recipe)
    if context is not None:
        limit = min(limit, context - given + 1)  # the last token chosen needs no position of its own
    if min_tokens is not None and min_tokens > limit:
        raise PromptError(f"`min_tokens` must lie in 0..{limit}, the most tokens to come, got {min_tokens}")
    return limit


def stop_strings(loaded: Loaded) -> tuple[str, ...]:
    """The texts before which the checkpoint says that an answer ends; PromptError when they are no texts."""
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
