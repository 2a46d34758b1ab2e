"""The command line: one small file a command, imported only when that command is called."""

from __future__ import annotations

from zoo.cli.program import Commands, cli, command_table, main, notice

__all__ = ["Commands", "cli", "command_table", "main", "notice"]
