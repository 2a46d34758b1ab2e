"""The command line: one small file a command, imported only when that command is called."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import progress
from zoo.cli.signals import listen
from zoo.cli.terminal import guard
from zoo.errors import PluginError, ZooError, in_words

if TYPE_CHECKING:
    from zoo.architecture import Command
    from zoo.host.precedence import RecordTable


class Commands(click.Group):
    """The subcommands, the zoo's own and those of plugins, each imported when it is called."""

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
            notice(f"{error}; the zoo's own serves")
            return _imported(own.target)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in command_table() and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f"; did you mean {near[0]}?" if near else "; `zoo --help` lists them"
            raise click.UsageError(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = command_table().listed()
        with formatter.section("Commands"):
            formatter.write_dl([(name, records[name].summary) for name in self.list_commands(ctx)])


def command_table() -> RecordTable[Command]:
    """The subcommands by name, of the zoo and of plugins."""
    from zoo.host.registry import default_registry

    return default_registry().commands


def _imported(target: str) -> click.Command:
    from zoo.architecture import import_target

    found = import_target(target)
    if not isinstance(found, click.Command):
        raise PluginError(f"{target} is {type(found).__name__}, not a click command")
    return found


# color: click is to leave escapes as they are in a pipe; on a terminal `guard` has made them visible.
@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "color": True})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mlx-zoo", prog_name="zoo")
def cli(debug: bool) -> None:
    """A model zoo on MLX: every architecture a plugin, one core that runs, trains and compares them."""


def notice(message: Any, *_: Any, **__: Any) -> None:
    """One line to the error stream, never among the output."""
    line = f"zoo: {' '.join(str(message).split())}"
    if not progress.say(line):
        click.echo(line, err=True, color=True)


def _mistake(error: Exception) -> str:
    """An error that nobody raised on purpose, and the plugin that it comes from."""
    from zoo.host.discovery import blamed
    from zoo.host.registry import default_registry

    plugin = blamed(error, (plugin for plugin in default_registry().plugins if not plugin.first_party))
    return f"{f'plugin {plugin.name}: ' if plugin else ''}{in_words(error)}; `zoo --debug …` shows where"


def main() -> None:
    """The command `zoo`. An error is one line and a non-zero exit status; `--debug` shows its traceback."""
    guard()
    listen()
    warnings.simplefilter("once", UserWarning)
    warnings.showwarning = notice
    debug = "--debug" in sys.argv[1:]
    try:
        status = cli.main(
            args=[a for a in sys.argv[1:] if a != "--debug"],
            prog_name="zoo",
            standalone_mode=False,
            obj=debug,
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        notice(f"error: {error.format_message()}")
        sys.exit(error.exit_code)
    except ZooError as error:
        if debug:
            raise
        notice(f"error: {error}")
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe has gone; closing stderr keeps Python from saying so at exit.
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:  # a mistake in the zoo's code or a plugin's
        if debug:
            raise
        notice(f"error: {_mistake(error)}")
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)
