"""Perplexity: equal to the cross-entropy of the full forward, each token scored once, however the text is read."""

import dataclasses
import json
import math
from functools import partial

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo import runtime
from zoo.cache import CachePolicy
from zoo.errors import PromptError
from zoo.inspect.perplexity import perplexity, windows
from zoo.tokenizer import load_tokenizer

TEXT = "The capital city of China is Beijing. 中国的首都是北京。 The capital city of France is Paris.\n" * 3
FAMILY = "👩\u200d👩\u200d👧"


@pytest.fixture(scope="session")
def loaded():
    found = {}

    def load(name):
        return found.setdefault(name, zoo.load(name))

    return load


def cross_entropy(model, ids):
    """−ln p of each id but the first, from one full forward: (T − 1,)."""
    logits = model(mx.array([ids]))[0, :-1].astype(mx.float32)  # (T − 1, V)
    return -(logits - mx.logsumexp(logits, axis=-1, keepdims=True))[
        mx.arange(len(ids) - 1), mx.array(ids[1:])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt-oss", "deepseek-v3"])
def test_windows_side_by_side_are_the_cross_entropy_of_each(loaded, name):
    model = loaded(name)
    ids = model.tokenizer.encode(TEXT)
    context = 24
    assert len(ids) > 3 * context  # the last window is a shorter one
    starts = range(0, len(ids) - 1, context)
    expected = sum(cross_entropy(model.model, ids[s : s + context + 1]).sum().item() for s in starts)
    found = perplexity(model, TEXT, context=context, stride=context)
    assert found.nats == pytest.approx(expected, rel=1e-4)
    assert found.tokens == found.read == len(ids) - 1
    assert found.bits_per_byte == pytest.approx(expected / math.log(2) / found.bytes, rel=1e-4)
    assert found.perplexity == pytest.approx(math.exp(expected / (len(ids) - 1)), rel=1e-3)


def test_a_stride_gives_every_token_that_much_context(loaded):
    """Each token's cost is taken from the first window of the text that reaches it."""
    model = loaded("llama")
    ids = model.tokenizer.encode(TEXT)
    context, stride, costs = 20, 7, {}
    for start in range(0, len(ids), stride):
        for index, nats in enumerate(cross_entropy(model.model, ids[start : start + context + 1]).tolist()):
            costs.setdefault(start + index + 1, nats)
        if start + context >= len(ids) - 1:
            break
    found = perplexity(model, TEXT, context=context, stride=stride)
    assert found.nats == pytest.approx(sum(costs.values()), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gemma2", "mixtral", "prefix-lm", "mamba", "gru"])
def test_neither_chunk_nor_batch_changes_the_result(loaded, name, monkeypatch):
    model = loaded(name)
    whole = perplexity(model, TEXT, context=32, stride=12)
    for chunk, batch in ((5, 1), (32, 3), (1000, 2)):
        monkeypatch.setattr(runtime, "prefill_chunk", partial(int, chunk))
        other = perplexity(model, TEXT, context=32, stride=12, batch=batch)
        assert other.nats == pytest.approx(whole.nats, rel=1e-4)
        assert (other.tokens, other.bytes, other.read) == (whole.tokens, whole.bytes, whole.read)


@pytest.mark.parametrize("name", ["mamba", "lstm"])
def test_a_recurrent_model_carries_its_state_through_the_whole_text(loaded, name, monkeypatch):
    monkeypatch.setattr(runtime, "prefill_chunk", lambda: 17)
    model = loaded(name)
    ids = model.tokenizer.encode(TEXT)
    found = perplexity(model, TEXT)
    assert found.nats == pytest.approx(cross_entropy(model.model, ids).sum().item(), rel=1e-4)
    assert found.context is None and found.read == len(ids) - 1


@given(st.integers(1, 5), st.integers(0, 200), st.integers(1, 50), st.data())
def test_every_token_is_predicted_once_from_enough_before_it(first, more, context, data):
    stride, total = data.draw(st.integers(1, context)), first + 1 + more
    scored = []
    for start, end, begin in windows(first, total, context, stride):
        assert end - start <= context
        scored += range(begin, end + 1)
        for target in range(begin, end + 1):
            assert target - start >= min(context - stride, target)
    assert scored == list(range(first, total))


def test_the_model_and_the_text_decide_the_window(loaded):
    assert perplexity(loaded("llama"), TEXT).as_json()["context_tokens"] == 128
    assert perplexity(loaded("llama"), TEXT).stride == 64
    gpt2 = loaded("gpt2")
    with pytest.raises(PromptError, match="`context` 65 is more than the 64 learned positions"):
        perplexity(gpt2, TEXT, context=65)


def test_bytes_are_those_of_the_scored_tokens(loaded):
    model = loaded("llama")
    text = f"The {FAMILY}"
    found = perplexity(model, text)
    first = len(model.tokenizer.decode(model.tokenizer.encode(text)[:1]).encode("utf-8"))
    assert found.bytes == len(text.encode("utf-8")) - first
    ids = model.tokenizer.encode(text)
    assert (
        perplexity(model, text, limit=len(ids) - 3).bytes == found.bytes - 2
    )  # two bytes of the last character
    limited = perplexity(model, TEXT, limit=10)
    ids = model.tokenizer.encode(TEXT)
    assert limited.tokens == 10
    assert limited.nats == pytest.approx(cross_entropy(model.model, ids[:11]).sum().item(), rel=1e-4)


def test_a_start_token_predicts_the_first(loaded, pocket, tmp_path):
    settings = json.loads(pocket["tokenizer.json"])
    start = {"id": "<|endoftext|>", "type_id": 0}
    settings["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": start}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {start["id"]: {"id": start["id"], "ids": [0], "tokens": [start["id"]]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    model = dataclasses.replace(loaded("llama"), tokenizer=load_tokenizer(tmp_path))
    found = perplexity(model, TEXT)
    assert found.tokens == len(model.tokenizer.encode(TEXT)) - 1 == len(model.tokenizer.encode(TEXT, False))
    assert found.bytes == len(TEXT.encode("utf-8"))
    expected = cross_entropy(model.model, model.tokenizer.encode(TEXT)).sum().item()
    assert found.nats == pytest.approx(expected, rel=1e-4)
    assert perplexity(model, "a").tokens == 1


def test_progress_is_told_in_tokens(loaded):
    seen = []
    found = perplexity(loaded("llama"), TEXT, context=32, stride=16, report=lambda *pair: seen.append(pair))
    assert seen == sorted(seen) and seen[-1] == (found.tokens, found.tokens) and len(seen) > 2


@pytest.mark.parametrize(
    ("name", "word"), [("bert", "both sides"), ("llada", "masked tokens"), ("transformer", "translates")]
)
def test_a_model_without_a_next_token_is_refused_with_the_reason(loaded, name, word):
    with pytest.raises(PromptError, match=f"no perplexity: {name} .*{word}"):
        perplexity(loaded(name), TEXT)


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [
        ("", {}, "empty"),
        ("a", {}, "too few tokens"),
        (TEXT, {"stride": 129}, "`stride`"),
        (TEXT, {"stride": 0}, "`stride`"),
        (TEXT, {"context": 0}, "`context`"),
        (TEXT, {"limit": 0}, "`limit`"),
        (TEXT, {"batch": 0}, "`batch`"),
    ],
)
def test_what_cannot_be_is_refused(loaded, text, options, word):
    with pytest.raises(PromptError, match=word):
        perplexity(loaded("llama"), text, **options)


def test_without_a_tokenizer_there_is_no_text(folder):
    with pytest.raises(PromptError, match="has no tokenizer"):
        perplexity(zoo.load(folder(tokenizer=False)), TEXT)


def test_a_prefix_model_is_measured_without_one_and_says_so(loaded):
    model = loaded("prefix-lm")
    ids = model.tokenizer.encode(TEXT)[:100]
    found = perplexity(model, TEXT, limit=99, context=128)
    assert "no prefix" in found.sees
    assert found.nats == pytest.approx(cross_entropy(model.model, ids).sum().item(), rel=1e-4)


def test_a_policy_of_the_cache_has_its_cost(loaded, monkeypatch):
    model = loaded("llama")
    plain = perplexity(model, TEXT).nats
    whole = CachePolicy(max_size=10_000, keep=4)
    assert perplexity(model, TEXT, policy=whole).nats == pytest.approx(plain, rel=1e-5)
    itself = CachePolicy(max_size=1)  # a token sees no other
    assert perplexity(model, TEXT, policy=itself).nats > plain * 1.1
    packed = CachePolicy(key_bits=8, value_bits=8)
    assert perplexity(model, TEXT, policy=packed).nats == pytest.approx(plain, rel=0.02)
    small = CachePolicy(max_size=8, keep=2)
    whole = perplexity(model, TEXT, policy=small).nats
    monkeypatch.setattr(runtime, "prefill_chunk", lambda: 3)
    assert perplexity(model, TEXT, policy=small).nats == pytest.approx(whole, rel=1e-4)
    with pytest.raises(PromptError, match="`kv_bits`: this model keeps no keys"):
        perplexity(loaded("mamba"), TEXT, policy=packed)
