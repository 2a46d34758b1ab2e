"""The command line: one small file a command, imported only when that command is called."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import Any

import click

from zoo.errors import ZooError

# Each command's home and one-line help, so that neither `zoo --help` nor `zoo run` imports the others.
COMMANDS = {
    "run": ("zoo.cli.run:run", "Run a model: text in, text out."),
    "embed": ("zoo.cli.embed:embed", "Texts to vectors, one a text."),
    "list": ("zoo.cli.list:list_", "The architectures that the zoo has."),
    "show": ("zoo.cli.show:show", "What one architecture is made of."),
    "compare": ("zoo.cli.compare:compare", "Architectures side by side, their differences marked."),
    "plugins": ("zoo.cli.plugins:plugins", "The installed plugins, and how each fared."),
    "train": ("zoo.cli.train:train", "Train a model from nothing on a built-in corpus."),
    "evaluate": ("zoo.cli.evaluate:evaluate", "How many facts of the atlas corpus a model knows."),
    "convert": ("zoo.cli.convert:convert", "A checkpoint to a new folder, quantized or not."),
    "bench": ("zoo.cli.bench:bench", "Timed runs beside a peer's."),
    "cache": ("zoo.cli.cache:cache", "What was downloaded from the hub, and how to remove it."),
    "doctor": ("zoo.cli.doctor:doctor", "This machine: backend, libraries, what would make it faster."),
}


class Commands(click.Group):
    """The subcommands, those of plugins included, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(_plugin_commands())]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            target = COMMANDS[name][0]
        elif name in (given := _plugin_commands()):
            target = given[name].target
        else:
            return None
        package, _, attribute = target.partition(":")
        return getattr(import_module(package), attribute)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f"; did you mean {near[0]}?" if near else "; `zoo --help` lists them"
            raise click.UsageError(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, summary) for name, (_, summary) in COMMANDS.items()]
        rows += [(name, command.summary) for name, command in sorted(_plugin_commands().items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _plugin_commands() -> dict[str, Any]:
    from zoo.registry import registry

    return registry().commands


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mlx-zoo", prog_name="zoo")
def cli(debug: bool) -> None:
    """A model zoo on MLX: every architecture a plugin, one core that runs, trains and compares them."""


def notice(message: Any, *_: Any, **__: Any) -> None:
    """One line to the error stream, never among the output."""
    click.echo(f"zoo: {' '.join(str(message).split())}", err=True)


def main() -> None:
    """The command `zoo`. An error is one line and a non-zero exit status; `--debug` shows its traceback."""
    warnings.simplefilter("once", UserWarning)
    warnings.showwarning = notice
    debug = "--debug" in sys.argv[1:]
    try:
        status = cli.main(
            args=[a for a in sys.argv[1:] if a != "--debug"], prog_name="zoo", standalone_mode=False
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
    sys.exit(status if isinstance(status, int) else 0)
