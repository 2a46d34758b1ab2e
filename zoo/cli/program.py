"""The program `zoo`: finds its subcommands, prints errors and warnings."""

from __future__ import annotations

import functools
import gc
import os
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click

from zoo.checkpoint.hub_guard import confirming_downloads
from zoo.cli.defaults import default_map, read_config
from zoo.cli.hints import COMMANDS, LISTED, Group, option_hint
from zoo.cli.progress import say
from zoo.cli.ranks import join_ranks
from zoo.cli.signals import leave, listen
from zoo.cli.terminal import YES, guard, open_missing, unwritten
from zoo.errors import PluginError, SourceError, ZooError, did_you_mean
from zoo.machine import launched, launched_rank

if TYPE_CHECKING:
    from zoo.architecture import Command
    from zoo.host.record_table import RecordTable


GENERAL = "zoo chat smollm2"  # a model that knows more than the embedded ones
# What a newcomer can do at once.
FIRST = (
    ('zoo run llama "The capital city of China is"', "a small model in the package"),
    (GENERAL, "a real model, to download"),
    ("zoo compare llama mixtral", "two architectures side by side"),
)
# An argument of a library function in a message: `top_k`, `force=True`.
_ARGUMENT = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")


class Commands(Group):
    """The subcommands of the zoo and of plugins. Each is imported when it is called.

    `running` is the last command that was called, followed by its own subcommands.
    """

    running: tuple[click.Command, ...] = ()

    def list_commands(self, ctx: click.Context) -> list[str]:
        order = tuple(command_table())  # the zoo's own first, in the order in which they are registered
        return sorted(command_table().listed(), key=lambda name: order.index(name.rpartition("::")[2]))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        try:
            record = command_table().get(name)
            return _imported(record.target) if record else None
        except PluginError as error:  # several third parties claim the name, or theirs cannot be imported
            own = next(
                (command for plugin, command in command_table().claims(name) if plugin.first_party), None
            )
            if own is None:
                raise
            notice(f"{error}; the zoo's own command is used")
            return _imported(own.target)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in ("help", "version") and args[0] not in command_table():
            args = [*args[1:], f"--{args[0]}"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        found = super().resolve_command(ctx, args)
        if launched_rank() and not any(record.ranks for _, record in command_table().claims(str(found[0]))):
            ctx.exit()  # rank 0 runs it
        self.running = tuple(_chain(ctx, found[1], found[2]))
        if not ctx.resilient_parsing and self.running:
            names = (str(found[0]), *(str(command.name) for command in self.running[1:]))
            inner = click.Context(self.running[-1], info_name=names[-1], parent=ctx)
            tables = read_config(command_table().listed())
            ctx.default_map = default_map(names, self.running[-1], inner, tables)
        return found

    def has(self, ctx: click.Context, name: str) -> bool:
        return name in command_table()

    def hint(self, ctx: click.Context, typed: str) -> str:
        from zoo.checkpoint.source import is_architecture
        from zoo.host.registry import default_registry

        if is_architecture(typed, default_registry()) or "/" in typed or typed.endswith(".gguf"):
            return f"; `zoo run {typed} PROMPT` runs that model"
        other = COMMANDS.get(typed.lower())
        return f"; {other}" if other else did_you_mean(typed.lower(), self.list_commands(ctx), LISTED)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Begin"):
            formatter.write_dl(FIRST, col_max=formatter.width - 30)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records, groups = command_table().listed(), defaultdict(list)
        names = self.list_commands(ctx)
        width = max(map(len, names), default=0)
        for name in names:
            groups[records[name].group].append((name.ljust(width), records[name].summary))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _chain(ctx: click.Context, command: click.Command | None, args: list[str]) -> Iterator[click.Command]:
    """The command and the subcommands that the arguments name, such as `cache` and `remove`."""
    while command is not None:
        yield command
        if not isinstance(command, click.Group):
            return
        names = command.list_commands(ctx)
        index = next((index for index, word in enumerate(args) if word in names), len(args))
        command = command.get_command(ctx, args[index]) if index < len(args) else None
        args = args[index + 1 :]


def command_table() -> RecordTable[Command]:
    """The subcommands of the zoo and of plugins, by name."""
    from zoo.architecture import Command
    from zoo.host.registry import default_registry

    return default_registry().table(Command)


def _imported(target: str) -> click.Command:
    """Import the click command that a target names. PluginError when it names something else."""
    from zoo.architecture import import_target

    found = import_target(target)
    if not isinstance(found, click.Command):
        raise PluginError(f"{target} is {type(found).__name__}, not a click command")
    return found


# color: click is to leave escapes as they are in a pipe; on a terminal `guard` has made them visible.
@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "color": True},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mlx-zoo", prog_name="zoo")
def cli(debug: bool) -> None:
    """A model zoo on MLX: every architecture a plugin, one core that runs, trains and compares them."""
    listen()  # not before: a Ctrl-C while plugins are imported ends the process
    click.get_current_context().with_resource(confirming_downloads(ask))
    if not gc.isenabled():  # by `main`
        gc.freeze()
        gc.enable()


