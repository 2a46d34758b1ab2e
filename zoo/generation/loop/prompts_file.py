"""Answers a file of prompts, a line each, in the same order. A run that was stopped can be continued."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from zoo import runtime
from zoo.errors import PromptError, SourceError, ZooError
from zoo.files.reading import parse_json, read_user_text
from zoo.files.writing import check_output, is_stream, locked
from zoo.frozen import Frozen, frozen
from zoo.generation import Generated, batch_stream, collected, started
from zoo.generation.loop.engine import MOST_ROWS, Engine
from zoo.generation.loop.prompt import encode_messages, encode_prompt
from zoo.generation.prefix_cache.fingerprint import model_fingerprint, tokenizer_fingerprint
from zoo.generation.settings import Settings, checked_shared, settings_for
from zoo.loading import Loaded

OWN = ("prompt", "messages", "id")  # the keys of a line that are no settings
MADE_BY = "made_by"  # the first key of an answer: which run wrote it
START = f'{{"{MADE_BY}": {{"zoo": '


@frozen()
class Line(Frozen):
    """One prompt of a file: its number there, its values, its ids and its own settings; `error` when it is invalid."""

    index: int
    number: int
    asked: Mapping[str, Any]
    ids: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


def read_prompts(
    loaded: Loaded, path: Path, settings: Mapping[str, Any], *, keep_going: bool = False
) -> list[Line]:
    """The prompts of a file.

    Each line of a file .txt is a prompt. In any other file a line is JSON: a text, a list of token ids, or an object with
    a `prompt` or `messages`, perhaps an `id`, and settings. Empty lines are skipped. PromptError, naming the line, for one
    that is invalid; with `keep_going` the line gets the `error` instead.
    """
    found: list[Line] = []
    plain = path.suffix == ".txt"
    for number, text in enumerate(read_user_text(path, PromptError).removeprefix("\ufeff").split("\n"), 1):
        if not text.strip():
            continue
        asked: dict[str, Any] = {}
        try:
            asked = {"prompt": text.removesuffix("\r")} if plain else _parsed(text)
            found.append(_line(loaded, len(found), number, asked, settings))
        except ZooError as error:
            if not keep_going:
                raise PromptError(f"{path}: line {number}: {_quoted(error)}") from None
            known = {key: asked[key] for key in OWN if key in asked}
            found.append(Line(len(found), number, known, error=_quoted(error)))
    if not found:
        raise PromptError(f"{path}: has no prompts")
    return found


def _parsed(text: str) -> dict[str, Any]:
    """The JSON object of a line; PromptError when it is malformed."""
    try:
        asked = parse_json(text)
        json.dumps(asked, allow_nan=False)
    except ValueError as error:
        raise PromptError(f"is not valid JSON ({error})") from None
    asked = {"prompt": asked} if isinstance(asked, str | list) else asked
    if not isinstance(asked, dict) or ("prompt" in asked) == ("messages" in asked):
        raise PromptError(
            'must be a text, a list of token ids, or an object with either "prompt" or "messages"'
        )
    return asked


def _line(
    loaded: Loaded, index: int, number: int, asked: Mapping[str, Any], settings: Mapping[str, Any]
) -> Line:
    own = {name: value for name, value in asked.items() if name not in OWN}
    special = settings.get("special_tokens")
    if "messages" in asked:
        ids = encode_messages(loaded, asked["messages"])
    else:
        languages = ({**settings, **own}.get(f"{side}_language") for side in ("source", "target"))
        ids = encode_prompt(loaded, asked["prompt"], special is not False, *languages)
    return Line(index, number, asked, tuple(ids), own)


def _quoted(error: ZooError) -> str:
    """An error about a line: its settings are keys of the file and no options of a command."""
    return str(error).replace("`", '"')


def answered(
    loaded: Loaded,
    lines: Sequence[Line],
    output: Path | TextIO,
    *,
    keep_going: bool = False,
    report: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Iterator[Mapping[str, Any]]:
    """Answer the lines, writing each answer as a line of JSON to `output`, in the lines' order. Yields the answers.

    Each answer says which zoo, model and settings made it. A file that holds answers of the same run is continued: the lines
    that it answers are not answered again, and an answer that was cut off is replaced. PromptError for a file that holds
    anything else, for answers of another run, and while another process writes the file. A setting that is invalid is an error
    before anything runs; one of a line is recorded as that line's answer where `keep_going`. `report` is called with the
    number of lines that are answered and of all.
    """
    shared = {name: value for name, value in settings.items() if name != "strategy"}
    chosen, _ = started(loaded, shared, settings.get("strategy"))
    failed = {line.index: line.error for line in lines if line.error is not None}
    if chosen.name == "autoregressive":
        resolved = _settings_of(loaded, lines, shared, failed, keep_going)
        answers = partial(_by_engine, loaded, prompt_cache=shared.get("prompt_cache"), settings=resolved)
    else:
        if "prompt_cache" in settings:
            raise PromptError(f"`prompt_cache`: {chosen.name} generation has no such setting")
        for line in lines:
            if line.settings and line.index not in failed:
                text = (
                    f'"{next(iter(line.settings))}": {chosen.name} generation has one setting for all lines'
                )
                _fail(line, text, failed, keep_going)
        answers = partial(_by_batch, loaded, settings=settings)
    made_by = _made_by(loaded, settings)
    return _written(answers, lines, failed, output, made_by, loaded.tokenizer is None, report)


def _fail(line: Line, text: str, failed: dict[int, str], keep_going: bool) -> None:
    """Record that a line is invalid, or raise that it is."""
    if not keep_going:
        raise PromptError(f"line {line.number}: {text}")
    failed[line.index] = text


def _settings_of(
    loaded: Loaded,
    lines: Sequence[Line],
    shared: Mapping[str, Any],
    failed: dict[int, str],
    keep_going: bool,
) -> dict[int, Settings]:
    """The settings of each valid line: its own, then those of all."""
    shared = {name: value for name, value in shared.items() if name != "prompt_cache"}
    shared = checked_shared(shared)
    settings_for(loaded, shared)  # an error in these is of no line
    resolved = {}
    for line in lines:
        if line.index not in failed:
            try:
                resolved[line.index] = settings_for(loaded, {**shared, **checked_shared(line.settings)})
            except PromptError as error:
                _fail(line, _quoted(error), failed, keep_going)
    return resolved


def _made_by(loaded: Loaded, settings: Mapping[str, Any]) -> dict[str, str]:
    """What answers depend on besides their prompts: the zoo's version, the model, and the settings."""

    def digest(*values: Any) -> str:
        text = json.dumps(values, sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    given = {name: value for name, value in settings.items() if name != "prompt_cache"}
    model = digest(model_fingerprint(loaded), tokenizer_fingerprint(loaded.tokenizer))
    return {
        "zoo": runtime.versions()["mlx-zoo"],
        "model": f"{loaded.architecture.name} {model}",
        "settings": digest(given, loaded.generation_config),
    }


def _written(
    answers: Callable[[Sequence[Line]], Iterator[tuple[Line, Generated]]],
    lines: Sequence[Line],
    failed: Mapping[int, str],
    output: Path | TextIO,
    made_by: Mapping[str, str],
    with_ids: bool,
    report: Callable[[int, int], None] | None,
) -> Iterator[Mapping[str, Any]]:
    with _opened(output, lines, made_by) as (file, done):
        held: dict[int, Mapping[str, Any]] = {
            index: {MADE_BY: made_by, "line": lines[index].number, **_asked(lines[index]), "error": error}
            for index, error in failed.items()
        }
        left = [line for line in lines[done:] if line.index not in failed]
        for found in chain([None], answers(left)):  # None: lines with errors may come before the first answer
            if found is not None:
                line, answer = found
                held[line.index] = {MADE_BY: made_by, **_shown(line, answer, with_ids)}
            while done in held:
                values = held.pop(done)
                try:
                    file.write(json.dumps(values, ensure_ascii=False) + "\n")
                    file.flush()
                except OSError as error:
                    if not isinstance(output, Path):
                        raise
                    with suppress(OSError):
                        file.close()  # it would fail again to write what it holds
                    raise SourceError(f"{output}: cannot be written ({error.strerror or error})") from error
                done += 1
                if report is not None:
                    report(done, len(lines))
                yield values


def _asked(line: Line) -> dict[str, Any]:
    """What an answer repeats of its line."""
    return {key: line.asked[key] for key in OWN if key in line.asked}


def _shown(line: Line, answer: Generated, with_ids: bool) -> dict[str, Any]:
    """What the output has of an answer; its ids where there is no tokenizer to make a text of them."""
    values: dict[str, Any] = {
        **_asked(line),
        **({"tokens": answer.tokens} if with_ids else {"text": answer.text}),
        "finish_reason": answer.finish_reason,
        "prompt_tokens": len(line.ids),
        "generated_tokens": len(answer.tokens),
    }
    if answer.error is not None:
        values["error"] = str(answer.error)
    for name, value in (("logprobs", answer.logprobs), ("alternatives", answer.alternatives)):
        if value is not None:
            values[name] = value
    if answer.prompt is not None:
        values["cached_tokens"] = answer.prompt.cached_tokens
        if answer.prompt.logprobs is not None:
            values["prompt_logprobs"] = answer.prompt.logprobs
    if answer.candidates:
        values["candidates"] = list(answer.candidates)
    return values


@contextmanager
def _opened(
    output: Path | TextIO, lines: Sequence[Line], made_by: Mapping[str, str]
) -> Iterator[tuple[TextIO, int]]:
    """The open output, and how many of the lines it answers already."""
    if not isinstance(output, Path):
        yield output, 0
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
        yield file, done


def _answers_in(output: Path, lines: Sequence[Line], made_by: Mapping[str, str]) -> tuple[int, int]:
    """How many of the lines a file answers, and the bytes of these answers; PromptError for what is no answer of this run."""
    content = output.read_bytes()
    *whole, torn = content.split(b"\n")
    start = START.encode()
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
            same = all(before.get(key) == line.asked.get(key) for key in OWN)
        except (ValueError, KeyError, AttributeError):
            raise PromptError(f"{output}: line {number} is damaged: give a new file") from None
        if other := next((name for name, value in made_by.items() if wrote.get(name) != value), None):
            what = {
                "zoo": "another version of the zoo",
                "model": "another model",
                "settings": "other settings",
            }
            raise PromptError(f"{output}: line {number} was written with {what[other]}: give a new file")
        if not same:
            raise PromptError(f"{output}: line {number} answers another prompt: give a new file")
    return len(whole), len(content) - len(torn)


def _by_engine(
    loaded: Loaded, lines: Sequence[Line], *, settings: Mapping[int, Settings], prompt_cache: Any = None
) -> Iterator[tuple[Line, Generated]]:
    """Each line with its answer, as they are done."""
    engine = Engine(loaded, prompt_cache=prompt_cache)
    running: dict[int, tuple[Line, list[Any]]] = {}
    waiting = iter(lines)
    while True:
        while len(running) < 2 * MOST_ROWS and (line := next(waiting, None)) is not None:
            running[engine.add_sequence(line.ids, settings[line.index])] = line, []
        if not running:
            return
        for handle, step in engine.step():
            line, steps = running[handle]
            steps.append(step)
            if step.finish_reason is not None:
                del running[handle]
                yield line, collected(steps)


def _by_batch(
    loaded: Loaded, lines: Sequence[Line], *, settings: Mapping[str, Any]
) -> Iterator[tuple[Line, Generated]]:
    """Each line with its answer, by the strategy's own way to run several."""
    for start in range(0, len(lines), MOST_ROWS):
        block = lines[start : start + MOST_ROWS]
        steps: list[list[Any]] = [[] for _ in block]
        for index, step in batch_stream(loaded, [line.ids for line in block], **settings):
            steps[index].append(step)
            if step.finish_reason is not None:
                yield block[index], collected(steps[index])
