"""A generated English page in Chinese: sentences by `docs/zh/PAGE.toml`, those without an entry in English, code as it is."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace

from building.build_cache import DOCS
from building.command_help import CommandHelp

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([\w/.-]+\.md)")
HEADS = {"| Field | Type | Default |": "| 字段 | 类型 | 默认值 |"}
BOUNDS = re.compile(
    r"(.*?)( \[[^\[\]]*\])?"
)  # a help text, and "[required]" or "[default: 1; x>=0]" after it
ITSELF = ("In the zoo itself: ", "本项目自己的：")


def translations(page: str) -> dict[str, str]:
    """The Chinese of a page's generated sentences by their English, each on one line."""
    return tomllib.loads((DOCS / "zh" / f"{page}.toml").read_text(encoding="utf-8"))


def translated(page: str) -> str:
    """The sections of `docs/PAGE.md` in Chinese."""
    table = translations(page)
    return "\n\n".join(_in_chinese(page, one, table) for one in _parts(page))


def help_in(language: str, found: CommandHelp) -> CommandHelp:
    """What `--help` says of a command, in this language, by `reference/cli.toml`."""
    table = translations("reference/cli") if language == "zh" else {}

    def told(text: str) -> str:
        words, bounds = BOUNDS.fullmatch(text).groups("")  # type: ignore[union-attr]
        chinese = table.get(words)
        return (
            f"{chinese}{bounds.replace('required', '必需').replace('default: ', '默认：')}"
            if chinese
            else text
        )

    sections = [(told(title), [(name, told(text)) for name, text in rows]) for title, rows in found.sections]
    return replace(found, text=[told(text) for text in found.text], sections=sections)


def _parts(page: str) -> list[str]:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    text = text[text.index("\n## ") + 1 :]
    found, at = [], 0
    for match in [*FENCED.finditer(text), None]:
        before = text[at : match.start() if match else len(text)]
        found += [one.strip("\n") for one in before.split("\n\n") if one.strip()]
        if match:
            found.append(match[0])
            at = match.end()
    return found


def _in_chinese(page: str, part: str, table: dict[str, str]) -> str:
    if FENCED.fullmatch(part):
        return part
    head, separator, rest = part.partition("\n")
    if head in HEADS:
        return f"{HEADS[head]}{separator}{rest}"
    known = table.get(" ".join(part.split()))
    if known is None:
        known = part.replace(*ITSELF, 1) if part.startswith(ITSELF[0]) else part
    return LINK.sub(_from(page), known)


def _from(page: str) -> Callable[[re.Match[str]], str]:
    """A function for links of the English page: where the Chinese site lacks the page, they lead to the English one."""
    folder = (DOCS / "zh" / page).parent

    def lead(match: re.Match[str]) -> str:
        english = (DOCS / page).parent / match[1]
        path = os.path.normpath(folder / match[1])
        return match[0] if os.path.isfile(path) else f"]({os.path.relpath(english, folder)}"

    return lead
