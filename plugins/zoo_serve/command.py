"""`zoo serve`: models over HTTP."""

from __future__ import annotations

import math
import os
import shlex
import warnings
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo import rank_watch
from zoo.cli.setting_options import CommandSettings, SettingsCommand
from zoo.cli.source_options import (
    FOLDER,
    MODEL_OPTIONS,
    ModelOptions,
    adapter_option,
    complete_source,
    model_options,
)
from zoo.cli.source_options import prompt_cache_option as file_option
from zoo.frozen import Frozen, frozen
from zoo.machine import launched
from zoo_serve.log import say

if TYPE_CHECKING:
    from zoo_serve.models import Source

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LIBRARIES = ("starlette", "uvicorn", "prometheus_client")
BYTES = {"K": 10**3, "M": 10**6, "G": 10**9}


class ByteCount(click.ParamType):
    """A number of bytes: 500000000, 500M, 4G."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).upper().removesuffix("B")
        unit = BYTES.get(text[-1:], 1)
        digits = text[:-1] if unit > 1 else text
        if not digits.isdecimal():
            self.fail(f"expected a number of bytes such as 500M or 4G, got {value!r:.40}", param, ctx)
        return int(digits) * unit


class Seconds(click.FloatRange):
    """A finite number of seconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. UsageError for one that is out of range, infinite, or no number."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return seconds


class Key(click.ParamType):
    """A key that a header can hold: visible characters, without a space at either end."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The key. UsageError, which does not show it, for one that no client could send."""
        if not value:
            self.fail("the key is empty", param, ctx)
        if not value.isprintable() or value != value.strip():  # half a character is what is no UTF-8
            self.fail("the key must be UTF-8 text without line breaks or spaces around it", param, ctx)
        return str(value)


@frozen(kw_only=True)
class ServerOptions(Frozen):
    """The options of `zoo serve` beside those of its models."""

    host: str
    port: int
    api_key: str | None
    rows: int
    queue: int
    timeout: float
    max_models: int
    unload_after: float | None
    cache_bytes: int | None
    adapters: tuple[str, ...]
    origins: tuple[str, ...]
    hosts: tuple[str, ...]


_shows_warnings = ContextVar("_shows_warnings", default=False)


def hide_warnings() -> None:
    """Show no warnings but those of loading a model: one about an answer may quote it."""
    show: Callable[..., None] = warnings.showwarning

    def hiding(*arguments: Any, **more: Any) -> None:
        if _shows_warnings.get():
            show(*arguments, **more)

    warnings.showwarning = hiding


