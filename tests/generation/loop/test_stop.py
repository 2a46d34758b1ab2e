"""What ends a text is found wherever its tokens begin, and text is kept back no longer than it must be."""

from hypothesis import example, given
from hypothesis import strategies as st

import zoo
from zoo.generation.loop.text_stream import StopText

PIECES = st.lists(st.text("aEND 你", max_size=4) | st.sampled_from(["END", "aa"]), max_size=8)


def streamed(stop, pieces):
    """What is passed on of the pieces, and whether the text ended with one of them."""
    said = []
    for piece in pieces:
        said.append(stop.add(piece))
        if stop.found:
            return "".join(said), True
    said.append(stop.add("", last=True))
    return "".join(said), stop.found is not None


@given(pieces=PIECES)
@example(pieces=["xEN", "D", "a"])
@example(pieces=["E", "EN", "", "D"])
def test_a_stop_text_is_found_however_the_text_comes(pieces):
    before, found, _ = "".join(pieces).partition("END")
    assert streamed(StopText(["END"]), pieces) == (before, bool(found))


def test_only_what_may_begin_a_stop_text_is_kept_back():
    stop = StopText(["END."])
    assert [stop.add(text) for text in ("so E", "N", "x", " END", "!", "END", ". more")] == [
        *("so ", "", "ENx", " ", "END!", "", "")
    ]
    assert stop.found == "END."


def test_generation_ends_before_a_stop_text():
    loaded = zoo.load("llama")
    prompt = "The capital city of China is"
    whole = zoo.generate(loaded, prompt).text
    answer = zoo.generate(loaded, prompt, stop=["j"])
    assert answer.finish_reason == "stop" and answer.text == whole[: whole.index("j")]
    assert zoo.generate(loaded, prompt, stop=["999"]).text == whole
