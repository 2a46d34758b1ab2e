"""Random tokenizers: each is refused in one line, or streams what it decodes. ZOO_FUZZ=5000 tries so many of them."""

import json
import os
import random
import tracemalloc

import pytest

from tests.helpers.random_tokenizers import Draw
from zoo.errors import TokenizerError, ZooError
from zoo.tokenizer import load_tokenizer
from zoo.tokenizer.guards import hide_panics

COUNT = int(os.environ.get("ZOO_FUZZ", 100))
TEXTS = ["", "a", "the ab b. n't x", "Hello 你好 é \n ab  b", "foo ▁bar ab", " '  a .", "😀 12 3"]
UNKNOWN = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3}, "unk_token": "<unk>"}
EMPTY = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))


def write(folder, description, cleaned=False):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(description))
    (folder / "tokenizer_config.json").write_text(json.dumps({"clean_up_tokenization_spaces": cleaned}))
    return folder


def or_refused(call, *arguments):
    """What a call gives; None where it says in one line what is wrong."""
    try:
        return call(*arguments)
    except ZooError as error:
        assert str(error) and "\n" not in str(error)
        return None


def streamed(tokenizer, ids, skip):
    stream = tokenizer.detokenizer(skip)
    return "".join([*map(stream.add, ids), stream.finish()])


@pytest.mark.slow
def test_each_is_refused_or_streams_what_it_decodes(tmp_path):
    outcomes = {"refused": 0, "same": 0}
    for seed in range(COUNT):
        draw = Draw(seed)
        tokenizer = or_refused(load_tokenizer, write(tmp_path, draw.tokenizer(), draw.flag(0.3)))
        if tokenizer is None:
            outcomes["refused"] += 1
            continue
        for text in TEXTS:
            or_refused(tokenizer.encode, text)
        for _ in range(12):
            ids = [draw.randrange(tokenizer.vocab_size + 2) for _ in range(draw.randrange(9))]
            ids = [id for id in ids for _ in range(draw.randrange(1, 3))] if draw.flag(0.3) else ids
            for skip in (True, False):
                whole = or_refused(tokenizer.decode, ids, skip)
                assert or_refused(streamed, tokenizer, ids, skip) == whole, (seed, ids, skip)
                outcomes["same"] += whole is not None
    assert outcomes["same"] > 10 * COUNT and outcomes["refused"] < COUNT / 3, outcomes


PANICS = {
    "decoder": {"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 3}},
    "pre-tokenizer": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "post-processor": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "B", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    },
}


@pytest.mark.parametrize("part", PANICS)
def test_a_panic_is_one_line_that_names_the_file(tmp_path, part, capfd):
    folder = write(tmp_path, EMPTY | {"version": "1.0", "added_tokens": [], "model": UNKNOWN} | PANICS[part])
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: ") as caught:
        tokenizer = load_tokenizer(folder)
        tokenizer.encode("ab")
        tokenizer.decode([0, 1, 2])
    assert "\n" not in str(caught.value)
    assert "panicked" not in capfd.readouterr().err


BACKTRACKING = {"Regex": "(a|aa)+$!"}


@pytest.mark.parametrize(
    "part",
    [
        {"normalizer": {"type": "Replace", "pattern": BACKTRACKING, "content": "b"}},
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": BACKTRACKING,
                "behavior": "Isolated",
                "invert": False,
            }
        },
    ],
    ids=lambda part: next(iter(part)),
)
def test_an_expression_that_goes_back_too_often_is_one_line(tmp_path, part, capfd):
    folder = write(tmp_path, EMPTY | {"version": "1.0", "added_tokens": [], "model": UNKNOWN} | part)
    tokenizer = load_tokenizer(folder)
    for call in (tokenizer.encode, tokenizer.offsets):
        with pytest.raises(TokenizerError, match=r"tokenizer\.json: its tokenizer cannot encode this text"):
            call("a" * 60)
    assert capfd.readouterr().err == ""


def test_what_others_write_meanwhile_is_not_lost(capfd):
    with hide_panics():
        os.write(2, b"a message")
    assert capfd.readouterr().err == "a message"


def test_a_normalized_special_token_is_skipped_as_the_library_skips_it(tmp_path):
    added = [
        dict(id=4, content="zz", special=True, normalized=True, single_word=False, lstrip=False, rstrip=False)
    ]
    description = EMPTY | {"version": "1.0", "added_tokens": added, "model": UNKNOWN}
    description["normalizer"] = {"type": "Replace", "pattern": {"String": "z"}, "content": "b"}
    tokenizer = load_tokenizer(write(tmp_path, description))
    for skip in (True, False):
        assert streamed(tokenizer, [0, 4, 1], skip) == tokenizer.decode([0, 4, 1], skip)


def test_a_stream_keeps_no_more_however_long_the_text_is(tmp_path):
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    description = EMPTY | {"version": "1.0", "added_tokens": [], "model": UNKNOWN, "decoder": decoder}
    stream = load_tokenizer(write(tmp_path, description)).detokenizer()
    draw = random.Random(1)
    kept = []
    tracemalloc.start()
    for count in (500, 10_000):
        for _ in range(count):
            stream.add(draw.randrange(3))
        kept.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert kept[1] - kept[0] < 10_000, "bytes"