@click.command(
    cls=SettingsCommand,
    usual=("host", "port", "api_key", "rows", "adapters", "max_models"),
    epilog="Example: zoo serve smollm2",
)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, shell_complete=complete_source)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0: all.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="0: a free one; Ollama's is 11434.",
)
@click.option(
    "--api-key",
    type=Key(),
    envvar="ZOO_API_KEY",
    metavar="KEY",
    help="Ask clients for this key (better: the variable ZOO_API_KEY).",
)
@click.option(
    "--rows", type=click.IntRange(1), default=32, show_default=True, help="Answers that run at once."
)
@click.option(
    "--queue", type=click.IntRange(0), default=256, show_default=True, help="Requests that may wait."
)
@click.option("--timeout", type=Seconds(1), default=600, show_default=True, help="Seconds for a request.")
@click.option(
    "--max-models", type=click.IntRange(1), default=1, show_default=True, help="Models in memory at once."
)
@click.option("--unload-after", type=Seconds(0), metavar="SECONDS", help="Free a model that is not used.")
@click.option(
    "--prompt-cache",
    "cache_bytes",
    type=ByteCount(),
    help="Bytes for the KV caches of earlier prompts (default: a quarter of the memory; 0: none).",
)
@click.option(
    "--adapter",
    "adapters",
    multiple=True,
    metavar="NAME=FOLDER",
    help="Offer the first SOURCE with this adapter, too, as SOURCE:NAME; may be given several times.",
)
@click.option("--cors", "origins", multiple=True, metavar="ORIGIN", help="Let web pages of this origin ask.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A name by which this server is asked."
)
@model_options(*(option for option in MODEL_OPTIONS if option not in (adapter_option, file_option)))
def serve(sources: tuple[str, ...], options: ModelOptions, settings: CommandSettings, **given: Any) -> None:
    """Serve each SOURCE (an architecture, a folder, a GGUF file or a hub id) over HTTP.

    Clients of OpenAI's and Anthropic's interfaces use it at http://HOST:PORT/v1, Ollama's and a browser at http://HOST:PORT/.
    Programs that look for Ollama by themselves need --port 11434. The first SOURCE is loaded at once, others when they are asked for. Settings are defaults of the answers. Ctrl-C stops.
    """
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise click.UsageError(
            f"it needs {', '.join(missing)}, which the extra `serve` installs: pip install 'mlx-zoo[serve]'"
        )
    server = ServerOptions(**given)
    if launched() and (len(sources) > 1 or server.adapters or server.unload_after is not None):
        raise click.UsageError("several ranks serve one SOURCE, without --adapter and --unload-after")
    # click takes an empty variable as one that is not set.
    if server.api_key is None and "ZOO_API_KEY" in os.environ:
        raise click.UsageError("the variable ZOO_API_KEY is empty: give it a key, or unset it")
    offered = sources_of(sources, server.adapters, options, settings)
    hide_warnings()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else its library warns at each fork
    run_server(offered, server)


def run_server(sources: list[Source], options: ServerOptions) -> None:
    """Serve the sources until a signal or a failure, which ends the process. On a rank other than 0, follow rank 0."""
    from zoo_serve.access import Access
    from zoo_serve.app import application
    from zoo_serve.metrics import Metrics
    from zoo_serve.models import ModelTable
    from zoo_serve.server import Server
    from zoo_serve.service import Limits, Service
    from zoo_serve.worker import Worker

    table, runner = ModelTable(sources, options.max_models), None
    if launched():
        from zoo.runtime import ranks
        from zoo_serve.ranks import Leader, follow

        if ranks.rank() > 0:
            follow(sources[0], options.rows, options.cache_bytes, options.timeout)
            return
        runner = Leader(table)
    worker = Worker(
        table,
        rows=options.rows,
        prompt_cache=options.cache_bytes,
        unload_after=options.unload_after,
        runner=runner,
    )
    service = Service(table, worker, Limits(options.rows, options.queue, options.timeout), Metrics())
    app = application(service, Access(options.api_key, options.hosts, options.origins))
    ready = partial(announce, sources[0], options)
    server = Server(app, service, options.host, options.port, ready)
    worker.on_failure = server.worker_failed
    if launched() and (watch := rank_watch.watch()) is not None:
        watch.before_end = server.rank_lost
    worker.start()
    server.run_to_end()


