"""What `zoo chat` opens: questions are read, answered and shown, and commands obeyed."""

from __future__ import annotations

from zoo.cli.repl.loop import converse

__all__ = ["converse"]
