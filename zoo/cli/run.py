"""`zoo run`: text in, text out."""

from __future__ import annotations

import json
import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from zoo.cli.complete import sources
from zoo.cli.generating import (
    Request,
    asked_settings,
    constraint_of,
    cut_line,
    name_of,
    opened_model,
    prompt_ids,
    steps,
)
from zoo.cli.knowledge import about_prompt
from zoo.cli.progress import Progress
from zoo.cli.screen import Screen
from zoo.cli.setting_options import SettingsCommand
from zoo.cli.source_options import model_options
from zoo.cli.statistics import Statistics


@click.command(
    cls=SettingsCommand,
    usual=("prompt", "system", "prompts", "output", "as_json", "adapter", "revision", "yes"),
    epilog='Example: zoo run llama "The capital city of China is" --max-tokens 20',
)
@click.argument("source", shell_complete=sources)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@click.option("-p", "--prompt", metavar="TEXT", help="The prompt, instead of the second argument.")
@model_options
@click.option("--system", metavar="TEXT", help="A system message, for models with a chat template.")
@click.option("--raw", is_flag=True, help="Give the prompt as it is, without the chat template.")
@click.option(
    "--prompts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of prompts: a JSON text or object a line; in a .txt file each line is a prompt.",
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
    architecture: str | None,
    revision: str | None,
    dtype: str | None,
    adapter: Path | None,
    repack: int | None,
    unpack: bool | None,
    force: bool,
    as_json: bool,
    system: str | None,
    raw: bool,
    prompts: Path | None,
    output: Path | None,
    keep_going: bool,
    prompt_cache: Path | None,
    strategy: str | None,
    samplers: tuple[str, ...],
    settings: dict[str, Any],
) -> None:
    """Run SOURCE (an architecture, a folder, a GGUF file or a hub id) on PROMPT.

    The generated text alone goes to the output, statistics to the error stream. Without a PROMPT it is read
    from a pipe; on a terminal each line that is typed is answered: a conversation, if the model has a chat template.
    """
    prompt = one_prompt(source, words, prompt)
    if prompts is None and (output is not None or keep_going):
        raise click.UsageError(f"{'--keep-going' if keep_going else '--output'} goes with --prompts")
    output = None if output == Path("-") else output
    given = {"PROMPT": prompt, "--system": system, "--json": as_json, "--raw": raw}
    if prompts is not None and (other := next((name for name, value in given.items() if value), None)):
        raise click.UsageError(f"{other} and --prompts cannot be given together")
    asked = next((name for name in ("logprobs", "prompt_logprobs") if settings.get(name)), None)
    if asked and not as_json and prompts is None:
        raise click.UsageError(f"--{asked.replace('_', '-')} needs --json or --prompts")
    chat = prompt is None and prompts is None and sys.stdin.isatty()
    if prompts is None and (prompt is None or prompt == "-") and not chat:
        prompt = piped()
    began = time.perf_counter()
    room = len(prompt or "") + settings["max_tokens"] if "max_tokens" in settings else None
    how: dict[str, Any] = dict(architecture=architecture, revision=revision, dtype=dtype, adapter=adapter)
    loaded = opened_model(source, context=room, force=force, repack=repack, unpack=unpack, **how)
    load_seconds = time.perf_counter() - began
    settings = asked_settings(loaded, settings, strategy, samplers, prompt_cache)
    if prompts is not None:
        from zoo.cli.prompts import run_prompts

        run_prompts(
            loaded, prompts, output, settings | ({"strategy": strategy} if strategy else {}), keep_going
        )
        return
    request = Request(settings | {"strategy": strategy}, system, raw)
    if chat:
        from zoo.cli.chat import talk_of
        from zoo.cli.chatting import converse

        converse(talk_of(loaded, request))
        return
    assert prompt is not None
    ids = prompt_ids(loaded, [{"role": "user", "content": prompt}], request)
    context = loaded.recipe.context
    if context is not None and len(ids) > context:
        warnings.warn(
            f"the prompt has {len(ids)} tokens, more than the {context} the model is made for", stacklevel=1
        )
    from zoo.cli.table import facts
    from zoo.cli.terminal import columns

    statistics = Statistics(len(ids), load_seconds, time.perf_counter(), unpacked=loaded.unpacked)
    reason, tokens = None, []
    candidates, found, interrupted = [], [], False
    with Screen(quiet=as_json) as screen, Progress("reading the prompt") as reading:
        try:
            for step in steps(loaded, ids, request, reading):
                reading.close()
                if loaded.tokenizer is None and step.token is not None and not as_json:
                    step = replace(step, text=f"{step.token} ")
                screen.show(step)
                statistics.count(step)
                reason = step.finish_reason
                if step.token is not None:
                    tokens.append(step.token)
                if step.candidate is not None:
                    candidates.append(step.candidate)
                found.append(step)
        except KeyboardInterrupt:
            interrupted, reason = True, "interrupted"
    if as_json:
        values = {"text": screen.text, "tokens": tokens, "finish_reason": reason, **statistics.as_json()}
        values |= {"candidates": candidates} if candidates else {}
        values |= log_probabilities(found)
        click.echo(json.dumps(values, ensure_ascii=False))
    else:
        if "return_sequences" in settings:
            for candidate in candidates[1:]:
                click.echo(candidate["text"])
        click.echo(facts([name_of(loaded), *statistics.lines()], columns(sys.stderr)), err=True)
        if sys.stderr.isatty() and not interrupted and (line := about_prompt(loaded, prompt)):
            click.echo(line, err=True)
    if reason == "length" and ("max_tokens" not in settings or constraint_of(settings)):
        click.echo(cut_line(settings, "--max-tokens changes that"), err=True)
    if interrupted:
        raise KeyboardInterrupt


def log_probabilities(steps: list[Any]) -> dict[str, Any]:
    """What was asked for of the log-probabilities of the text's tokens and of the prompt's."""
    from zoo.generation import collected

    answer = collected(steps)
    values: dict[str, Any] = {"logprobs": answer.logprobs, "alternatives": answer.alternatives}
    if answer.prompt is not None:
        values |= {
            "prompt_logprobs": answer.prompt.logprobs,
            "prompt_alternatives": answer.prompt.alternatives,
        }
    return {name: value for name, value in values.items() if value is not None}


def one_prompt(source: str, words: Sequence[str], option: str | None) -> str | None:
    """The prompt, given as an argument or as an option; a usage error for several, with what to type instead."""
    if len(words) > 1:
        typed = shlex.join(["zoo", "run", source, " ".join(words)])
        raise click.UsageError(f"the prompt is one argument, in quotes: {typed}")
    if words and option is not None:
        raise click.UsageError("give the prompt as PROMPT or as --prompt, not both")
    return words[0] if words else option


def piped() -> str:
    """The text on the pipe; PromptError when it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        from zoo.errors import PromptError

        raise PromptError(f"the prompt on the pipe is not UTF-8 text (byte {error.start})") from error
