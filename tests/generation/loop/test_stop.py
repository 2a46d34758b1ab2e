"""What ends a text is found wherever its tokens begin, and text is kept back no longer than it must be."""

from types import SimpleNamespace

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

import zoo
from zoo.errors import PromptError, ZooError
from zoo.generation.loop.text_stream import MOST_HELD, StopText, expanded_length

EXPRESSIONS = [
    r"END\d",
    r"ab|b+c",
    r"\n\n+|a{3}",
    r"(?<=a)b",
    r"^a|\bba\b",
    r"(?m)^c",
    r"c$",
    r"a.*c",
    r"(?s)a.*\nb",
    r"b(?!a)",
    r"(?i)B[A-C]{2}",
    r"\p{L}é",
]
PIECES = st.lists(
    st.text("abcE ND1\né", max_size=4) | st.sampled_from(["END", "END1", "\n\n", "aaa"]), max_size=8
)


def streamed(stop, pieces):
    """What is passed on of the pieces, and whether the text ended with one of them."""
    said = []
    for piece in pieces:
        said.append(stop.add(piece))
        if stop.found:
            return "".join(said), True
    said.append(stop.add("", last=True))
    return "".join(said), stop.found is not None


def ended(expression, text):
    """The text before the match that is the first to be complete."""
    for end in range(len(text) + 1):
        match = regex.search(expression, text[:end])
        if match is not None:
            return text[: match.start()], True
    return text, False


@pytest.mark.parametrize("expression", EXPRESSIONS)
@given(pieces=PIECES)
@example(pieces=["xEN", "D", "1y"])
@example(pieces=["b", "bb", "", "c"])
@example(pieces=["ba", " "])
def test_a_match_is_found_however_the_text_comes(expression, pieces):
    assert streamed(StopText([], expression), pieces) == ended(expression, "".join(pieces))


@given(pieces=PIECES)
def test_a_text_and_an_expression_end_at_whichever_is_there_first(pieces):
    said, found = streamed(StopText(["END"], r"b+c"), [letter for piece in pieces for letter in piece])
    assert (said, found) == ended(r"END|b+c", "".join(pieces))


def test_only_what_may_begin_a_match_is_kept_back():
    stop = StopText([], r"END\d")
    assert [stop.add(text) for text in ("so E", "N", "x", " END", "!", "END", "7 more")] == [
        *("so ", "", "ENx", " ", "END!", "", "")
    ]
    assert stop.found


def test_what_is_kept_back_has_a_bound():
    stop = StopText([], "(?s)a.*b")
    said = stop.add("a" + "x" * (MOST_HELD - 1))
    assert said == "" and stop.add("yz") == "ax"
    assert stop.add("b") and not stop.found  # its beginning was said long ago


@pytest.mark.parametrize(
    ("expression", "length"),
    [
        *(
            ("", 0),
            ("a{5}", 5),
            (r"\d{4}-\d{2}", 7),
            ("(ab){3}x", 10),
            ("(a(b{2}){3}){4}", 44),
            ("[a{9}]{2,3}", 3),
        ),
        *((r"\({3}", 3), ("a{,7}", 7), ("{2}", 0), ("x{a}", 4), ("a{3", 3), ("((", 0)),
    ],
)
def test_the_length_of_an_expression_with_its_counts_written_out(expression, length):
    assert expanded_length(expression) == length


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("(a", r"missing \)"),
        ("a*", "matches an empty text"),
        ("", "matches an empty text"),
        ("[", "unterminated"),
        ("(" * 1500 + ")" * 1500, "recursion"),
        ("(a{300}){300}", "counts repeat more than 65536"),
        ("a" * 5000, "characters, more than 4096"),
    ],
)
def test_an_expression_that_cannot_be_is_named(expression, words):
    with pytest.raises(PromptError, match=f"^`stop_regex`: .*{words}"):
        StopText([], expression)


def test_an_expression_that_takes_too_long_is_an_error(monkeypatch):
    monkeypatch.setattr("zoo.generation.loop.text_stream.SECONDS", 0.05)
    with pytest.raises(ZooError, match=r"^`stop_regex`: looking for it takes more than 0.05 s"):
        StopText([], r"(a|aa)+\d\1").add("a" * 50)


def test_the_time_for_an_expression_is_that_of_the_whole_text(monkeypatch):
    now = 0.0

    def slower():
        nonlocal now
        now += 0.1  # each search takes so long
        return now

    monkeypatch.setattr("zoo.generation.loop.text_stream.time", SimpleNamespace(thread_time=slower))
    stop = StopText([], "x")
    with pytest.raises(ZooError, match="takes more than 2 s"):
        for _ in range(40):
            stop.add("a")


def test_generation_ends_before_a_match():
    loaded = zoo.load("llama")
    prompt = "The capital city of China is"
    whole = zoo.generate(loaded, prompt).text
    answer = zoo.generate(loaded, prompt, stop_regex="j.*g")
    assert answer.finish_reason == "stop" and answer.text == whole[: whole.index("j")]
    assert zoo.generate(loaded, prompt, stop_regex="[0-9]{9}").text == whole
    with pytest.raises(PromptError, match="`stop_regex`: "):
        zoo.stream(loaded, prompt, stop_regex="(")
