"""Notebooks of the tour's pages: their shape, what became of the pages' parts, and that their cells run and print what they hold."""

import base64
import json
import re

import pytest
from building.build_cache import DOCS
from building.notebook import notebook_of, runs_code, write
from building.outputs import same
from building.page_code import run

PAGES = [
    *sorted((DOCS / "tour").glob("*.md")),
    *sorted((DOCS / "zh" / "tour").glob("*.md")),
]
SITE = "https://example.org/zoo/"


def name(path):
    return path.relative_to(DOCS).as_posix()


def source(cell):
    return "".join(cell["source"])


def python(notebook):
    """The cells of Python: those of commands begin with an exclamation mark."""
    cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    return [cell for cell in cells if not source(cell).startswith("!")]


def assert_runs(notebook):
    names = {"__name__": "__main__"}
    for cell in python(notebook):
        printed = "".join(text for output in cell["outputs"] for text in output["text"])
        found = run(source(cell), names)
        assert not printed or same(printed.rstrip(), found.rstrip()), source(cell)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_notebook_has_the_shape_of_its_format(path):
    notebook = json.loads(json.dumps(notebook_of(path, SITE)))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells) > 0
    for cell in cells:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell["id"])
        common = {"id", "cell_type", "metadata", "source"}
        own = {"code": {"outputs", "execution_count"}, "markdown": set()}[cell["cell_type"]]
        assert common | own <= set(cell) <= common | own | {"attachments"}
        assert all(line.endswith("\n") for line in cell["source"][:-1]) and source(cell).strip()
        for output in cell.get("outputs", []):
            assert output["output_type"] == "stream" and output["name"] == "stdout" and output["text"]
    assert cells[0]["cell_type"] == "markdown" and source(cells[0]).startswith("# ")


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_only_what_a_notebook_shows_is_left_of_a_page(path):
    for site in ("", SITE):
        cells = notebook_of(path, site)["cells"]
        prose = "\n".join(source(cell) for cell in cells if cell["cell_type"] == "markdown")
        assert "<!--" not in prose and "```{" not in prose and "shapes." not in prose
        assert prose.count("<details") == prose.count("</details>")
        targets = re.findall(
            r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", prose, flags=re.DOTALL | re.MULTILINE)
        )
        assert all(re.match("https?://|attachment:", target) for target in targets)
        assert any(target.startswith(SITE) for target in targets) == bool(site)
        attached = {file for cell in cells for file in cell.get("attachments", {})}
        assert {
            target.partition(":")[2] for target in targets if target.startswith("attachment:")
        } == attached
    for cell in cells:
        for data in cell.get("attachments", {}).values():
            assert base64.b64decode(data["image/svg+xml"]).startswith(b"<svg")
        if cell["cell_type"] == "code":
            assert not re.search(
                r"^(?:from|import) (?:figures|building|formulas)\b", source(cell), re.MULTILINE
            )


def test_a_large_picture_is_told_in_words():
    cells = notebook_of(DOCS / "tour" / "index.md")["cells"]
    text = "".join(map(source, cells))
    assert "*The prompt goes down through tokens and embeddings" in text and "attachment:" not in text


def test_links_lead_to_the_page_in_its_language():
    for path, folder in ((DOCS / "tour" / "tokens.md", ""), (DOCS / "zh" / "tour" / "tokens.md", "zh/")):
        last = source(notebook_of(path, SITE)["cells"][-1])
        assert f"]({SITE}{folder}tour/embeddings.html)" in last


def test_the_code_of_a_page_is_in_its_notebook_in_order():
    cells = notebook_of(DOCS / "tour" / "attention.md")["cells"]
    code = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    text = (DOCS / "tour" / "attention.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- run python -->\n```python\n(.*?)\n```", text, re.DOTALL)
    assert [one for one in code if one in shown] == shown and len(shown) > 3
    assert (
        '!zoo trace llama "The capital city of China is" --value layers.1.mixer.pattern.2 --max-tokens 1'
        in code
    )
    assert any(
        'zoo.trace(zoo.load("llama"), "The capital city of China is", max_tokens=1)' in one for one in code
    )


def test_the_cells_of_a_notebook_print_what_the_page_shows():
    assert_runs(notebook_of(DOCS / "tour" / "one-layer.md"))


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=name)
def test_the_cells_of_each_notebook_print_what_the_page_shows(path):
    assert_runs(notebook_of(path))


def test_notebooks_are_written_beside_the_pages_that_run_code(tmp_path):
    from types import SimpleNamespace as Names

    pages = {"tour/tokens", "tour/questions", "guides/run"}
    app = Names(
        builder=Names(format="html"),
        config=Names(html_baseurl=SITE, zoo_language="en"),
        outdir=tmp_path,
        env=Names(found_docs=pages, doc2path=lambda page: DOCS / f"{page}.md"),
    )
    write(app, None)
    assert [path.name for path in (tmp_path / "notebooks").iterdir()] == ["tokens.ipynb"]
    assert runs_code(json.loads((tmp_path / "notebooks" / "tokens.ipynb").read_text(encoding="utf-8")))
