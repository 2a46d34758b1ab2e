"""For every kind of tokenizer a streamed text is the decoded text, whatever it is. ZOO_FUZZ=1000 tries so many each."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.tokenizer_kinds import KINDS, tokenizer_of
from zoo.errors import TokenizerError

COUNT = int(os.environ.get("ZOO_FUZZ", 25))
# Characters that decoders treat by themselves, among all others.
SPECIAL = st.sampled_from(
    [
        "▁",
        " ",
        "  ",
        "\n",
        "</w>",
        "##",
        "<0x0A>",
        "<s>",
        "</s>",
        "é",
        "e\u0301",
        "你好",
        "👩‍👩‍👧",
        "\ufffd",
        " .",
        "n't",
        "\x00",
    ]
)
TEXTS = st.lists(st.text(max_size=6) | SPECIAL, max_size=6).map("".join)
IDS = st.lists(st.integers(0, 10**6), max_size=12)


def streamed(tokenizer, ids, skip):
    stream = tokenizer.detokenizer(skip)
    return "".join([*map(stream.add, ids), stream.finish()])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=COUNT)
@given(text=TEXTS, skip=st.booleans(), around=st.booleans())
def test_an_encoded_text_streams_as_it_is_decoded(kind, text, skip, around):
    tokenizer = tokenizer_of(kind)
    try:
        ids = tokenizer.encode(text, special_tokens=around)
    except TokenizerError:  # a vocabulary without a token for what it does not know
        return
    assert streamed(tokenizer, ids, skip) == tokenizer.decode(ids, skip)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=COUNT)
@given(ids=IDS, skip=st.booleans())
def test_any_ids_stream_as_they_are_decoded(kind, ids, skip):
    tokenizer = tokenizer_of(kind)
    ids = [id % (tokenizer.vocab_size + 2) for id in ids]
    assert streamed(tokenizer, ids, skip) == tokenizer.decode(ids, skip)


# Those whose decoders do more than put the bytes of tokens one after the other.
OTHERS = (
    *("fallback, metaspace", "word ends", "word pieces", "word pieces, raw", "no decoder"),
    *("stripped right", "not to be streamed", "replaced when joined", "a plugin's"),
    *("files of GPT-1", "files of BERT", "files of Marian", "files of M2M-100"),
)
JOINED = [kind for kind in KINDS if kind not in OTHERS]


@pytest.mark.parametrize("kind", OTHERS)
def test_other_texts_are_not_said_to_be_the_bytes_of_tokens(kind):
    assert tokenizer_of(kind).text_bytes() is None


@pytest.mark.parametrize("kind", JOINED)
@settings(max_examples=COUNT)
@given(ids=IDS)
def test_the_bytes_of_tokens_joined_are_the_text(kind, ids):
    tokenizer = tokenizer_of(kind)
    found = tokenizer.text_bytes()
    assert len(found.tokens) == tokenizer.vocab_size
    ids = [id % tokenizer.vocab_size for id in ids]
    ids = [id for id in ids if found.tokens[id] is not None]
    while ids and ids[0] in found.altered_first:
        ids.pop(0)
    joined = b"".join(found.tokens[id] for id in ids)
    try:
        text = joined.decode("utf-8")
    except UnicodeDecodeError:
        return
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", JOINED)
def test_what_adds_less_at_first_and_what_adds_nothing_is_known(kind):
    tokenizer = tokenizer_of(kind)
    found = tokenizer.text_bytes()
    for id, token in enumerate(found.tokens):
        alone = tokenizer.decode([id])
        if token is None:
            assert alone == "" or tokenizer.token(id) in ("<unk>", "[UNK]")
        elif alone.encode("utf-8") != token:
            assert id in found.altered_first or "\ufffd" in alone, (id, token, alone)
