"""The shortest way to a text is the engine's."""

from collections import Counter

import mlx.core as mx
import pytest

import zoo
from tests.helpers.parameters import ordinary
from zoo.errors import PromptError
from zoo.generation.simple import choose, generate
from zoo.host.registry import default_registry

PROMPTS = ("The capital city of China is", "中国的首都是", "I am")
DECODERS = [
    name
    for name, architecture in default_registry().architectures.items()
    if architecture.task == "generate"
    and (pocket := architecture.preset("pocket")) is not None
    and pocket.folder is not None
]


@pytest.mark.parametrize("name", ordinary(DECODERS, "llama", "mamba", "gpt-oss"))
def test_each_embedded_decoder_writes_as_by_the_engine(name):
    loaded = zoo.load(name)
    for prompt in PROMPTS:
        expected = zoo.generate(loaded, prompt, temperature=0.0, max_tokens=12).text
        assert "".join(generate(loaded, prompt, max_tokens=12)) == expected


def test_tokens_are_drawn_by_their_probabilities():
    logits = mx.log(mx.array([[0.5, 0.3, 0.2]]))
    found = Counter(choose(logits, 1.0, mx.random.key(seed)) for seed in range(2000))
    assert [round(found[token] / 2000, 1) for token in range(3)] == [0.5, 0.3, 0.2]
    assert {choose(logits, 1e-3, mx.random.key(seed)) for seed in range(20)} == {0}


def test_a_model_of_another_task_is_refused():
    with pytest.raises(PromptError, match="bert has no tokenizer, or does not continue a text"):
        next(generate(zoo.load("bert"), "I am"))
