"""No figure of the pages is typed by hand: each is computed when they are built, on record, or in a citation."""

from pathlib import Path

import pytest

from tests.helpers.typed_figures import typed_figures

ROOT = Path(__file__).parents[2]
# Made from the code and from records by tools or the build, and held to be current by other tests; and the history.
MADE = (
    "docs/architectures/",
    "docs/zh/architectures/",
    "docs/plugins/examples/",
    "docs/_build/",
)
MADE_PAGES = {f"docs/plugins/{name}.md" for name in ("hooks", "parts", "reference", "catalogue")} | {
    "docs/changelog.md"
}


def pages():
    found = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))
    own = ("docs/architectures/index.md", "docs/zh/architectures/index.md")
    return ["README.md", *(p for p in found if (p in own or not p.startswith(MADE)) and p not in MADE_PAGES)]


@pytest.mark.parametrize("page", pages())
def test_no_figure_is_typed(page):
    found = typed_figures((ROOT / page).read_text(encoding="utf-8"))
    said = "\n".join(f"{page}:{line}: {figure} in: {text}" for line, text, figure in found)
    assert not found, (
        f"let it be computed between markers (docs/building/outputs.py), or say it without a figure:\n{said}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "LLaMA-3-8B has 32 layers.",
        "GPT-2 small: 124M parameters.",
        "模型有 32 层。",
        "上下文为 4,096 个词元。",
        "a window of ４０９６ tokens",
        "about 2.5 times faster",
        "| heads | 32 |",
        "## The 12 layers",
        "<details>\n<summary>Answer</summary>\n\nThe cache has 64 kB.\n\n</details>",
        "<!-- run python hidden\nx = 1\n-->\n\nThere are 7 of them.\n\n<!-- run console -->\n```console\n$ a\n```\n<!-- end -->",
        ":::{note}\nThere are 7 of them.\n:::",
        "![a curve that falls to 3](pictures/drawn/name.svg)",
        "![a curve](pictures/drawn/name.svg)\\\nWith 16 heads.",
        "[all 16 models](index.md)",
        "in 2000 steps",
        "the 2048 tokens of 2000 rows",
        "- 8 experts, of which 2 are used",
        "32K context, 8-bit, 128k",
        "`ids` 5 `more`",
        "GPT-2 has 2",
        "1. It takes 9 steps.",
        "the scores are divided by 8, as in Vaswani et al., 2017",
    ],
)
def test_a_typed_figure_is_found(text):
    assert typed_figures(text), text


@pytest.mark.parametrize(
    "text",
    [
        "GPT-2, LLaMA-3-8B, Mixtral-8x7B, Qwen3-0.6B, DeepSeek-V3, T5, BERT, gpt-oss-20b, Mamba-2, LLaMA 3.",
        "float32, bfloat16, int8, UTF-8, Python 3.11, MIT, x86-64, Q4_K, M2M-100, 2017 Transformer",
        "<!-- fact: llama:8b heads -->32<!-- end --> heads and <!-- py: 1 + 1 -->2<!-- end --> more",
        "<!-- finding: norm 1 seen -->0.3 nats<!-- end -->",
        "`layers.3.mixer` and ``4 ` 5``",
        "$d_k = 64$ and\n\n$$\n\\frac{1}{2}\n$$\n",
        "<!-- run console -->\n```console\n$ zoo run llama --max-tokens 8\n5\n```\n<!-- end -->",
        "<!-- run python -->\n```python\nprint(2)\n```\n\n```text\n2\n```\n<!-- end -->",
        "<!-- run python markdown\nprint(2)\n-->\n\n2\n\n<!-- end -->",
        "<!-- compare: llama -->\n| ≠ | heads | 32 |\n<!-- end -->",
        "[Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.1, equation (1)",
        "Vaswani 等（2017）第 3.2 节，式 (1)，见 2017 年的论文",
        "Shazeer (2020), arXiv:2002.05202v1, https://example.org/3",
        "1. first\n2. second",
        '<img width="640" alt=""> &#8217;',
        "(B, 1, V) and (B, T)",
        "text\n\n    indented code 4\n    8\n\nmore",
        "<!-- architectures -->\n| 3 |\n<!-- end -->",
        "a 16-bit cache, in two halves",
        "the Transformer of 2017 and its T − 1 targets; see footnote 4",
    ],
)
def test_what_is_computed_cited_or_named_is_none(text):
    assert typed_figures(text) == []


def test_the_line_is_told():
    text = "# A\n\n```python\n2\n```\n\nThere are 7.\n"
    assert typed_figures(text) == [(7, "There are 7.", "7.")]
