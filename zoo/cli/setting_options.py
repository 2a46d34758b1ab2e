"""Command-line options made from the settings that strategies declare, which also parse and check the values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from zoo.architecture import Setting
from zoo.architecture.settings import CACHE, GROUPS, SETTINGS
from zoo.errors import PromptError
from zoo.files.reading import read_user_text
from zoo.host.registry import Registry, core, default_registry
from zoo.recipe.policy import CachePolicy

if TYPE_CHECKING:
    from zoo.loading import Loaded

C = TypeVar("C", bound=Callable[..., Any])

# What Python's callers alone can use: a command gives its prompt as ids, and no functions.
PYTHON_ONLY = ("special_tokens", "logits_processors", "adapter")
KIND_NAMES = {int: "integer", float: "float", bool: "true|false", str: "text", dict: "json"}
# Keys of a click context's `meta`: the files that settings were read from, and whether help shows every option.
FILES = f"{__name__}.files"
EVERYTHING = f"{__name__}.everything"
USUAL = ("max_tokens", "stop", "temperature", "top_k", "top_p", "min_p", "seed", "json_schema")


class CommandSettings(Mapping[str, Any]):
    """The settings of a command by name, checked. `defaults` are the user's, of which the model's strategy takes some."""

    def __init__(self, given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        self._given, self._defaults = dict(given), defaults or {}

    def __getitem__(self, name: str) -> Any:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def with_defaults(self, loaded: Loaded, others: Mapping[str, Any]) -> CommandSettings:
        """The settings, the user's defaults that the model's strategy takes, and what `others` of the options say."""
        taken: Collection[str] = ()
        if self._defaults:
            registry, architecture = loaded.registry, loaded.architecture
            chosen = registry.strategy(
                architecture.task, [*self], name=others.get("strategy"), architecture=architecture
            )
            taken = chosen.setting_names
        defaults = {name: value for name, value in self._defaults.items() if name in taken}
        return CommandSettings({**defaults, **self._given, **others})


class SettingType(click.ParamType):
    """The click type of a setting, which parses and checks the value. Some settings take the path of a file."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        items = ",".join(item.name for item in setting.items)
        kind = setting.metavar or items or KIND_NAMES.get(setting.kind, "value")
        self.name = "file" if setting.file else kind
        if setting.choices:
            self.name = "|".join(map(str, setting.choices))
        self.name += "".join(f"|{extra}" for extra in setting.also if type(extra) is not int)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The checked value. UsageError, with the option and the file, for an invalid one."""
        if not isinstance(value, str):
            return value
        text, place = value, ""
        if self.setting.file:
            try:
                text, place = read_user_text(Path(value), PromptError), f"{value}: "
            except PromptError as error:
                self.fail(str(error), param, ctx)
            if ctx is not None:
                ctx.meta.setdefault(FILES, {})[self.setting.name] = value
        try:
            return self.setting.parsed(text)
        except PromptError as error:
            self.fail(place + str(error).replace(f"`{self.setting.name}` must be", "expected"), param, ctx)


class SettingOption(click.Option):
    """The option of one setting. `declared` has its declaration by strategy; the key None is the shared one."""

    def __init__(self, flag: str, declared: dict[str | None, Setting], strategy: str | None = None) -> None:
        """`strategy` is the one that the option selects, or None when several strategies share the option."""
        self.declared, self.strategy = declared, strategy
        setting = _loosest(list(declared.values()))
        self.setting = setting.name
        pair = setting.kind is bool and not setting.also
        super().__init__(
            [f"{flag}/--no-{flag.removeprefix('--')}" if pair else flag],
            default=None,
            type=None if pair else SettingType(setting),
            multiple=setting.several,
            help=" ".join(dict.fromkeys(map(help_of, declared.values()))),
        )


def _loosest(settings: list[Setting]) -> Setting:
    """A setting that accepts every value that one of these accepts. The strategy that runs checks its own bounds."""
    if len(settings) == 1:
        return settings[0]
    low, high = [s.minimum for s in settings], [s.maximum for s in settings]
    return replace(
        settings[0],
        default=None,
        minimum=None if None in low else min(bound for bound in low if bound is not None),
        above=settings[0].above if len({s.above for s in settings}) == 1 else None,
        maximum=None if None in high else max(bound for bound in high if bound is not None),
        choices=(),
        also=tuple(dict.fromkeys(extra for setting in settings for extra in setting.also)),
    )


def help_of(setting: Setting) -> str:
    """A setting's line of help, with its default."""
    default = "" if setting.default is None else f"Default: {str(setting.default).lower()}."
    return " ".join(filter(None, (setting.help, default)))


def options_of(registry: Registry, taken: frozenset[str] = frozenset()) -> list[SettingOption]:
    """The options of all settings: the shared ones, then each strategy's own.

    Strategies that declare one name share the option when the kind is the same. Otherwise, and where the command has
    an option of that name (`taken`), a strategy's own setting is asked for as `--STRATEGY-NAME`, which also chooses it.
    """
    common: dict[str, dict[str | None, Setting]] = {
        setting.name: {None: setting} for setting in SETTINGS if setting.name not in PYTHON_ONLY
    }
    own = [
        (label, setting)
        for label, strategy in registry.strategies.items()
        for setting in strategy.own_settings
    ]
    kinds: dict[str, set[tuple[type, bool]]] = {}
    for _, setting in own:
        kinds.setdefault(setting.name, set()).add((setting.kind, setting.several))
    qualified = []
    for label, setting in own:
        shared = common.get(setting.name, {}).get(None)
        same = (
            len(kinds[setting.name]) == 1
            if shared is None
            else (shared.kind, shared.several) == (setting.kind, setting.several)
        )
        if same and setting.name not in taken:
            common.setdefault(setting.name, {})[label] = setting
        else:
            qualified.append(SettingOption(_flag(label, setting.name), {label: setting}, label))
    return [*(SettingOption(_flag(name), declared) for name, declared in common.items()), *qualified]


