"""What a chat model writes, taken apart: the text of its answer, its thinking, and its calls of tools."""

from __future__ import annotations

from zoo.generation.chat.parsing.formats import AnswerFormat, format_of
from zoo.generation.chat.parsing.parser import Parsed, Parser

__all__ = ["AnswerFormat", "Parsed", "Parser", "format_of"]