def sources_of(
    sources: tuple[str, ...], adapters: tuple[str, ...], options: ModelOptions, settings: CommandSettings
) -> list[Source]:
    """The models that are offered. Each is looked for, and downloaded if need be, before the server starts."""
    from zoo.checkpoint.adapter import is_low_rank
    from zoo_serve.models import Source

    offered: dict[str, Source] = {}
    variables, command = copy_context(), click.get_current_context()

    def in_command(function: Any, *arguments: Any) -> Any:
        """Call a function in the worker's thread as in this command, whose defaults it reads, and show its warnings."""
        with command.scope(cleanup=False):
            return variables.run(function, *arguments)

    variables.run(_shows_warnings.set, True)

    def add(name: str, source: str, how: ModelOptions, **shared: str) -> None:
        if name in offered:
            raise click.UsageError(f"two models are called {name}")
        offered[name] = Source(
            name,
            partial(in_command, how.load, source),
            lambda loaded: in_command(how.settings, loaded, settings),
            about(source, options),
            **shared,
        )

    folders: dict[str, Path] = {}
    for text in adapters:
        name, equals, folder = text.partition("=")
        if not (equals and name and name.isprintable()):
            raise click.BadParameter(f"{text!r} is not NAME=FOLDER", param_hint="--adapter")
        if name in folders:
            raise click.UsageError(f"two adapters are called {name}")
        folders[name] = FOLDER.convert(folder, None, None)
    low_rank = {name: folder for name, folder in folders.items() if is_low_rank(folder)}
    for source in sources:
        add(
            model_name(source),
            source,
            replace(options, shared_adapters=low_rank) if source == sources[0] else options,
        )
    base = model_name(sources[0])
    for name, place in folders.items():
        if name in low_rank:
            add(f"{base}:{name}", sources[0], options, base=base, adapter=name)
        else:  # its weights are all its own
            add(f"{base}:{name}", sources[0], replace(options, adapter=place))
    return list(offered.values())


def about(source: str, options: ModelOptions) -> dict[str, Any]:
    """What is known of a model before its weights are read."""
    from zoo.checkpoint.checkpoint import open_checkpoint
    from zoo.checkpoint.source import find
    from zoo.checkpoint.ties import recipe_of
    from zoo.host.registry import default_registry

    registry = default_registry()
    place = find(source, registry, options.revision)
    asked = (
        place.architecture if options.architecture is None else registry.architecture(options.architecture)
    )
    checkpoint = open_checkpoint(place.path, registry, asked)
    recipe = recipe_of(checkpoint)
    tokenizer = checkpoint.tokenizer()
    template = (tokenizer.chat_template or "") if tokenizer else ""
    return {
        "task": checkpoint.architecture.task,
        "architecture": checkpoint.architecture.name,
        "parameters": recipe.parameters(recipe.dim),
        "context": recipe.context,
        "chat": bool(template),
        "tools": "tools" in template,
        "thinking": "think" in template,
        "bytes": sum(file.stat().st_size for file in checkpoint.weight_files()),
        "format": "gguf" if checkpoint.path.suffix == ".gguf" else "safetensors",
        **({"name": checkpoint.name} if checkpoint.path.is_file() else {}),
    }


def model_name(source: str) -> str:
    """The name of a source in requests: the last part of a path that exists, else as it is written."""
    path = Path(source)
    return path.resolve().name if path.exists() else source


def announce(source: Source, options: ServerOptions, address: str) -> None:
    """Print the address, and what to paste into a client: a request that the model can answer."""
    key, name = options.api_key is not None, shlex.quote(source.name)
    path, body = "chat/completions", '{"messages": [{"role": "user", "content": "Hello"}]}'
    if source.about.get("task") in ("encode", "fill-mask"):
        path, body = "embeddings", '{"input": "Hello"}'
    elif not source.about.get("chat"):
        path, body = "completions", '{"prompt": "Hello"}'
    lines = [
        f"serving {source.name} at {address}/",
        f"  export OPENAI_BASE_URL={address}/v1 OPENAI_API_KEY={'your-key' if key else 'none'}",
        f"  export ANTHROPIC_BASE_URL={address} ANTHROPIC_API_KEY={'your-key' if key else 'none'}",
        f"  export ANTHROPIC_MODEL={name} ANTHROPIC_DEFAULT_HAIKU_MODEL={name}",
        f"  export OLLAMA_HOST={address}",
        f"  curl {address}/v1/{path} -H 'Content-Type: application/json' \\",
        *(["    -H 'Authorization: Bearer your-key' \\"] if key else []),
        f"    -d '{body}'",
    ]
    if not (key or options.host in LOOPBACK):
        lines.append("  anyone who reaches this address can use it: ZOO_API_KEY asks for a key")
    for line in lines:
        say(line)
