"""Beam search for translating or continuing a text; with one beam, greedy search or sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from zoo.errors import PromptError
from zoo.generation.beams import Beams, Search, search_all
from zoo.generation.prepared import BATCH, Prepared, in_batches, prepare_all, reader_of
from zoo.generation.prompt import sampling_of, settings_of
from zoo.generation.reader import Report
from zoo.generation.rows import Row, run_rows
from zoo.generation.sampling import sampler
from zoo.generation.step import Step
from zoo.generation.text import TextStream
from zoo.loading import Loaded


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
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    prefill_chunk: int | None = None,
    report: Report | None = None,
    **prompting: Any,
) -> Iterator[tuple[int, Step]]:
    sampling = sampling_of(loaded, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    search = beams_of(
        settings_of(loaded),
        beams,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        groups=beam_groups,
        diversity=diversity_penalty,
        returned=return_sequences,
    )
    if search.count > 1 and sampling.temperature:
        raise PromptError(
            "`beams`: several are searched, not sampled; give a `temperature` of 0, or one beam"
        )
    ready = prepare_all(loaded, prompts, several=several, prefill_chunk=prefill_chunk, **prompting)

    def row(prompt: Prepared) -> Row:
        choose = sampler(sampling, seed)
        return Row(TextStream(loaded, prompt.limit), choose, prompt.constraints, not sampling.temperature)

    def run() -> Iterator[tuple[int, Step]]:
        for indices in in_batches(loaded, [len(prompt.ids) for prompt in ready], batch_size):
            group = [ready[index] for index in indices]
            reader = reader_of(loaded, group, chunk=prefill_chunk, report=report)
            if search.count == 1:
                found = run_rows(reader, [row(prompt) for prompt in group])
            else:
                searches = [Search(prompt.constraints, search) for prompt in group]
                found = _searched(loaded, searches, search_all(reader, searches))
            for place, step in found:
                yield indices[place], step

    return run()


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
    loaded: Loaded, searches: Sequence[Search], running: Iterator[int]
) -> Iterator[tuple[int, Step]]:
    """Drafts while a search goes on, then its candidates, and the tokens of the best; each with the search's index."""
    for index in running:
        search = searches[index]
        if not search.over:
            draft = loaded.tokenizer.decode(search.best.tokens) if loaded.tokenizer else ""
            yield index, Step(None, "", draft=draft)
            continue
        found = search.found()
        answers = [list(TextStream(loaded, search.constraints.last).steps(text.tokens)) for text in found]
        if search.beams.returned > 1:
            for text, steps in zip(found, answers, strict=True):
                yield index, Step(None, "", candidate=candidate(steps, text.score))
        yield from ((index, step) for step in answers[0])


def candidate(steps: Sequence[Step], score: float) -> dict[str, Any]:
    """One of several texts, made of the steps of its tokens."""
    return {
        "text": "".join(step.text for step in steps),
        "score": score,
        "tokens": [step.token for step in steps],
        "finish_reason": steps[-1].finish_reason,
    }