def cache_options(command: C) -> C:
    """A decorator that adds the options of KV caches to a command."""
    for setting in reversed(CACHE):
        command = click.option(_flag(setting.name), type=SettingType(setting), help=help_of(setting))(command)
    return command


def policy_of(values: dict[str, Any]) -> CachePolicy:
    """The policy of KV caches from the values of `cache_options`, which are removed. PromptError for invalid ones."""
    given = {setting.name: values.pop(setting.name) for setting in CACHE}
    return CachePolicy.of(**{name: value for name, value in given.items() if value is not None})


def _flag(*names: str) -> str:
    return "--" + "-".join(names).replace("::", "-").replace("_", "-")


def _show_everything(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        ctx.meta[EVERYTHING] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class SettingsCommand(click.Command):
    """A command with the settings of strategies as options, in sections of their own.

    `--help` shows the command's options in `usual` and the settings in `USUAL`; `--help-all` shows every option.
    """

    _registry: Registry | None = None  # whose settings `params` has

    def __init__(self, *args: Any, usual: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.usual = usual
        self._help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_everything,
            help="Show every option, in groups, and exit.",
        )

    def setting_options(self) -> list[SettingOption]:
        """The options of the settings of installed plugins. The first call adds them to `params`."""
        registry = default_registry()
        if self._registry is not registry:
            own = [param for param in self.params if not isinstance(param, SettingOption)]
            flags = {flag.removeprefix("--") for param in own for flag in param.opts} | {"help"}
            taken = frozenset(flag.replace("-", "_") for flag in flags)
            self._registry, self.params = registry, [*own, *options_of(registry, taken)]
        return [param for param in self.params if isinstance(param, SettingOption)]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own parameters, the settings, and the help options."""
        self.setting_options()
        return [*super().get_params(ctx), self._help_all]

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command with the settings that were given as one argument, `settings`.

        A PromptError about a setting that was read from a file names the file, too.
        """
        defaults = {
            str(option.name): ctx.params.pop(str(option.name))
            for option in self.setting_options()
            if ctx.get_parameter_source(str(option.name)) is ParameterSource.DEFAULT_MAP
        }
        options = self.setting_options()
        settings = CommandSettings(given_settings(options, ctx.params), given_settings(options, defaults))
        ctx.params["settings"] = settings
        try:
            return super().invoke(ctx)
        except PromptError as error:
            for name, file in ctx.meta.get(FILES, {}).items():
                if str(error).startswith(f"`{name}`: "):
                    raise PromptError(
                        f"`{name}`: {file}: {str(error).removeprefix(f'`{name}`: ')}"
                    ) from error
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usual options, or with `EVERYTHING` all: shared settings in groups, then those of each strategy."""
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        own = [param for param in params if not isinstance(param, SettingOption)]
        settings = self.setting_options()
        if ctx.meta.get(EVERYTHING):
            sections = {"Options": list(_records(ctx, own))}
            for title, group in GROUPS.items():
                names = {setting.name for setting in group}
                sections[title] = list(_rows(ctx, [o for o in settings if o.setting in names], None))
            registry = default_registry()
            for label, strategy in registry.strategies.items():
                if strategy.own_settings:
                    plugin = registry.plugin_of(strategy)
                    whose = "" if plugin is core() else f" (plugin {plugin.name})"
                    sections[f"Settings of {label}{whose}"] = list(_rows(ctx, settings, label))
        else:
            helps = [param for param in own if {"--help", "--help-all"} & {*param.opts}]
            usual = [param for param in own if param.name in self.usual]
            sections = {
                "Options": list(_records(ctx, [*usual, *helps])),
                "Generation": list(_rows(ctx, [o for o in settings if o.setting in USUAL], None)),
            }
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _records(ctx: click.Context, options: list[click.Option]) -> Iterator[tuple[str, str]]:
    return (record for option in options if (record := option.get_help_record(ctx)))


def _rows(
    ctx: click.Context, options: list[SettingOption], strategy: str | None
) -> Iterator[tuple[str, str]]:
    """The options of one strategy, with the help that the strategy declares."""
    for option in options:
        record = option.get_help_record(ctx)
        if strategy in option.declared and record is not None:
            yield record[0], help_of(option.declared[strategy])


def given_settings(options: list[SettingOption], params: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given, by name. They are removed from `params`.

    UsageError when two options give one setting, and for a setting of another strategy than the chosen one.
    """
    settings: dict[str, Any] = {}
    for option in options:
        value = params.pop(str(option.name), None)
        if value is None or value == ():
            continue
        flag = option.opts[0]
        if option.setting in settings:
            raise click.UsageError(f"{flag}: {option.setting} is given twice")
        if option.strategy is not None:
            if params.get("strategy") not in (None, option.strategy):
                raise click.UsageError(f"{flag} is a setting of the strategy {option.strategy}")
            params["strategy"] = option.strategy
        settings[option.setting] = value
    return settings
