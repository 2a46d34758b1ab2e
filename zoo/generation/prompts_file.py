"""The prompts of a file, a line each, and a file of their answers, in the same order; what was begun can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation import Generated, batch_stream, collected, started
from zoo.generation.engine import MOST_ROWS, Engine
from zoo.generation.prompt import encode_messages, encode_prompt
from zoo.generation.settings import Settings, settings_for
from zoo.loading import Loaded

OWN = ("prompt", "messages", "id")  # the keys of a line that are no settings


@frozen()
class Line(Frozen):
    """One prompt of a file: as it stands there, its ids, and the settings that it has for itself."""

    index: int
    asked: Mapping[str, Any]
    ids: tuple[int, ...]
    settings: Mapping[str, Any]


def read_prompts(loaded: Loaded, path: Path, settings: Mapping[str, Any]) -> list[Line]:
    """The lines of a JSON Lines file: a text, or an object with a `prompt` or `messages`, an `id`, and settings.

    PromptError, naming the line, for one that cannot be.
    """
    found: list[Line] = []
    for number, text in enumerate(_lines(path), 1):
        try:
            found.append(_line(loaded, len(found), text, settings))
        except PromptError as error:
            raise PromptError(f"{path}: line {number}: {error}") from None
    if not found:
        raise PromptError(f"{path}: has no prompts")
    return found


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise PromptError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PromptError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def _line(loaded: Loaded, index: int, text: str, settings: Mapping[str, Any]) -> Line:
    try:
        asked = json.loads(text)
    except ValueError as error:
        raise PromptError(f"is not JSON: {error}") from None
    asked = {"prompt": asked} if isinstance(asked, str) else asked
    if not isinstance(asked, dict) or ("prompt" in asked) == ("messages" in asked):
        raise PromptError("must be a text, or an object with either a `prompt` or `messages`")
    own = {name: value for name, value in asked.items() if name not in OWN}
    special = settings.get("special_tokens")
    if "messages" in asked:
        ids = encode_messages(loaded, asked["messages"])
    else:
        languages = ({**settings, **own}.get(f"{side}_language") for side in ("source", "target"))
        ids = encode_prompt(loaded, asked["prompt"], special is not False, *languages)
    return Line(index, asked, tuple(ids), own)


def answered(
    loaded: Loaded,
    lines: Sequence[Line],
    output: Path,
    *,
    report: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Iterator[Mapping[str, Any]]:
    """Answer the lines that `output` does not have yet, writing each answer as a line of JSON, in the lines' order.

    Gives what it wrote. A line of the output that was torn, by a crash for example, is written again. `report` is
    called with the number of lines that are answered and of all. PromptError when the output is of other prompts, and
    before anything runs for a setting that cannot be.
    """
    done = _answers_in(output, lines)
    left = lines[done:]
    shared = {name: value for name, value in settings.items() if name != "strategy"}
    chosen, _ = started(loaded, shared, settings.get("strategy"))
    if chosen.name == "autoregressive":
        answers = _by_engine(loaded, left, shared)
    else:
        if "prompt_cache" in settings:
            raise PromptError(f"`prompt_cache`: {chosen.name} generation has no such setting")
        if own := next((line for line in left if line.settings), None):
            name = next(iter(own.settings))
            raise PromptError(
                f"line {own.index + 1}: `{name}`: {chosen.name} generation has one setting for all lines"
            )
        answers = _by_batch(loaded, left, settings)
    return _written(answers, lines, done, output, report)


def _written(
    answers: Iterator[tuple[Line, Generated]],
    lines: Sequence[Line],
    done: int,
    output: Path,
    report: Callable[[int, int], None] | None,
) -> Iterator[Mapping[str, Any]]:
    held: dict[int, Mapping[str, Any]] = {}
    with output.open("a", encoding="utf-8") as file:
        for line, answer in answers:
            held[line.index] = _shown(line, answer)
            while done in held:
                values = held.pop(done)
                file.write(json.dumps(values, ensure_ascii=False) + "\n")
                file.flush()
                done += 1
                if report is not None:
                    report(done, len(lines))
                yield values


def _shown(line: Line, answer: Generated) -> dict[str, Any]:
    """What the output has of an answer."""
    values: dict[str, Any] = {
        **{key: line.asked[key] for key in OWN if key in line.asked},
        "text": answer.text,
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


def _answers_in(output: Path, lines: Sequence[Line]) -> int:
    """How many of the lines the output answers; what is torn at its end is cut off."""
    if not output.exists():
        return 0
    content = output.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    texts = whole.splitlines()
    for number, (text, line) in enumerate(zip(texts, lines, strict=False), 1):
        try:
            before = json.loads(text)
            same = all(before.get(key) == line.asked.get(key) for key in OWN)
        except (ValueError, AttributeError):
            same = False
        if not same:
            raise PromptError(
                f"{output}: line {number} answers another prompt: give a new file, or remove this one"
            )
    if len(texts) > len(lines):
        raise PromptError(f"{output}: has {len(texts)} answers, more than the {len(lines)} prompts")
    if len(whole) < len(content):
        with output.open("r+b") as file:
            file.truncate(len(whole))
    return len(texts)


def _by_engine(
    loaded: Loaded, lines: Sequence[Line], settings: Mapping[str, Any]
) -> Iterator[tuple[Line, Generated]]:
    """Each line with its answer, as they are done; a line's own settings go before those of all."""
    shared = dict(settings)
    engine = Engine(loaded, prompt_cache=shared.pop("prompt_cache", None))
    chosen = [settings_for(loaded, {**shared, **line.settings}) for line in lines]
    return _engine_answers(engine, lines, chosen)


def _engine_answers(
    engine: Engine, lines: Sequence[Line], settings: Sequence[Settings]
) -> Iterator[tuple[Line, Generated]]:
    running: dict[int, tuple[Line, list[Any]]] = {}
    waiting = iter(zip(lines, settings, strict=True))
    while True:
        while len(running) < 2 * MOST_ROWS and (following := next(waiting, None)) is not None:
            running[engine.add_text(following[0].ids, following[1])] = following[0], []
        if not running:
            return
        for handle, step in engine.step():
            line, steps = running[handle]
            steps.append(step)
            if step.finish_reason is not None:
                del running[handle]
                yield line, collected(steps)


def _by_batch(
    loaded: Loaded, lines: Sequence[Line], settings: Mapping[str, Any]
) -> Iterator[tuple[Line, Generated]]:
    """Each line with its answer, by the strategy's own way to run several."""
    for start in range(0, len(lines), MOST_ROWS):
        block = lines[start : start + MOST_ROWS]
        steps: list[list[Any]] = [[] for _ in block]
        for index, step in batch_stream(loaded, [line.ids for line in block], **settings):
            steps[index].append(step)
            if step.finish_reason is not None:
                yield block[index], collected(steps[index])
