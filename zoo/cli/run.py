"""`zoo run`: text in, text out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click


@dataclass
class Statistics:
    """Times of one generation, in seconds from its start, read on the clock outside the model."""

    prompt_tokens: int
    load_seconds: float
    began: float
    first: float | None = None
    ended: float = 0.0
    tokens: int = 0

    def count(self) -> None:
        """Note one more token."""
        self.ended = time.perf_counter()
        self.first = self.first or self.ended
        self.tokens += 1

    def as_json(self) -> dict[str, Any]:
        """Counts, tokens a second, seconds and bytes."""
        from zoo.runtime import peak_memory

        prefill = (self.first or self.began) - self.began
        decode = self.ended - (self.first or self.ended)
        return {
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.tokens,
            "prompt_tokens_per_second": round(self.prompt_tokens / prefill, 1) if prefill else None,
            # The first token is the prefill's: the time after it belongs to the others.
            "generated_tokens_per_second": round((self.tokens - 1) / decode, 1) if decode else None,
            "load_seconds": round(self.load_seconds, 3),
            "first_token_seconds": round(prefill, 4),
            "peak_memory_bytes": peak_memory(),
        }

    def line(self) -> str:
        """The same in one line."""
        values = self.as_json()
        return (
            f"prompt {values['prompt_tokens']} tokens, {values['prompt_tokens_per_second'] or '–'} tokens/s · "
            f"generated {values['generated_tokens']} tokens, {values['generated_tokens_per_second'] or '–'} tokens/s · "
            f"first token after {values['first_token_seconds']:.3f} s, loading {values['load_seconds']:.2f} s · "
            f"peak memory {values['peak_memory_bytes'] / 1e6:.1f} MB"
        )


@click.command()
@click.argument("source")
@click.argument("prompt", required=False)
@click.option("--architecture", metavar="NAME", help="Use this architecture, whatever the config says.")
@click.option("--max-tokens", type=int, default=None, help="Most tokens to generate (256).")
@click.option("--temperature", type=float, help="0 is greedy; below 1 sharpens, above 1 flattens.")
@click.option("--top-k", type=int, help="Draw from the k likeliest tokens (0: all).")
@click.option("--top-p", type=float, help="Draw from the likeliest tokens that reach probability p together.")
@click.option("--min-p", type=float, help="Draw from tokens at least p times as likely as the likeliest.")
@click.option("--seed", type=int, help="Make draws repeatable.")
@click.option(
    "--stop", multiple=True, metavar="TEXT", help="End before this text; may be given several times."
)
@click.option("--system", metavar="TEXT", help="A system message, for models with a chat template.")
@click.option("--raw", is_flag=True, help="Give the prompt as it is, without the chat template.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Compute in this type.")
def run(
    source: str, prompt: str | None, architecture: str | None, dtype: str | None, as_json: bool, **given: Any
) -> None:
    """Run SOURCE (an architecture, a folder or a hub id) on PROMPT.

    The generated text alone goes to the output, statistics to the error stream. Without a PROMPT it is read
    from a pipe; on a terminal a conversation opens.
    """
    chat = prompt is None and sys.stdin.isatty()
    if (prompt is None or prompt == "-") and not chat:
        prompt = _piped()
    began = time.perf_counter()
    from zoo.loading import load

    loaded = load(source, architecture=architecture, dtype=dtype)
    load_seconds = time.perf_counter() - began
    if chat:
        from zoo.cli.chat import converse

        converse(loaded, given)
        return
    assert prompt is not None
    ids = prompt_ids(loaded, [{"role": "user", "content": prompt}], given)
    text, statistics, reason, tokens = "", Statistics(len(ids), load_seconds, time.perf_counter()), None, []
    interrupted = False
    try:
        for step in steps(loaded, ids, given):
            statistics.count()
            text, reason = text + step.text, step.finish_reason
            tokens.append(step.token)
            if not as_json:
                write(step.text)
    except KeyboardInterrupt:
        interrupted, reason = True, "interrupted"
    if as_json:
        values = {"text": text, "tokens": tokens, "finish_reason": reason, **statistics.as_json()}
        click.echo(json.dumps(values, ensure_ascii=False))
    else:
        write("\n")
        click.echo(f"{loaded.architecture.name} · {statistics.line()}", err=True)
    if interrupted:
        raise KeyboardInterrupt


def _piped() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        from zoo.errors import PromptError

        raise PromptError(f"the prompt on the pipe is not UTF-8 text (byte {error.start})") from error


def prompt_ids(loaded: Any, messages: list[dict[str, str]], given: dict[str, Any]) -> list[int]:
    """The ids of a conversation: through the chat template, or of the last message when there is none or --raw."""
    from zoo.errors import PromptError
    from zoo.generation.prompt import encode_prompt

    template = loaded.tokenizer.chat_template if loaded.tokenizer and not given["raw"] else None
    if not messages[-1]["content"]:
        raise PromptError("the prompt is empty")
    if template is None:
        if given["system"]:
            why = "--raw leaves it out" if given["raw"] else f"{loaded.folder.name} has none"
            raise PromptError(f"--system needs a chat template, and {why}")
        return encode_prompt(loaded, messages[-1]["content"])
    from zoo.chat import render_chat

    if given["system"]:
        messages = [{"role": "system", "content": given["system"]}, *messages]
    text = render_chat(template, messages, special_tokens=loaded.tokenizer.special_tokens)
    return encode_prompt(loaded, text, special_tokens=False)


def steps(loaded: Any, ids: list[int], given: dict[str, Any]) -> Iterator[Any]:
    """The generation that the command's options ask for."""
    from zoo.generation import stream

    names = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop")
    return stream(loaded, ids, **{name: given[name] for name in names})


def write(text: str) -> None:
    """Text to the output at once, whatever encoding the terminal was set up for."""
    if text:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
