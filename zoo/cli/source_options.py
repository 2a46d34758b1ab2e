"""What commands share about SOURCE: options to load and run it, `@architecture_option` above a command's function; the
completion of its name in a shell, in bash of words with a colon too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import BashComplete, CompletionItem, split_arg_string

from zoo.architecture import Objective, Sampler
from zoo.cli.progress import Progress
from zoo.cli.setting_options import CommandSettings
from zoo.cli.terminal import YES
from zoo.frozen import Frozen, frozen
from zoo.recipe.pipeline import WAYS

if TYPE_CHECKING:
    from zoo.generation.prefix_cache import PromptCache
    from zoo.host.registry import Registry
    from zoo.loading import Loaded

FILE = click.Path(path_type=Path, dir_okay=False)
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

architecture_option = click.option(
    "--architecture", metavar="NAME", help="Use this architecture, whatever the config says."
)
revision_option = click.option("--revision", metavar="NAME", help="A hub id's branch, tag or commit.")
repack_option = click.option(
    "--repack",
    type=click.Choice(["4", "6", "8"]),
    callback=lambda _, __, bits: None if bits is None else int(bits),
    help="Requantize GGUF blocks that MLX has no format for to this many bits.",
)
unpack_option = click.option(
    "--unpack/--packed",
    default=None,
    help="Keep dequantized copies of quantized matrices, faster on a CPU (default: where memory allows).",
)
parallel_option = click.option(
    "--parallel",
    type=click.Choice(WAYS),
    default="auto",
    help="How the ranks that mlx.launch started share the model.",
)
parallel_prompts_option = click.option(
    "--parallel",
    type=click.Choice([*WAYS, "data"]),
    default="auto",
    help="How the ranks that mlx.launch started share the model; data: each has all of it, and they share --prompts.",
)
adapter_option = click.option(
    "--adapter",
    type=FOLDER,
    help="A LoRA or DoRA adapter: a folder as mlx-lm or PEFT writes it.",
)
context_option = click.option(
    "--context", type=int, metavar="N", help="Tokens for which cache and FLOPs are computed."
)
quantize_option = click.option(
    "--quantize", metavar="FORMAT", help="Format in which weights are counted: bfloat16, 8, 4, mxfp4, …"
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace an existing file, even one that the zoo did not write."
)
force_option = click.option(
    "--force", is_flag=True, help="Load the model even if it does not seem to fit in memory."
)
dtype_option = click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Compute in this type."
)
sampler_option = click.option(
    "--sampler",
    "samplers",
    multiple=True,
    metavar="NAME[:KEY=VALUE,…]",
    help="Apply a plugin's sampler; may be given several times.",
)
strategy_option = click.option(
    "--strategy",
    metavar="NAME",
    help="Generation strategy (default: the one for the model's task and the settings).",
)
prompt_cache_option = click.option(
    "--prompt-cache",
    type=FILE,
    help="File that keeps the KV caches of prompts; a prompt that begins like one of them reuses it.",
)


def _remember(ctx: click.Context, _: click.Parameter, yes: bool) -> None:
    ctx.meta[YES] = yes


yes_option: Any = click.option(
    "--yes",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Download without asking, even more than 1 GB.",
)


MODEL_OPTIONS = (
    *(adapter_option, architecture_option, revision_option, repack_option, unpack_option),
    *(dtype_option, parallel_option, force_option, yes_option),
    *(strategy_option, sampler_option, prompt_cache_option),
)


@frozen()
class ModelOptions(Frozen):
    """The values of a command's options about its model: how it is loaded, and how it generates."""

    adapter: Path | None = None
    shared_adapters: Mapping[str, Path] | None = None
    architecture: str | None = None
    revision: str | None = None
    repack: int | None = None
    unpack: bool | None = None
    dtype: str | None = None
    parallel: str = "auto"
    force: bool = False
    strategy: str | None = None
    samplers: tuple[str, ...] = ()
    prompt_cache: Path | None = None

    def load(self, source: str, context: int | None = None) -> Loaded:
        """Load a source with a progress bar, and name the plugin that runs it if it is a third party's."""
        from zoo.host.registry import default_registry
        from zoo.loading import load

        names = ("adapter", "architecture", "revision", "repack", "unpack", "dtype", "parallel", "force")
        with Progress("loading", waits=True) as report:
            how = {name: getattr(self, name) for name in names}
            if self.parallel == "data":
                how["parallel"] = None  # the whole model on each rank
            loaded = load(source, adapters=self.shared_adapters, context=context, report=report, **how)
        plugin = default_registry().plugin_of(loaded.architecture)
        if not plugin.first_party:
            click.echo(f"zoo: {loaded.architecture.name} is served by the plugin {plugin.label}", err=True)
        return loaded

    def settings(self, loaded: Loaded, given: CommandSettings) -> CommandSettings:
        """The settings for `zoo.stream`: those given, a person's defaults for others, strategy, samplers, prompt cache."""
        others: dict[str, Any] = {}
        if self.strategy is not None:
            others["strategy"] = self.strategy
        if self.samplers:
            others["samplers"] = _samplers_of(loaded.registry, self.samplers)
        if self.prompt_cache is not None:
            others["prompt_cache"] = _opened_cache(self.prompt_cache, loaded)
        return given.with_defaults(loaded, others)


