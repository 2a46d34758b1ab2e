"""Beam search for translating or continuing a text; with one beam, greedy search or sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.architecture.settings import BEAM_SEARCH
from zoo.errors import PromptError
from zoo.generation.loop.engine import Engine, run_prompts
from zoo.generation.loop.prefill import Report
from zoo.generation.loop.prompt import BATCH, each_prompt, in_batches, tokenize_prompt
from zoo.generation.loop.step import Step
from zoo.generation.loop.text_stream import TextStream
from zoo.generation.sampling import processors_of
from zoo.generation.settings import Settings, settings_for
from zoo.generation.settings.generation_config import Constraints, check_key, generation_config_of
from zoo.generation.settings.settings import check_prefill
from zoo.generation.strategies.batch_decoder import BatchDecoder
from zoo.generation.strategies.beam_search import BeamConfig, BeamSearch, run_searches
from zoo.loading import Loaded

NEUTRAL = Settings()
# What several beams have a use for: limits, penalties that look at a text alone, the prompt and the caches.
SEARCHED = frozenset(
    (
        *("max_tokens", "min_tokens", "stop", "stop_tokens", "repetition_penalty", "no_repeat_ngram_size"),
        *("source_language", "target_language", "special_tokens", "prefill_chunk"),
        *("max_kv_size", "keep", "kv_bits", "key_bits", "value_bits", "kv_group_size", "kv_start"),
    )
)


def stream(loaded: Loaded, prompt: str | Sequence[int], **settings: Any) -> Iterator[Step]:
    """Translate or continue `prompt`, text or token ids, yielding a `Step` a token.

    Several `beams` are searched to the end first: until then steps have no token but the best text so far as a
    `draft`. Then, where more than one of `return_sequences` is asked for, come steps without a token whose
    `candidate` is one of these texts, best first, with its `text`, `tokens`, `score` (Σ log p / length **
    `length_penalty`, in nats) and `finish_reason`; and at last the tokens of the best. `beam_groups` search one after
    the other, `diversity_penalty` keeping them apart. With one beam tokens come as they are chosen, greedily or by
    sampling.

    Settings left None are those of `generation_config.json`, whose constraints hold in any case, else transformers'
    defaults: one beam, a length penalty of 1, no early stopping. `max_tokens` (256) and `min_tokens` count new tokens,
    an end token included. PromptError, before anything runs, for a prompt or setting that cannot be.
    """
    return (step for _, step in batch(loaded, [prompt], **settings))


def batch(
    loaded: Loaded, prompts: Sequence[str | Sequence[int]], *, batch_size: int = BATCH, **given: Any
) -> Iterator[tuple[int, Step]]:
    """What `stream` gives for each of the prompts, `batch_size` of them in the same passes: its index and a step.

    PromptError, before anything runs, for a setting or a prompt that cannot be, with the prompt's index.
    """
    report: Report | None = given.pop("report", None)
    own = {name: given.pop(name, None) for name in (name for name, _ in SETTINGS.values())}
    beams = beam_config(generation_config_of(loaded), own)
    settings = settings_for(loaded, given)
    check_prefill(loaded, settings)
    if beams.count == 1:
        return run_prompts(Engine(loaded, rows=batch_size), prompts, settings, report)
    if settings.temperature:
        raise PromptError(
            "`beams`: several are searched, not sampled; give a `temperature` of 0, or one beam"
        )
    for name in given:
        if name not in SEARCHED and getattr(settings, name) != getattr(NEUTRAL, name):
            raise PromptError(f"`{name}` cannot be given with several `beams`")
    tokenized = each_prompt(prompts, lambda prompt: tokenize_prompt(loaded, prompt, settings))
    return _searched(loaded, tokenized, beams, settings, batch_size, report)


# The settings of a search, by their names in `BeamConfig`: what a caller calls them, and the keys of generation_config.json.
SETTINGS = {
    "count": ("beams", "num_beams"),
    "length_penalty": ("length_penalty", "length_penalty"),
    "early_stopping": ("early_stopping", "early_stopping"),
    "groups": ("beam_groups", "num_beam_groups"),
    "diversity": ("diversity_penalty", "diversity_penalty"),
    "returned": ("return_sequences", "num_return_sequences"),
}
DECLARED = {setting.name: setting for setting in BEAM_SEARCH}


def beam_config(values: Mapping[str, Any], given: Mapping[str, Any]) -> BeamConfig:
    """The configuration of a search: what is `given` by settings' names, else what the generation config `values` say.

    PromptError for settings that do not go together; with one beam, for any that a search alone has a use for.
    """
    given = {name: value for name, value in given.items() if value is not None}
    asked = {}
    for field, (name, key) in SETTINGS.items():
        if name in given:
            asked[field] = given[name]
        elif values.get(key) is not None:
            asked[field] = check_key(key, DECLARED[name], values[key])
    if asked.get("count", 1) == 1:
        for field, (name, _) in SETTINGS.items():
            if name in given and given[name] != getattr(BeamConfig(), field):
                raise PromptError(f"`{name}` needs several `beams`")
        return BeamConfig()
    if "return_sequences" not in given and "returned" in asked:
        asked["returned"] = min(asked["returned"], asked["count"])  # those of fewer beams than the file has
    if "diversity_penalty" not in given and asked.get("groups", 1) == 1:
        asked.pop("diversity", None)
    return BeamConfig(**asked)


def _searched(
    loaded: Loaded,
    prompts: Sequence[tuple[list[int], Constraints]],
    beams: BeamConfig,
    settings: Settings,
    batch_size: int,
    report: Report | None,
) -> Iterator[tuple[int, Step]]:
    """Drafts while a search goes on, then its candidates, and the tokens of the best; each with the prompt's index."""
    for indices in in_batches(loaded, [len(ids) for ids, _ in prompts], batch_size):
        group = [prompts[index] for index in indices]
        most = max(constraints.max_tokens for _, constraints in group)
        decoder = BatchDecoder(loaded, [ids for ids, _ in group], most, settings, report=report)
        searches = [
            BeamSearch(processors_of(loaded, settings, constraints), beams) for _, constraints in group
        ]
        for place in run_searches(decoder, searches):
            search = searches[place]
            if search.done:
                steps = _found(loaded, search, settings)
            else:
                draft = loaded.tokenizer.decode(search.best.tokens) if loaded.tokenizer else ""
                steps = iter([Step(None, "", draft=draft)])
            yield from ((indices[place], step) for step in steps)


def _found(loaded: Loaded, search: BeamSearch, settings: Settings) -> Iterator[Step]:
    """The candidates of a search that is over, and the tokens of the best."""
    found = search.found()
    limit = search.constraints.max_tokens
    answers = [
        list(TextStream(loaded, limit, settings.stop, settings.stop_tokens).steps(text.tokens))
        for text in found
    ]
    if search.beams.returned > 1:
        for text, steps in zip(found, answers, strict=True):
            yield Step(None, "", candidate=candidate(steps, text.score))
    yield from answers[0]


def candidate(steps: Sequence[Step], score: float) -> dict[str, Any]:
    """One of several texts, made of the steps of its tokens."""
    return {
        "text": "".join(step.text for step in steps),
        "score": score,
        "tokens": [step.token for step in steps],
        "finish_reason": steps[-1].finish_reason,
    }