def ask(hub_id: str, nbytes: int) -> None:
    """Ask whether to download so many bytes. SourceError for a no, and without a terminal to ask on."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None and ctx.meta.get(YES):
        return
    import shlex

    from zoo.describe.facts.fact import text_of

    size = text_of(nbytes, "bytes")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        options = [] if ctx is None else [option for param in ctx.command.params for option in param.opts]
        words = ["zoo", *sys.argv[1:], "--yes"] if "--yes" in options else ["hf", "download", hub_id]
        raise SourceError(f"{hub_id}: {size} to download; type this to do so: {shlex.join(words)}")
    if not click.confirm(f"{hub_id}: download {size}?", err=True):
        raise SourceError(f"{hub_id}: not downloaded")


def notice(message: object) -> None:
    """Print one line to the error stream, with arguments of the library written as the command's options."""
    say(f"zoo: {_line(message)}")


def _line(message: object) -> str:
    return with_option_names(" ".join(str(message).split()), cli.running)


def with_option_names(message: str, commands: Iterable[click.Command]) -> str:
    """A message of the library in which each argument is written as the option of these commands, if they have it.

    `top_k` becomes --top-k, `force=True` --force and `layout="hf"` --layout hf.
    """
    options = (param for command in commands for param in command.params if isinstance(param, click.Option))
    by_flag = {flag: option for option in options for flag in option.opts}

    def written(found: re.Match[str]) -> str:
        flag = f"--{found[1].replace('_', '-')}"
        option, value = by_flag.get(flag), found[2]
        if option is None:
            return found[0]
        if value is None or (option.is_flag and value == "True"):
            return flag
        if option.is_flag:
            return found[0]  # `force=False` is said by leaving --force out
        return f"{flag} {value.strip(chr(34))}"

    return _ARGUMENT.sub(written, message)


def _message(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        return option_hint(error, sys.argv[1:])
    return error.format_message().replace("a valid integer range", "a whole number")


def _usage_hint(error: click.ClickException) -> str:
    """The command's usage and example, for an error about too few or too many arguments."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    too_many = error.message.startswith("Got unexpected extra argument")
    if ctx is None or not (too_many or isinstance(error, click.MissingParameter)):
        return ""
    usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
    return f"{'.' * too_many} Usage: {usage}{f'. {ctx.command.epilog}' if ctx.command.epilog else ''}"


def _bug_message(error: Exception) -> str:
    """The message of an unexpected error, with the plugin whose code raised it."""
    from zoo.host.plugins import error_with_place, plugin_at_fault, unmet_requirement
    from zoo.host.registry import default_registry

    plugins = default_registry().plugins
    plugin = plugin_at_fault(error, (plugin for plugin in plugins if not plugin.first_party))
    wanted = unmet_requirement(plugin.distribution) if plugin else None
    whose = f"plugin {plugin.name}{f' (it requires {wanted})' if wanted else ''}: " if plugin else ""
    return f"{whose}{error_with_place(error, plugins)}; `zoo --debug …` shows the traceback"


def _fail(message: str | None, status: int) -> NoReturn:
    """Print an error in one line and end with `status`, on all ranks; None prints nothing."""
    if launched():
        from zoo import rank_watch

        rank_watch.fail(message and _line(message), status)
    if message is not None:
        with suppress(OSError):
            notice(message)
    sys.exit(status)


def main() -> None:
    """The command `zoo`. An error is one line and a non-zero exit status; `--debug` shows its traceback."""
    try:
        _run(debug="--debug" in sys.argv[1:])
    except KeyboardInterrupt:  # another Ctrl-C, while the first one is answered
        os._exit(130)


def _run(debug: bool) -> NoReturn:
    open_missing()
    gc.disable()  # until the subcommand runs: what is imported by then is never garbage
    sys.unraisablehook = _unraisable
    try:
        if launched():
            join_ranks(debug)
        guard()
        warnings.simplefilter("once", UserWarning)
        # Each once: Python forgets which it has shown whenever a library changes its filters.
        once = functools.cache(notice)
        warnings.showwarning = lambda message, *_, **__: once(str(message))
        if "_ZOO_COMPLETE" in os.environ:
            from click.shell_completion import add_completion_class

            from zoo.cli.source_options import Bash

            add_completion_class(Bash, "bash")
        status = _call([a for a in sys.argv[1:] if a != "--debug"], debug)
        sys.stdout.flush()
        if launched():
            from zoo import rank_watch

            rank_watch.finish()
    except click.ClickException as error:
        _fail(f"error: {_message(error)}{_usage_hint(error)}", error.exit_code)
    except ZooError as error:
        if debug:
            raise
        _fail(f"error: {error}", 1)
    except (KeyboardInterrupt, click.Abort):
        _fail(None, 130)
    except BrokenPipeError:
        # The reader of a pipe has gone; closing stderr keeps Python from saying so at exit.
        sys.stderr.close()
        _fail(None, 141)
    except Exception as error:
        if (reason := unwritten(error)) is not None:
            _fail(f"error: the output cannot be written ({reason})", 1)
        if debug:
            raise
        _fail(f"error: {_bug_message(error)}", 1)  # a mistake in the zoo's code or a plugin's
    finally:
        gc.enable()  # where no subcommand ran
        leave()
    sys.exit(status if isinstance(status, int) else 0)


def _call(args: list[str], debug: bool) -> Any:
    try:
        return cli.main(args=args, prog_name="zoo", standalone_mode=False, obj=debug)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return 0
    except Exception as error:
        # Python makes another error of a Ctrl-C that comes while a class is made.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise cause from None
        raise


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """An error that Python cannot raise is shown, but for Ctrl-C in a callback: the listener sends it once more."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
