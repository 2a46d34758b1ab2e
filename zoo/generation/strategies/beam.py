"""Beam search for translating or continuing a text; with one beam, greedy search or sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from zoo.errors import PromptError
from zoo.generation.loop.engine import Engine, by_index
from zoo.generation.loop.prefill import Report
from zoo.generation.loop.prompt_batches import BATCH, Prepared, each_prompt, in_batches, prepared
from zoo.generation.loop.step import Step
from zoo.generation.loop.text_stream import TextStream
from zoo.generation.settings import Settings, settings_for
from zoo.generation.settings.generation_config import generation_config_of
from zoo.generation.strategies.beam_search import Beams, Search, search_all
from zoo.generation.strategies.reader import reader_of
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
    return (step for _, step in _answers(loaded, [prompt], **settings))


def batch(
    loaded: Loaded, prompts: Sequence[str | Sequence[int]], *, batch_size: int = BATCH, **settings: Any
) -> Iterator[tuple[int, Step]]:
    """What `stream` gives for each of the prompts, `batch_size` of them in the same passes: its index and a step.

    PromptError, before anything runs, for a setting or a prompt that cannot be, with the prompt's index.
    """
    return _answers(loaded, prompts, batch_size, several=True, **settings)


def _answers(
    loaded: Loaded,
    prompts: Sequence[str | Sequence[int]],
    batch_size: int = BATCH,
    several: bool = False,
    *,
    beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: bool | Literal["never"] | None = None,
    beam_groups: int | None = None,
    diversity_penalty: float | None = None,
    return_sequences: int | None = None,
    report: Report | None = None,
    **given: Any,
) -> Iterator[tuple[int, Step]]:
    search = beams_of(
        generation_config_of(loaded),
        beams,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        groups=beam_groups,
        diversity=diversity_penalty,
        returned=return_sequences,
    )
    settings = settings_for(loaded, given)
    if settings.prefill_chunk is not None and loaded.model.translates:
        raise PromptError("`prefill_chunk`: an encoder-decoder reads its source in one piece")
    if search.count == 1:
        engine = Engine(loaded, rows=batch_size if several else 1)
        add = partial(engine.add_text, settings=settings, report=report)
        index_of = {handle: index for index, handle in enumerate(each_prompt(prompts, several, add))}
        return by_index(engine, index_of, several)
    if settings.temperature:
        raise PromptError(
            "`beams`: several are searched, not sampled; give a `temperature` of 0, or one beam"
        )
    for name in given:
        if name not in SEARCHED and getattr(settings, name) != getattr(NEUTRAL, name):
            raise PromptError(f"`{name}` cannot be given with several `beams`")
    ready = each_prompt(prompts, several, lambda prompt: prepared(loaded, prompt, settings))
    return _searched(loaded, ready, search, settings, batch_size, report)


# The settings of a search, by their names in `Beams`: what a caller calls them, and the keys of generation_config.json.
SETTINGS = {
    "length_penalty": ("length_penalty", "length_penalty"),
    "early_stopping": ("early_stopping", "early_stopping"),
    "groups": ("beam_groups", "num_beam_groups"),
    "diversity": ("diversity_penalty", "diversity_penalty"),
    "returned": ("return_sequences", "num_return_sequences"),
}


def beams_of(values: Mapping[str, Any], beams: int | None, **given: Any) -> Beams:
    """How hypotheses compete: as given, else as the generation config `values` say.

    PromptError for settings that do not go together; with one beam, for any that a search alone has a use for.
    """
    count = beams if beams is not None else values.get("num_beams") or 1
    if count == 1:
        for name, value in given.items():
            if value is not None and value != getattr(Beams(), name):
                raise PromptError(f"`{SETTINGS[name][0]}` needs several `beams`")
        return Beams()
    asked = {name: values.get(key) for name, (_, key) in SETTINGS.items()}
    if asked["returned"] is not None and isinstance(count, int):
        asked["returned"] = min(asked["returned"], count)  # those of fewer beams than the file has
    asked |= {name: value for name, value in given.items() if value is not None}
    if given.get("diversity") is None and (asked["groups"] or 1) == 1:
        asked["diversity"] = None
    return Beams(count, **{name: value for name, value in asked.items() if value is not None})


def _searched(
    loaded: Loaded,
    prompts: Sequence[Prepared],
    beams: Beams,
    settings: Settings,
    batch_size: int,
    report: Report | None,
) -> Iterator[tuple[int, Step]]:
    """Drafts while a search goes on, then its candidates, and the tokens of the best; each with the prompt's index."""
    for indices in in_batches(loaded, [len(prompt.ids) for prompt in prompts], batch_size):
        group = [prompts[index] for index in indices]
        most = max(prompt.limit for prompt in group)
        reader = reader_of(loaded, [prompt.ids for prompt in group], most, settings, report=report)
        searches = [Search(prompt.constraints, beams) for prompt in group]
        for place in search_all(reader, searches):
            search = searches[place]
            if search.over:
                steps = _found(loaded, search, settings)
            else:
                draft = loaded.tokenizer.decode(search.best.tokens) if loaded.tokenizer else ""
                steps = iter([Step(None, "", draft=draft)])
            yield from ((indices[place], step) for step in steps)


def _found(loaded: Loaded, search: Search, settings: Settings) -> Iterator[Step]:
    """The candidates of a search that is over, and the tokens of the best."""
    found = search.found()
    answers = [
        list(
            TextStream(loaded, search.constraints.last, settings.stop, settings.stop_tokens).steps(
                text.tokens
            )
        )
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
