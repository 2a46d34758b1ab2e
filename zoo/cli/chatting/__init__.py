"""What `zoo chat` opens: questions are read, answered and shown, and commands obeyed."""

from __future__ import annotations

from zoo.cli.chatting.session import converse

__all__ = ["converse"]
