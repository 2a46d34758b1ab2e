"""Search in Chinese: a text without spaces is indexed by its pairs of characters, and so is what is searched for."""

from __future__ import annotations

import re
from typing import Any

from sphinx.search import SearchLanguage

RUNS = re.compile(r"[\u3400-\u9fff]+|[^\W\u3400-\u9fff]+")


class Chinese(SearchLanguage):
    """Pairs of Chinese characters, and words of other letters as they are, in small letters."""

    lang = "zh"
    language_name = "Chinese"
    # `\\s` and quotes may not be in it: it is escaped as HTML.
    js_splitter_code = """
var splitQuery = (query) =>
  (query.match(/[\\u3400-\\u9fff]+|[\\p{Letter}\\p{Number}_]+?(?=[\\u3400-\\u9fff]|[^\\p{Letter}\\p{Number}_]|$)/gu) || []).flatMap((run) =>
    /^[\\u3400-\\u9fff]{2,}$/u.test(run) ? Array.from({ length: run.length - 1 }, (_, at) => run.slice(at, at + 2)) : [run]
  );
"""

    def split(self, input: str) -> list[str]:
        found = []
        for run in RUNS.findall(input):
            if "\u3400" <= run[0] <= "\u9fff" and len(run) > 1:
                found += [run[at : at + 2] for at in range(len(run) - 1)]
            else:
                found.append(run)
        return found

    def stem(self, word: str) -> str:
        return word.lower()


def setup(app: Any) -> None:
    """Use it for Chinese in place of Sphinx's own, which needs a dictionary."""
    app.add_search_language(Chinese)
