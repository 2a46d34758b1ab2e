"""Answers a file of prompts, one a line, in their order. An interrupted run can be continued.

Several ranks, each with the whole model, can divide the lines. Rank 0 writes all answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from zoo import runtime
from zoo.errors import PromptError, SourceError, ZooError
from zoo.files.reading import name_of, parse_json, read_user_text
from zoo.files.writing import check_output, is_stream, locked
from zoo.frozen import Frozen, frozen
from zoo.generation import batch_stream, collect, resolve_strategy
from zoo.generation.chat.chat_prompt import ChatPrompt, chat_prompt, prompt_of
from zoo.generation.loop.engine import MOST_ROWS, Engine
from zoo.generation.loop.step import Step
from zoo.generation.prefix_cache.disk import fingerprint
from zoo.generation.settings import Settings, checked_shared, settings_for
from zoo.loading import Loaded
from zoo.runtime import ranks

if TYPE_CHECKING:
    from zoo.generation.prefix_cache import PromptCache

LINE_KEYS = ("prompt", "messages", "id")  # the keys of a line that are no settings
MADE_BY = "made_by"  # the first key of an answer: the run that wrote it
# Seconds and steps from one exchange of finished answers to the next, at least: an exchange waits for the slowest rank.
EXCHANGE, EXCHANGE_STEPS = 2.0, 20


@frozen()
class Line(Frozen):
    """One prompt of a file: its line number, its JSON values, its prompt and its own settings; `error` when it is invalid."""

    index: int
    number: int
    values: Mapping[str, Any]
    prompt: ChatPrompt | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


def read_prompts(
    loaded: Loaded,
    source: Path | TextIO,
    settings: Mapping[str, Any],
    *,
    raw: bool = False,
    keep_going: bool = False,
) -> list[Line]:
    """Read the prompts of a file or of `sys.stdin`.

    Each line of a file .txt is a prompt. In any other file a line is JSON: a text, a list of token ids, or an object with
    a `prompt` or `messages`, perhaps an `id`, and settings. Empty lines are skipped. Texts are questions in the chat
    template, where there is one and `raw` does not leave it out. PromptError, naming the line, for one that is invalid;
    with `keep_going` the line gets the `error` instead. PromptError for a pipe on several ranks: each rank reads
    the file, and a pipe can be read once.
    """
    lines: list[Line] = []
    name = name_of(source)
    if ranks.size() > 1 and (not isinstance(source, Path) or is_stream(source)):
        raise PromptError(f"{name}: a pipe can be read once; {ranks.size()} ranks need a file")
    plain = name.endswith(".txt")
    for number, text in enumerate(read_user_text(source, PromptError).removeprefix("\ufeff").split("\n"), 1):
        if not text.strip():
            continue
        values: dict[str, Any] = {}
        try:
            values = {"prompt": text.removesuffix("\r")} if plain else _parse_line(text)
            lines.append(_line(loaded, len(lines), number, values, settings, raw))
        except ZooError as error:
            if not keep_going:
                raise PromptError(f"{name}: line {number}: {_quoted(error)}") from None
            lines.append(Line(len(lines), number, _repeated(values), error=_quoted(error)))
    if not lines:
        raise PromptError(f"{name}: has no prompts")
    return lines


Valid = tuple[Line, ChatPrompt]  # a line that is no error
Answer = tuple[int, dict[str, Any]]  # the index of a line, and its answer as JSON values


def _parse_line(text: str) -> dict[str, Any]:
    """The JSON object of a line; PromptError when it is malformed."""
    try:
        values = parse_json(text)
        json.dumps(values, allow_nan=False)
    except ValueError as error:
        raise PromptError(f"is not valid JSON ({error})") from None
    values = {"prompt": values} if isinstance(values, str | list) else values
    if not isinstance(values, dict) or ("prompt" in values) == ("messages" in values):
        raise PromptError(
            'must be a text, a list of token ids, or an object with either "prompt" or "messages"'
        )
    return values


def _line(
    loaded: Loaded,
    index: int,
    number: int,
    values: Mapping[str, Any],
    settings: Mapping[str, Any],
    raw: bool,
) -> Line:
    own = {name: value for name, value in values.items() if name not in LINE_KEYS}
    if "messages" in values:
        prompt = chat_prompt(loaded, values["messages"])
    else:
        prompt = prompt_of(loaded, values["prompt"], {**settings, **own}, raw=raw)
    return Line(index, number, values, prompt, own)


def _quoted(error: ZooError) -> str:
    """An error about a line: its settings are keys of the file and no options of a command."""
    return str(error).replace("`", '"')


def answer_prompts(
    loaded: Loaded,
    lines: Sequence[Line],
    output: Path | TextIO,
    *,
    raw: bool = False,
    keep_going: bool = False,
    divided: bool = False,
    report: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Iterator[Mapping[str, Any]]:
    """Answer the lines, write each answer as a line of JSON to `output`, in the lines' order, and yield the answers.

    `raw` is that of `read_prompts`. Each answer names the zoo's version, the model and the settings. A file with answers of
    the same run is continued, and a truncated answer is replaced. With `divided` each rank answers its share of the lines;
    all ranks yield all answers, and rank 0 alone writes them. PromptError, before anything runs, for a file with anything else or with answers of
    another run, for a file that another process writes, and for an invalid setting; one of a line becomes that line's
    answer where `keep_going`. `report` is called with the numbers of lines that are answered and of all.
    """
    shared = {name: value for name, value in settings.items() if name != "strategy"}
    chosen, _ = resolve_strategy(loaded, shared, settings.get("strategy"))
    resolved: dict[int, Settings] = {}
    if chosen.name == "autoregressive":
        prompt_cache = shared.pop("prompt_cache", None)
        shared = checked_shared(shared)
        settings_for(loaded, shared)  # an error in these is of no line
        answers: Callable[[Sequence[Valid]], Iterator[list[Answer]]] = partial(
            _by_engine, settings=resolved, prompt_cache=prompt_cache
        )
    else:
        if "prompt_cache" in settings:
            raise PromptError(f"`prompt_cache`: {chosen.name} generation has no such setting")
        answers = partial(_by_batch, settings=settings)
    checked = []
    for line in lines:
        try:
            if line.error is None and chosen.name == "autoregressive":
                asked = {**shared, **checked_shared(line.settings)}
                given = line.prompt.constrained(asked) if line.prompt is not None else asked
                resolved[line.index] = settings_for(loaded, given)
            elif line.error is None and line.settings:
                name = next(iter(line.settings))
                raise PromptError(f"`{name}`: {chosen.name} generation has one setting for all lines")
            checked.append(line)
        except PromptError as error:
            if not keep_going:
                raise PromptError(f"line {line.number}: {_quoted(error)}") from None
            checked.append(replace(line, error=_quoted(error)))
    made_by = _made_by(loaded, settings, raw)

    def run() -> Iterator[Mapping[str, Any]]:
        if divided:
            ranks.check_same({**made_by, "prompts": [line.values for line in lines]})
        with _opened(output, checked, made_by) as (file, done):
            failed, chats, plain = list[Answer](), list[Valid](), list[Valid]()
            for line in checked[done:][ranks.rank() :: ranks.size()] if divided else checked[done:]:
                if line.prompt is not None and line.error is None:
                    (plain if line.prompt.loaded is loaded else chats).append((line, line.prompt))
                else:
                    values = {"line": line.number, **_repeated(line.values), "error": line.error}
                    failed.append((line.index, values))
            # Those of conversations have a tokenizer that writes more special tokens.
            answered = (some for part in (chats, plain) if part for some in answers(part))
            held: dict[int, Mapping[str, Any]] = {}
            found_here = chain([failed], answered)
            for index, found in _exchanged(found_here) if divided else chain.from_iterable(found_here):
                held[index] = found
                while done in held:
                    values = {MADE_BY: made_by, **held.pop(done)}
                    try:
                        file.write(json.dumps(values, ensure_ascii=False) + "\n")
                        file.flush()
                    except OSError as error:
                        if not isinstance(output, Path):
                            raise
                        with suppress(OSError):
                            file.close()  # it would fail again to write what it holds
                        raise SourceError(
                            f"{output}: cannot be written ({error.strerror or error})"
                        ) from error
                    done += 1
                    if report is not None:
                        report(done, len(checked))
                    yield values

    return run()


def _made_by(loaded: Loaded, settings: Mapping[str, Any], raw: bool) -> dict[str, str]:
    """The zoo's version and digests of the model and the settings: what answers depend on besides their prompts."""

    given = {name: value for name, value in settings.items() if name != "prompt_cache"}
    text = json.dumps([given, loaded.generation_config, raw], sort_keys=True, default=repr)
    return {
        "zoo": runtime.versions()["mlx-zoo"],
        "model": f"{loaded.architecture.name} {fingerprint(loaded)[:16]}",
        "settings": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def _repeated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a line's values that its answer repeats."""
    return {key: values[key] for key in LINE_KEYS if key in values}


def _record(line: Line, prompt: ChatPrompt, steps: list[Step]) -> dict[str, Any]:
    """An answer as JSON values: its text, or its ids where there is no tokenizer."""
    answer = collect(prompt.parsed(iter(steps)))
    with_ids = prompt.loaded.tokenizer is None
    values = {
        "tokens" if with_ids else "text": answer.tokens if with_ids else answer.text,
        "thinking": answer.thinking or None,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": len(prompt.ids),
        "generated_tokens": len(answer.tokens),
        "error": answer.error and str(answer.error),
        "logprobs": answer.logprobs,
        "alternatives": answer.alternatives,
        "cached_tokens": answer.prompt.cached_tokens if answer.prompt.tokens else None,
        "prompt_logprobs": answer.prompt.logprobs,
        "candidates": list(answer.candidates) or None,
    }
    return _repeated(line.values) | {key: value for key, value in values.items() if value is not None}


@contextmanager
def _opened(
    output: Path | TextIO, lines: Sequence[Line], made_by: Mapping[str, str]
) -> Iterator[tuple[TextIO, int]]:
    """The open output, and how many of the lines it answers already. What a rank other than 0 writes is dropped."""
    if ranks.rank() > 0:
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            yield nothing, ranks.shared(0)
        return
    if not isinstance(output, Path):
        yield output, ranks.shared(0)
        return
    with ExitStack() as stack:
        try:
            done = 0
            if is_stream(output):
                file: TextIO = stack.enter_context(output.open("w", encoding="utf-8"))
            else:
                check_output(output, overwrite=True)
                stack.enter_context(locked(output))
                descriptor = os.open(output, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
                file = stack.enter_context(open(descriptor, "a", encoding="utf-8", newline="\n"))
                done, size = _answers_in(output, lines, made_by)
                os.ftruncate(descriptor, size)
        except OSError as error:
            raise SourceError(f"{output}: cannot be written ({error.strerror or error})") from error
        yield file, ranks.shared(done)


def _answers_in(output: Path, lines: Sequence[Line], made_by: Mapping[str, str]) -> tuple[int, int]:
    """How many of the lines a file answers, and the bytes of these answers; PromptError for anything but answers of this run."""
    content = output.read_bytes()
    *whole, torn = content.split(b"\n")
    start = f'{{"{MADE_BY}": {{"zoo": '.encode()
    strange = next((text for text in (*whole, torn) if not text.startswith(start[: len(text)])), None)
    if strange is not None:
        raise PromptError(
            f"{output}: holds no answers that the zoo wrote ({strange[:40].decode(errors='replace')!r}): give a new file"
        )
    if len(whole) > len(lines):
        raise PromptError(f"{output}: has {len(whole)} answers, more than the {len(lines)} prompts")
    for number, (text, line) in enumerate(zip(whole, lines, strict=False), 1):
        try:
            before = json.loads(text)
            wrote = before[MADE_BY]
            same = all(before.get(key) == line.values.get(key) for key in LINE_KEYS)
        except (ValueError, KeyError, AttributeError):
            raise PromptError(f"{output}: line {number} is damaged: give a new file") from None
        if other := next((name for name, value in made_by.items() if wrote.get(name) != value), None):
            what = {"zoo": "another version of the zoo", "model": "another model"}.get(
                other, "other settings"
            )
            raise PromptError(f"{output}: line {number} was written with {what}: give a new file")
        if not same:
            raise PromptError(f"{output}: line {number} answers another prompt: give a new file")
    return len(whole), len(content) - len(torn)


def _exchanged(answers: Iterator[list[Answer]]) -> Iterator[Answer]:
    """Yield the answers of all ranks, on each rank."""
    unfinished = True
    while unfinished:
        finished: list[Answer] = []
        deadline = time.monotonic() + EXCHANGE
        ended = True
        for steps, some in enumerate(answers, 1):
            finished += some
            if steps >= EXCHANGE_STEPS and time.monotonic() > deadline:
                ended = False
                break
        parts = ranks.gathered([finished, ended])
        unfinished = not all(ended for _, ended in parts)
        for part, _ in parts:
            yield from part


def _by_engine(
    valid: Sequence[Valid], settings: Mapping[int, Settings], prompt_cache: PromptCache | None
) -> Iterator[list[Answer]]:
    """Generate by an engine. Each step yields a list of the answers that it finished, which may be empty."""
    engine = Engine(valid[0][1].loaded, prompt_cache=prompt_cache)
    running: dict[int, tuple[Valid, list[Step]]] = {}
    waiting = iter(valid)
    with runtime.wired_memory():
        while True:
            while len(running) < 2 * MOST_ROWS and (one := next(waiting, None)) is not None:
                running[engine.add_sequence(one[1].ids, settings[one[0].index])] = one, []
            if not running:
                return
            finished = []
            for handle, step in engine.step():
                one, steps = running[handle]
                steps.append(step)
                if step.finish_reason is not None:
                    del running[handle]
                    finished.append((one[0].index, _record(*one, steps)))
            yield finished


def _by_batch(valid: Sequence[Valid], settings: Mapping[str, Any]) -> Iterator[list[Answer]]:
    """Generate by the strategy's `batch` function. Each step yields a list of the answers that it finished, which may be empty."""
    for start in range(0, len(valid), MOST_ROWS):
        block = valid[start : start + MOST_ROWS]
        steps: list[list[Step]] = [[] for _ in block]
        prompts = [prompt.ids for _, prompt in block]
        for index, step in batch_stream(block[0][1].loaded, prompts, **settings):
            steps[index].append(step)
            line, prompt = block[index]
            over = step.finish_reason is not None
            yield [(line.index, _record(line, prompt, steps[index]))] if over else []
