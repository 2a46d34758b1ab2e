"""`zoo run`: text in, text out."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.generation import model_name, output_constraint, prompt_hint, truncation_notice, typed_prompt
from zoo.cli.progress import Progress, say
from zoo.cli.ranks import on_rank_0, until_interrupted
from zoo.cli.screen import Screen
from zoo.cli.setting_options import CommandSettings, SettingsCommand
from zoo.cli.source_options import (
    MODEL_OPTIONS,
    ModelOptions,
    complete_source,
    model_options,
    parallel_option,
    parallel_prompts_option,
)
from zoo.cli.terminal import columns, facts
from zoo.errors import PromptError, pluralize
from zoo.machine import launched

if TYPE_CHECKING:
    from zoo.generation import Generated
    from zoo.generation.chat.chat_prompt import ChatPrompt
    from zoo.generation.loop.step import Drafted, Step
    from zoo.loading import Loaded

STANDARD = Path("-")  # standard input or output, as an option's file


@dataclass
class Statistics:
    """Counts of one generation and its times in seconds, measured outside the model."""

    prompt_tokens: int
    load_seconds: float
    began: float
    first: float | None = None
    ended: float = 0.0
    tokens: int = 0
    cached_tokens: int = 0
    miss_reason: str | None = None  # why the prompt cache held no more of the prompt
    drafted: Drafted | None = None
    unpacked: bool = False

    def count(self, step: Step) -> None:
        """Add a `zoo.Step`: a token, a draft, or one of several answers."""
        self.ended = time.perf_counter()
        self.first = self.first or self.ended
        self.tokens += step.token is not None and step.candidate is None
        if step.prompt is not None:
            self.cached_tokens, self.miss_reason = step.prompt.cached_tokens, step.prompt.miss_reason
        self.drafted = step.drafted or self.drafted

    def as_json(self) -> dict[str, Any]:
        """Counts, tokens a second, seconds and bytes."""
        from zoo.runtime import peak_memory

        prefill = (self.first or self.began) - self.began
        decode = self.ended - (self.first or self.ended)
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "generated_tokens": self.tokens,
            "prompt_tokens_per_second": _rate(self.prompt_tokens - self.cached_tokens, prefill),
            # The first token is the prefill's: the time after it belongs to the others.
            "generated_tokens_per_second": _rate(self.tokens - 1, decode) if self.tokens else None,
            "load_seconds": round(self.load_seconds, 3),
            "first_token_seconds": round(prefill, 4),
            "peak_memory_bytes": peak_memory(),
            "unpacked": self.unpacked,
            **({"drafted": asdict(self.drafted)} if self.drafted else {}),
        }

    def lines(self) -> list[str]:
        """The statistics as short texts, without those that were not measured."""
        values = self.as_json()

        def counted(what: str) -> str:
            number, rate = values[f"{what}_tokens"], values[f"{what}_tokens_per_second"]
            return f"{what} {pluralize(number, 'token')}{f', {rate} tokens/s' if rate else ''}"

        lines = [counted("prompt")]
        if self.miss_reason:
            lines.append(f"{self.cached_tokens} of them from the prompt cache ({self.miss_reason})")
        if self.tokens:  # filling masks generates none
            lines.append(counted("generated"))
        if self.drafted:
            lines.append(f"{self.drafted.accepted} of {self.drafted.proposed} drafts accepted")
        if self.first:
            lines.append(f"first token after {values['first_token_seconds']:.3f} s")
        lines.append(f"loading {values['load_seconds']:.2f} s")
        lines.append(f"peak memory {values['peak_memory_bytes'] / 1e6:.1f} MB")
        if self.unpacked:
            lines.append("packed matrices kept as floats")
        return lines


def _rate(tokens: int, seconds: float) -> float | None:
    return round(tokens / seconds, 1) if seconds else None


@click.command(
    cls=SettingsCommand,
    usual=("prompt", "system", "prompts", "output", "as_json", "adapter", "revision", "yes"),
    epilog='Example: zoo run llama "The capital city of China is" --max-tokens 20',
)
@click.argument("source", shell_complete=complete_source)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@click.option("-p", "--prompt", metavar="TEXT", help="The prompt, instead of the second argument.")
@model_options(*(parallel_prompts_option if o is parallel_option else o for o in MODEL_OPTIONS))
@click.option("--system", metavar="TEXT", help="A system message, for models with a chat template.")
@click.option("--raw", is_flag=True, help="Give each prompt as it is, without the chat template.")
@click.option(
    "--prompts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help='File of prompts, "-" for standard input: a JSON text or object a line; in a .txt file each line is a prompt.',
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="File for the answers to --prompts; a stopped run is continued (default: standard output).",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="Record an invalid line of --prompts as an error and answer the others.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def run(
    source: str,
    words: tuple[str, ...],
    prompt: str | None,
    options: ModelOptions,
    settings: CommandSettings,
    as_json: bool,
    prompts: Path | None,
    **given: Any,
) -> None:
    """Run SOURCE (an architecture, a folder, a GGUF file or a hub id) on PROMPT.

    Only the answer goes to the output; statistics go to the error stream, and a terminal shows thinking. Without PROMPT it reads a pipe, or on
    a terminal answers each line that you type: a conversation, if the model has a chat template.
    """
    prompt = given_prompt(source, words, prompt)
    answers = {"output": given.pop("output"), "keep_going": given.pop("keep_going")}
    if prompts is None and (answers["output"] is not None or answers["keep_going"]):
        raise click.UsageError(
            f"{'--keep-going' if answers['keep_going'] else '--output'} goes with --prompts"
        )
    if options.parallel == "data" and prompts is None:
        raise click.UsageError("--parallel data goes with --prompts")
    others = {"PROMPT": prompt is not None, "--system": given["system"], "--json": as_json}
    if prompts is not None and (other := next((name for name, value in others.items() if value), None)):
        raise click.UsageError(f"{other} and --prompts cannot be given together")
    asked = next((name for name in ("logprobs", "prompt_logprobs") if settings.get(name)), None)
    if asked and not as_json and prompts is None:
        raise click.UsageError(f"--{asked.replace('_', '-')} needs --json or --prompts")
    chat = prompt is None and prompts is None and on_rank_0(sys.stdin.isatty)
    if prompts is None and prompt in (None, "-") and not chat:
        prompt = piped_prompt("run", source)
    began = time.perf_counter()
    room = len(prompt or "") + settings["max_tokens"] if "max_tokens" in settings else None
    loaded = options.load(source, room)
    load_seconds = time.perf_counter() - began
    settings = options.settings(loaded, settings)
    if prompts is not None:
        divided = options.parallel == "data"
        _run_prompts(loaded, prompts, settings, raw=given["raw"], divided=divided, **answers)
    elif prompt is None:
        from zoo.cli.chat import chat_session
        from zoo.cli.repl.loop import converse

        converse(chat_session(loaded, settings, **given))
    else:
        from zoo.generation.chat.chat_prompt import prompt_of

        ids = prompt_of(loaded, typed_prompt(loaded, prompt), settings, **given)
        answer(ids, prompt, settings, load_seconds, as_json, hints=options.adapter is None)


def answer(
    prompt: ChatPrompt,
    text: str,
    settings: CommandSettings,
    load_seconds: float,
    as_json: bool,
    *,
    hints: bool = True,
) -> None:
    """Generate from the prompt of a text. Print the answer as it comes and statistics after it, or everything as JSON.

    With `hints`, words that the model's corpus does not have are named on a terminal. Ctrl-C stops.
    """
    from zoo.generation import collect, stream

    loaded, count = prompt.loaded, len(prompt.ids)
    constrained = prompt.constrained(settings)
    statistics = Statistics(count, load_seconds, time.perf_counter(), unpacked=loaded.unpacked)
    steps, interrupted = [], False
    with Screen(quiet=as_json) as screen, Progress("reading the prompt") as reading:
        try:
            for step in until_interrupted(
                prompt.parsed(stream(loaded, prompt.ids, report=reading, **constrained))
            ):
                reading.close()
                if loaded.tokenizer is None and step.token is not None and not as_json:
                    step = replace(step, text=f"{step.token} ")
                screen.show(step)
                statistics.count(step)
                steps.append(step)
        except KeyboardInterrupt:
            interrupted = True
    generated = collect(steps)
    reason = "interrupted" if interrupted else generated.finish_reason
    if as_json:
        click.echo(json.dumps(_as_json(generated, reason, statistics), ensure_ascii=False))
    else:
        if "return_sequences" in settings:
            for candidate in generated.candidates[1:]:
                click.echo(candidate["text"])
        click.echo(facts([model_name(loaded), *statistics.lines()], columns(sys.stderr)), err=True)
        if hints and sys.stderr.isatty() and not interrupted and (line := prompt_hint(loaded, text)):
            click.echo(line, err=True)
    unfinished = output_constraint(settings) or (generated.thinking and not generated.text)
    if reason == "length" and ("max_tokens" not in settings or unfinished):
        click.echo(truncation_notice(settings, "--max-tokens changes that"), err=True)
    if interrupted:
        raise click.Abort  # click ends the line of a KeyboardInterrupt; here it has ended


def _run_prompts(
    loaded: Loaded,
    prompts: Path,
    settings: CommandSettings,
    *,
    raw: bool,
    output: Path | None,
    keep_going: bool,
    divided: bool,
) -> None:
    """Answer the prompts that `output` does not answer yet, then print how many there were and how fast."""
    from zoo.files.reading import name_of
    from zoo.generation.prompts_file import answer_prompts, read_prompts

    source = sys.stdin if prompts == STANDARD else prompts
    output = None if output == STANDARD else output
    how = {"raw": raw, "keep_going": keep_going}
    lines = read_prompts(loaded, source, settings, **how)
    began, tokens, count, failed = time.perf_counter(), 0, 0, 0
    target = sys.stdout if output is None else output
    with Progress("answering") as report:
        answers = answer_prompts(loaded, lines, target, report=report, divided=divided, **how, **settings)
        for answer in answers:
            count += 1
            failed += "error" in answer
            tokens += answer.get("generated_tokens", 0)
    seconds = time.perf_counter() - began
    before = len(lines) - count
    continued = f", {before} already answered" if before else ""
    errors = f", {failed} of them {'an error' if failed == 1 else 'errors'}" if failed else ""
    rate = f" · {tokens / seconds:,.1f} tokens/s" if tokens else ""
    what = f"{pluralize(count, 'answer')}{errors}{continued}"
    click.echo(
        f"{output or name_of(source)}: {what} · generated {pluralize(tokens, 'token')}{rate}", err=True
    )


def _as_json(generated: Generated, reason: str | None, statistics: Statistics) -> dict[str, Any]:
    """The output of `--json`: text, statistics, and any thinking, candidates and log-probabilities."""
    values = {"text": generated.text, "tokens": generated.tokens, "finish_reason": reason}
    optional = {
        "thinking": generated.thinking or None,
        "candidates": generated.candidates or None,
        "logprobs": generated.logprobs,
        "alternatives": generated.alternatives,
        "prompt_logprobs": generated.prompt.logprobs,
        "prompt_alternatives": generated.prompt.alternatives,
    }
    asked = {name: value for name, value in optional.items() if value is not None}
    return values | statistics.as_json() | asked


def given_prompt(source: str, words: Sequence[str], option: str | None) -> str | None:
    """The prompt, from the argument or the option. UsageError for several, with the command to type instead."""
    from zoo.checkpoint.source import is_architecture
    from zoo.host.registry import default_registry

    if words and "/" not in source and not Path(source).exists():
        first, second = (is_architecture(word, default_registry()) for word in (source, words[-1]))
        if second and not first:
            typed = shlex.join(["zoo", "run", words[-1], " ".join([source, *words[:-1]])])
            raise click.UsageError(f"the model comes before the prompt: {typed}")
    if len(words) > 1:
        typed = shlex.join(["zoo", "run", source, " ".join(words)])
        raise click.UsageError(f"the prompt is one argument, in quotes: {typed}")
    if words and option is not None:
        raise click.UsageError("give the prompt as PROMPT or as --prompt, not both")
    return words[0] if words else option


def piped_prompt(command: str, source: str) -> str:
    """The prompt on standard input. PromptError, with the line to type instead, when there is none."""
    prompt = on_rank_0(read_pipe, raises=(PromptError,))
    if not prompt:
        line = shlex.join(["zoo", command, source, "TEXT"])
        raise PromptError(f'no prompt: the pipe is empty; type {line}, where "" as TEXT begins a new text')
    return prompt


def read_pipe() -> str:
    """Read the text on standard input, on a terminal until Ctrl-D. PromptError when it is not UTF-8.

    It is one line on several ranks: `mlx.launch` never ends their input.
    """
    pipe = sys.stdin.buffer
    if sys.stdin.isatty():
        say("zoo: type the text; Ctrl-D on a line of its own ends it")
    try:
        return (pipe.readline() if launched() else pipe.read()).decode("utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise PromptError(f"the prompt on the pipe is not UTF-8 text (byte {error.start})") from error
