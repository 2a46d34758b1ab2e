"""How a chat template writes calls of tools: the texts around names and arguments, found in calls of known texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.generation.chat.answer_grammar import KEY, NAME, AnswerSyntax
from zoo.generation.chat.values import JSON
from zoo.generation.prefix_cache.tree import common_prefix

# What the sample calls are made of. No part of them is in another, and JSON escapes some of the string.
NEXT_KEY, STRING, NUMBER = "zookeyb", 'zoo "text"', 70117
IDS = ("zoocall01", "functions.zootool:41")  # Mistral's have nine letters and digits, Kimi's name the tool
ID_PATTERNS = {IDS[0]: "/[A-Za-z0-9]{9}/", IDS[1].partition(NAME)[2]: '":" /[0-9]{1,2}/'}
"""What may stand in place of an id, by what is left of it where the name is taken out."""


@frozen()
class Around(Frozen):
    """The texts around the arguments of a call. An id, and a key of several, stand in them as those of the samples.

    `opening` begins the arguments, `ending` ends the last call of an answer, `following` stands between the arguments of a
    call and the name of the next one; None where an answer has one call. For arguments that are written one by one:
    `middle` stands between a key and its value, `separator` between this value and the next key, `close` is the part of
    it that ends the value; `is_json` says whether strings have quotes.
    """

    opening: str
    ending: str
    following: str | None
    middle: str = ""
    separator: str = ""
    is_json: bool = True

    @property
    def close(self) -> str:
        """What ends a string without quotes: the first tag of all that may follow it."""
        shared = self.ending[: common_prefix(self.separator, self.ending)]
        return "" if self.is_json else shared[: shared.find(">") + 1] or shared


class CallSyntax:
    """How the template of an answer writes calls.

    `before` stands before the first name. `whole` has what is around arguments in JSON; where it is None, arguments are
    written one by one: `string` has what is around strings, `other` around other values, `empty` around no arguments.
    ValueError or TokenizerError where this cannot be found out.
    """

    def __init__(self, answer: AnswerSyntax) -> None:
        self.answer = answer
        self.id = next((id for id in IDS if NAME in self._sample([{}], id)), "")
        if not self.id:
            raise ValueError("the template leaves out their names")
        one = {KEY: STRING}
        sample = self._sample([one])
        self.before, _, rest = sample.partition(NAME)
        self.whole = self._in_json(one, rest)
        if self.whole is None:
            self.string, self.other = self._one_by_one(STRING), self._one_by_one(NUMBER)
            self.empty = self._around({}, "", self._sample([{}]).partition(NAME)[2])
        if self.parsed(sample) != [one]:
            raise ValueError(f"the parser does not read {sample.strip()!r:.120}")

    def parsed(self, written: str, schema: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The arguments of the calls that the format's parser reads; `schema` is that of the key."""
        parameters = {"type": "object", "properties": {KEY: schema or {"type": "string"}}}
        tools = [{"type": "function", "function": {"name": NAME, "parameters": parameters}}]
        parser = self.answer.format.parser("", tools)
        parts = [] if parser is None else [parser.add(written), parser.finish()]
        return [call.arguments for part in parts for call in part.calls]

    def reads_json(self, value: object) -> bool:
        """Whether the parser reads a list or an object that is written as JSON among arguments one by one."""
        way, kind = self.other, "array" if isinstance(value, list) else "object"
        inner = f"{way.opening}{KEY}{way.middle}{json.dumps(value)}{way.ending}"
        return self.parsed(f"{self.before}{NAME}{inner}", {"type": kind}) == [{KEY: value}]

    def _sample(self, arguments: Sequence[Mapping[str, Any]], id: str = "") -> str:
        """The answer that the template renders for calls with these arguments."""
        id = id or self.id
        calls = [
            {"id": id[:-1] + str(n), "type": "function", "function": {"name": NAME, "arguments": values}}
            for n, values in enumerate(arguments, 1)
        ]
        text = self.answer.written({"role": "assistant", "content": "", "tool_calls": calls})
        head, name, rest = text.removesuffix(self.answer.text_end).partition(NAME)
        *others, last = rest.split(NAME)
        rest = NAME.join([*others, self.answer.until_end(last)])
        return re.sub(re.escape(id[:-1]) + r"\d", id, self.answer.after_thinking(head) + name + rest)

    def _around(self, arguments: Mapping[str, Any], opening: str, ending: str, **more: Any) -> Around:
        """The texts around these arguments, with what stands between two calls that have them."""
        first = self._sample([arguments])
        start = first.removesuffix(ending)
        end = first.removeprefix(self.before)
        try:
            two = self._sample([arguments, arguments])
        except TokenizerError:  # the template refuses two calls
            two = ""
        between = two[len(start) : len(two) - len(end)]
        found = (
            two == start + between + end and NAME not in between and self.answer.until_end(between) == between
        )
        return Around(opening, ending, between if found else None, **more)

    def _in_json(self, arguments: Mapping[str, Any], rest: str) -> Around | None:
        """The texts around arguments in JSON; None where these are not in the text after the name."""
        for found in re.finditer(r"\{", rest):
            try:
                value, end = JSON.raw_decode(rest, found.start())
            except ValueError:
                continue
            if value == arguments:
                return self._around(arguments, rest[: found.start()], rest[end:])
        return None

    def _one_by_one(self, value: object) -> Around:
        """The texts around arguments like this value; ValueError where they do not stand one after the other."""
        rest = self._sample([{KEY: value, NEXT_KEY: value}]).partition(NAME)[2]
        for is_json, written in ((True, json.dumps(value)), (False, str(value))):
            first, *others = rest.split(written)
            opening, key, middle = first.partition(KEY)
            if len(others) == 2 and key and NEXT_KEY in others[0]:
                separator, ending = others[0].partition(NEXT_KEY)[0], others[1].replace(NEXT_KEY, KEY)
                return self._around(
                    {KEY: value}, opening, ending, middle=middle, separator=separator, is_json=is_json
                )
        raise ValueError("their arguments are neither JSON nor values one by one")
