"""Parsing of chat answers into text, thinking and tool calls."""

from __future__ import annotations

from zoo.generation.chat.parsing.formats import AnswerFormat, answer_format
from zoo.generation.chat.parsing.parser import Parsed, Parser

__all__ = ["AnswerFormat", "Parsed", "Parser", "answer_format"]
