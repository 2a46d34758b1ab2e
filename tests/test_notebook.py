"""What a notebook and a prompt show of the zoo's objects: HTML whose texts are escaped, and a short repr."""

from html.parser import HTMLParser

import pytest

import zoo
from zoo.describe import compare
from zoo.generation import Generated


@pytest.fixture(scope="module")
def loaded():
    return zoo.load("llama")


class Elements(HTMLParser):
    """The elements of some HTML by tag: their attributes, and all texts."""

    def __init__(self, html):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, text):
        self.texts.append(text)

    def tags(self):
        return [tag for tag, _ in self.found]


def test_a_trace_is_its_page_in_a_frame_that_holds_nothing_of_the_cell(loaded):
    html = Elements(zoo.trace(loaded, "The </iframe><b>capital</b>", max_tokens=1)._repr_html_())
    ((tag, attributes),) = html.found
    assert tag == "iframe" and attributes["sandbox"] == "allow-scripts" and not html.texts
    assert attributes["srcdoc"].startswith("<!doctype html>") and "<b>capital" not in attributes["srcdoc"]


def test_an_answer_is_its_text_and_its_thinking_folded():
    answer = Generated([1], "<b>1</b> < 2\n3", None, "stop", thinking="<i>hm</i>")
    html = Elements(answer._repr_html_())
    assert html.tags() == ["details", "pre", "div"] and html.texts == ["<i>hm</i>", "<b>1</b> < 2\n3"]


def test_candidates_are_a_table(loaded):
    answer = zoo.generate(loaded, "The capital city of", beams=2, return_sequences=2, max_tokens=4)
    html = Elements(answer._repr_html_())
    assert html.tags().count("tr") == 3 and html.tags()[0] == "table"
    assert {"text", "score"} <= set(html.texts)


def test_facts_and_comparisons_are_tables(loaded):
    facts = Elements(loaded.facts._repr_html_())
    assert facts.tags().count("tr") == len(loaded.facts.facts) + 1 and "1.05 M" in facts.texts
    rows = compare([loaded.facts, zoo.load("gpt2").facts])
    compared = Elements(rows._repr_html_())
    assert compared.tags().count("tr") == len(rows) + 1 and compared.tags().count("th") == 3
    assert {"norm ≠", "RMSNorm", "LayerNorm"} <= set(compared.texts)
    assert isinstance(rows, list) and compare([]) == []


def test_what_holds_much_is_named_in_a_line(loaded):
    engine = zoo.Engine(loaded, rows=2)
    engine.add("The capital", max_tokens=2)
    assert repr(engine) == "<Engine of llama, 0 texts running of at most 2, 1 waiting>"
    cache = zoo.PromptCache(loaded, 10**9)
    assert repr(cache) == "<PromptCache of llama, 0.0 MB held of at most 1,000.0 MB>"
    assert repr(loaded.tokenizer) == "<Tokenizer (BPE), 2,048 tokens>"
