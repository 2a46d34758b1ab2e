"""ByT5: a T5 whose tokens are bytes. Its folder, as transformers writes it, loads and gives the same ids and text."""

import numpy as np
import pytest
import torch
from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration

import zoo

TEXTS = [
    "Hello world",
    "",
    " two  spaces ",
    "你好，世界 — naïve 🙂",
    "an end</s> within, <extra_id_0> and <unk>",
    "a\x00b\n\tc",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("byt5")
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=384,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_decoder_layers=1,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )
    T5ForConditionalGeneration(config).eval().save_pretrained(folder)
    ByT5Tokenizer().save_pretrained(folder)
    return folder


def test_the_ids_and_the_text_are_the_references(folder):
    reference, loaded = ByT5Tokenizer.from_pretrained(folder), zoo.load(folder)
    for text in TEXTS:
        for special in (True, False):
            ids = reference(text, add_special_tokens=special).input_ids
            assert loaded.tokenizer.encode(text, special) == ids, text
            assert loaded.tokenizer.decode(ids, special) == reference.decode(
                ids, skip_special_tokens=special
            ), text
    assert loaded.tokenizer.eos_ids == {1}


def test_any_ids_stream_as_they_decode(folder):
    reference, loaded = ByT5Tokenizer.from_pretrained(folder), zoo.load(folder)
    for seed in range(20):
        ids = np.random.default_rng(seed).integers(0, 384, 60).tolist()
        detokenizer = loaded.tokenizer.detokenizer()
        streamed = "".join([*map(detokenizer.add, ids), detokenizer.finish()])
        assert streamed == loaded.tokenizer.decode(ids)
        known = [id for id in ids if id < 259]
        assert loaded.tokenizer.decode(known) == reference.decode(known, skip_special_tokens=True)


def test_it_translates_to_text(folder):
    assert isinstance(zoo.generate(zoo.load(folder), "Hello", max_tokens=5).text, str)
