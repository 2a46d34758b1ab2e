"""Greedy text under a generation_config.json, against transformers, on folders that transformers writes."""

import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

import zoo

from .support import reference

VOCAB, END = 40, 7
PROMPT = [5, 9, 5, 9, 11, 3]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A small random model, its folder, and its greedy text without any settings."""
    sizes = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    ends = dict(eos_token_id=None, bos_token_id=None, max_position_embeddings=64)
    # This seed's greedy text has many different tokens, and runs that it repeats.
    model = reference(LlamaForCausalLM, LlamaConfig(**sizes, num_attention_heads=4, **ends), seed=1)
    folder = tmp_path_factory.mktemp("llama")
    model.save_pretrained(folder)
    return model, folder


def texts(llama, values, most=24):
    """The new tokens of transformers and of the zoo under these settings."""
    model, folder = llama
    config = GenerationConfig(**{"max_new_tokens": most, "eos_token_id": END, "pad_token_id": 0} | values)
    with torch.no_grad():
        prompt = torch.tensor([PROMPT])
        expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    config.save_pretrained(folder)
    return expected[0, len(PROMPT) :].tolist(), zoo.generate(zoo.load(folder), PROMPT).tokens


def free(llama):
    """What comes where nothing is asked for."""
    return texts(llama, {"eos_token_id": None})[0]


def asked(plain):
    """Settings, each of which changes this text."""
    end, often = plain[4], max(plain, key=plain.count)
    return {
        "repetition_penalty": {"repetition_penalty": 1.7},
        "suppress_tokens": {"suppress_tokens": [often, plain[1]]},
        "begin_suppress_tokens": {"begin_suppress_tokens": [plain[0]]},
        "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
        "bad_words_ids": {"bad_words_ids": [[plain[2]], plain[5:7]]},
        "eos_token_id": {"eos_token_id": end},
        "min_new_tokens": {"eos_token_id": end, "min_new_tokens": 15},
        "min_length": {"eos_token_id": end, "min_length": 18},
        "forced_eos_token_id": {"forced_eos_token_id": END},
        "exponential_decay_length_penalty": {"exponential_decay_length_penalty": (4, 1.3)},
        "guidance_scale": {"guidance_scale": 4.0},
        "max_length": {"max_new_tokens": None, "max_length": 13},
        "all": {
            **{"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "suppress_tokens": [often]},
            **{"min_new_tokens": 12, "eos_token_id": [end, END], "bad_words_ids": [[plain[3], plain[4]]]},
        },
    }


def test_each_setting_does_what_transformers_does(llama):
    plain = free(llama)
    assert len(plain) == 24
    for name, values in asked(plain).items():
        expected, found = texts(llama, values)
        assert found == expected, name
        assert found != plain, f"{name} changes nothing here"