def model_options(*options: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that adds some of `MODEL_OPTIONS` to a command, which gets their values as `options`: a `ModelOptions`."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def gathered(**given: Any) -> Any:
            values = {
                field.name: given.pop(field.name) for field in fields(ModelOptions) if field.name in given
            }
            return command(options=ModelOptions(**values), **given)

        for option in reversed(options):
            gathered = option(gathered)
        return gathered

    return decorated


def _samplers_of(registry: Registry, texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The settings of each sampler in texts such as "typical:mass=0.9"; PromptError or PluginError for an unknown one."""
    return dict(named_values(registry, Sampler, "--sampler", text) for text in texts)


def named_values(
    registry: Registry, kind: type[Sampler] | type[Objective], flag: str, text: str
) -> tuple[str, dict[str, Any]]:
    """The name of a plugin's record and the values of its settings, of a text such as "typical:mass=0.9" after a flag.

    PromptError or PluginError for an unknown one.
    """
    from zoo.checkpoint.source import split_preset
    from zoo.errors import PromptError

    name, rest = split_preset(text)
    record: Any = registry.table(kind).require(name)
    settings = {setting.name: setting for setting in record.settings}
    values = {}
    for part in filter(None, (rest or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals or key not in settings:
            known = ", ".join(settings) or "nothing"
            raise PromptError(f"{flag} {name}: {part!r} is not one of {known} and its value")
        values[key] = settings[key].parsed(value)
    return name, values


def _opened_cache(path: Path, loaded: Loaded) -> PromptCache:
    """Open the prompt cache of a file. It is saved when the command ends, if a prompt was read."""
    from zoo.generation.prefix_cache import PromptCache
    from zoo.runtime import ranks

    cache = PromptCache.load(path, loaded)

    def save() -> None:
        if cache.statistics.requests and ranks.rank() == 0:
            cache.save(path)

    click.get_current_context().call_on_close(save)
    return cache


def complete_source(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completions of a word: architectures and aliases, presets after a colon, else files and folders."""
    from zoo.architecture.architecture import Alias
    from zoo.host.registry import default_registry

    architectures = default_registry().architectures
    aliases = default_registry().table(Alias).listed()
    name, colon, _ = incomplete.rpartition(":")
    if colon and name in architectures:
        presets = architectures[name].presets
        found = [CompletionItem(f"{name}:{preset.name}", help=preset.summary) for preset in presets]
    else:
        found = [CompletionItem(name, help=made.summary) for name, made in architectures.items()]
        found += [CompletionItem(name, help=alias.preset.summary) for name, alias in aliases.items()]
    return [item for item in found if item.value.startswith(incomplete)] or [
        CompletionItem(incomplete, type="file")
    ]


class Bash(BashComplete):
    """Bash's completion of words with a colon, which bash itself splits into three: `llama`, `:` and `pocket`."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one under the cursor, and that one, joined again at its colons."""
        words = split_arg_string(os.environ["COMP_WORDS"])
        number = int(os.environ["COMP_CWORD"])
        whole: list[str] = []
        for word in [*words, ""][: number + 1]:
            if whole and ":" in (word, whole[-1][-1:]):
                whole[-1] += word
            else:
                whole.append(word)
        self.split = whole[-1].rpartition(":")[1] in words
        return whole[1:-1], whole[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """One answer to bash, which replaces only the part after the colon."""
        value = item.value.rpartition(":")[2] if self.split else item.value
        return f"{item.type},{value}"
