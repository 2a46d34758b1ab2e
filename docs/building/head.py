"""What a page's head says to search engines and to programs that preview links: its description, and a card."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes

from building.language_switch import OTHER, TAGS, other_page

CARD = "_static/card.png"  # of the English build; building/card.py draws it
CARD_SIZE = (1200, 630)  # pixels, which previews of links have
CARD_ALT = {
    "en": "zoo, a plugin-based model zoo for Apple silicon: a small LLaMA names China's capital, and where its heads look",
    "zh": "zoo，面向 Apple 芯片的插件式模型库：一个小型 LLaMA 说出中国的首都，以及它的各个头看向哪里",
}
LENGTH = {"en": 160, "zh": 80}  # characters of a description; Chinese ones are twice as wide
LOCALES = {"en": "en_US", "zh": "zh_CN"}
LEAST = 12  # characters that a paragraph must have to describe a page
TAG = re.compile(r"<[^>]+>")
WITHIN = (nodes.section, nodes.document, nodes.container)


def description(doctree: nodes.document, language: str) -> str:
    """The first paragraph of a page that has words and no formula, cut to a description's length; "" for none."""
    for paragraph in doctree.findall(nodes.paragraph):
        formulas = any(True for _ in paragraph.findall(nodes.math))
        words = " ".join("".join(map(_plain, paragraph.findall(nodes.Text))).split())
        if isinstance(paragraph.parent, WITHIN) and not formulas and len(words) >= LEAST:
            return shortened(words, LENGTH[language])
    return ""


def _plain(text: nodes.Text) -> str:
    """A text; of HTML that a role wrote, what is between its tags."""
    return TAG.sub("", text) if isinstance(text.parent, nodes.raw) else str(text)


def shortened(words: str, length: int) -> str:
    """As many whole sentences as fit, else as much as fits, with an ellipsis."""
    if len(words) <= length:
        return words
    ends = [match.end() for match in re.finditer(r"[.!?](?= )|[。！？]", words[: length + 1])]
    if ends and ends[-1] > length // 3:
        return words[: ends[-1]].strip()
    cut = words[: length - 1]
    return (cut.rpartition(" ")[0] if " " in cut[length // 2 :] else cut).rstrip(" ,;:，；：、") + "…"


def tags(
    title: str, about: str, language: str, *, address: str | None, card: str, other: str | None = None
) -> list[str]:
    """The tags of a page: `address` is its own, `other` that of its page in the other language, where they are known."""
    named = [("name", "description", about)] if about else []
    named += [
        ("property", "og:type", "website"),
        ("property", "og:site_name", "zoo"),
        ("property", "og:title", title),
        *([("property", "og:description", about)] if about else []),
        ("property", "og:locale", LOCALES[language]),
        *([("property", "og:url", address)] if address else []),
        ("property", "og:image", card),
        ("property", "og:image:type", "image/png"),
        ("property", "og:image:width", str(CARD_SIZE[0])),
        ("property", "og:image:height", str(CARD_SIZE[1])),
        ("property", "og:image:alt", CARD_ALT[language]),
        ("name", "twitter:card", "summary_large_image"),
    ]
    found = [f'<meta {kind}="{name}" content="{escape(content)}">' for kind, name, content in named]
    if address and other:
        for one, target in ((language, address), (OTHER[language], other)):
            found.append(f'<link rel="alternate" hreflang="{TAGS[one]}" href="{escape(target)}">')
    return found


def add_tags(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the page's template its tags."""
    context["zoo_head"] = []
    if app.builder.format != "html" or doctree is None:
        return
    language, base = app.config.zoo_language, app.config.html_baseurl
    root = base.removesuffix("zh/") if language == "zh" else base
    target, same = other_page(app, page)
    title = TAG.sub("", str(context.get("title", "")))
    up = "../" * (page.count("/") + (language == "zh"))
    context["zoo_head"] = tags(
        title,
        description(doctree, language),
        language,
        address=context.get("pageurl"),
        card=f"{root or up}{CARD}",
        other=f"{root}{target}.html" if root and same else None,
    )


def setup(app: Any) -> None:
    """Add the tags."""
    app.connect("html-page-context", add_tags)
