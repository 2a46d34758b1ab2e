"""The words of the theme in Chinese, those that neither it nor Sphinx translates.

Some go through gettext in the theme's templates, and some stand there as they are: these are replaced in what a template gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

TRANSLATED = {
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "Skip to content": "跳到正文",
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "Copyright &#169; %(copyright)s": "版权所有 &#169; %(copyright)s",
    "Made with ": "由 ",
    '<a href="https://www.sphinx-doc.org/">Sphinx</a> and ': '<a href="https://www.sphinx-doc.org/">Sphinx</a> 和 ',
    '<a href="https://github.com/pradyunsg/furo">Furo</a>': '<a href="https://github.com/pradyunsg/furo">Furo</a> 主题生成',
    "Please activate JavaScript to enable the search functionality.": "请启用 JavaScript 以使用搜索功能。",
}
AS_THEY_ARE = {
    'aria-label="Toggle site navigation sidebar"': 'aria-label="显示或隐藏导航栏"',
    'aria-label="Toggle table of contents sidebar"': 'aria-label="显示或隐藏本页目录"',
    'aria-label="Toggle Light / Dark / Auto color theme"': 'aria-label="切换浅色、深色或自动配色"',
    "<title>Contents</title>": "<title>目录</title>",
    "<title>Menu</title>": "<title>菜单</title>",
    "<title>Expand</title>": "<title>展开</title>",
    "<title>Light mode</title>": "<title>浅色</title>",
    "<title>Dark mode</title>": "<title>深色</title>",
    "<title>Auto light/dark, in light mode</title>": "<title>自动配色，当前为浅色</title>",
    "<title>Auto light/dark, in dark mode</title>": "<title>自动配色，当前为深色</title>",
    'aria-label="Toggle navigation of ': 'aria-label="展开或收起：',
}
FOUND = re.compile("|".join(map(re.escape, sorted(AS_THEY_ARE, key=len, reverse=True))))


def gettext(before: Callable[[str], str]) -> Callable[[str], str]:
    """A gettext that knows the theme's words, and asks the one `before` for others. Spaces around the words stay."""

    def found(words: str) -> str:
        plain = words.strip()
        for known in (words, plain):
            if known in TRANSLATED:
                return words.replace(known, TRANSLATED[known])
        return before(words)

    return found


def in_chinese(html: str) -> str:
    """What a template of the theme gives, with the words in it that it does not translate."""
    return FOUND.sub(lambda match: AS_THEY_ARE[match[0]], html)


def translate(app: Any) -> None:
    """Give the templates of a Chinese build the words."""
    if app.builder.format == "html" and app.config.zoo_language == "zh":
        translator = app.translator
        app.builder.templates.environment.install_gettext_callables(
            gettext(translator.gettext), translator.ngettext
        )


def add_filter(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the page's template the function that replaces words."""
    context["zoo_words"] = in_chinese if app.config.zoo_language == "zh" else str


def setup(app: Any) -> None:
    """Add both ways."""
    app.connect("builder-inited", translate)
    app.connect("html-page-context", add_filter)
