"""The table of three kinds of Transformer: which architecture is of which, told from the recipes."""

from figures.kinds import by_kind, causality

NAMED = {
    "encoder-only": {"bert"},
    "decoder-only": {"gpt2", "llama", "mixtral", "deepseek-v3"},
    "encoder-decoder": {"transformer", "t5", "marian"},
    "prefix": {"prefix-lm"},
    "masked diffusion": {"llada"},
    "recurrent": {"lstm", "gru", "mamba"},
}


def test_each_architecture_is_of_one_kind():
    found = by_kind()
    assert set(found) == set(NAMED)
    every = [name for names in found.values() for name in names]
    assert len(every) == len(set(every))
    for kind, names in NAMED.items():
        assert names <= set(found[kind]), kind


def test_what_a_token_sees_is_told_from_the_recipe():
    assert causality("bert", "encoder") == causality("transformer", "encoder") == "full"
    assert causality("llama", "decoder") == causality("transformer", "decoder") == "causal"
