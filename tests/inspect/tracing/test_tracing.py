"""Traces and interventions of the embedded checkpoints."""

import warnings

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.closeness import close
from zoo import runtime
from zoo.blocks.decoder import Decoder
from zoo.errors import PromptError
from zoo.inspect.tracing.probe import Probe, modules_of

PROMPT = "The capital city of China is"


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


@pytest.fixture(scope="module")
def trace(llama):
    return zoo.trace(llama, PROMPT)


def test_traced_run_gives_the_same_text_and_logits(llama, trace):
    plain = zoo.generate(llama, PROMPT, max_tokens=8)
    assert trace.tokens == plain.tokens and trace.text == plain.text
    with runtime.eager():
        hidden = llama.model.backbone(mx.array([trace.prompt]), llama.model.make_cache())
    assert np.array_equal(trace.passes[0].values["head"], llama.model.head(hidden[:, -1:]))


def test_every_module_has_its_own_class_again(llama, trace):
    assert type(llama.model) is Decoder
    assert not any(isinstance(module, Probe) for module in modules_of(llama.model).values())


def test_pattern_weighs_values_to_what_heads_give(trace):
    pattern, values = trace["layers.1.mixer.pattern"], trace["layers.1.mixer.values"]
    shared = np.repeat(values, pattern.shape[0] // values.shape[0], axis=0)
    assert close(pattern @ shared, trace["layers.1.mixer.heads"], atol=1e-5)
    assert close(pattern.sum(axis=-1), 1, atol=1e-5)
    assert not np.triu(pattern, 1).any()  # causal


def test_residual_stream_is_the_sum_of_its_parts(trace):
    before, after = trace["layers.0"], trace["layers.1"]
    assert close(before + trace["layers.1.mixer"] + trace["layers.1.feedforward"], after, atol=1e-4)


def test_lens_of_the_last_layer_is_the_models_prediction(trace):
    last = trace.lens(3)[-1]
    step = len(trace.prompt) - 1
    assert last.tokens[step][0] == trace.tokens[0]
    assert last.probabilities[step][0] == pytest.approx(
        trace.choices()[0].stages[0].probabilities[0], abs=1e-5
    )


def test_choice_tells_each_step_of_sampling(llama):
    trace = zoo.trace(llama, PROMPT, max_tokens=2, temperature=2.0, top_k=5, top_p=0.9, seed=1)
    choice = trace.choices(10)[0]
    assert [stage.name for stage in choice.stages] == ["model", "temperature", "top_k", "top_p"]
    assert choice.stages[2].kept == 5 and choice.stages[3].kept <= 5
    assert sum(choice.stages[2].probabilities) == pytest.approx(1, abs=1e-5)
    own = np.exp(np.array(choice.logits) - choice.logsumexp)
    assert close(own, choice.stages[0].probabilities, atol=1e-5)


def test_head_set_to_zero_changes_what_follows_and_nothing_before(llama, trace):
    with zoo.intervene(llama, {"layers.2.mixer.head.1": 0}):
        changed = zoo.trace(llama, PROMPT)
    assert not changed["layers.2.mixer.head.1"].any()
    length = len(trace.prompt)
    for address in ("layers.1", "layers.2.mixer.queries", "layers.2.mixer.values"):
        assert np.array_equal(changed.passes[0].values[address], trace.passes[0].values[address])
    kept = [changed[f"layers.2.mixer.head.{head}"][:length] for head in (0, 2, 3)]
    assert np.array_equal(kept, [trace[f"layers.2.mixer.head.{head}"][:length] for head in (0, 2, 3)])
    assert not np.array_equal(changed["layers.2"][:6], trace["layers.2"][:6])


def test_patched_residual_stream_carries_the_other_prompts_answer(llama):
    other = zoo.trace(llama, "The capital city of Japan is", max_tokens=1)
    source = other.passes[0].values["layers.3"]
    with zoo.intervene(llama, {"layers.3": source}):
        patched = zoo.trace(llama, PROMPT, max_tokens=1)
    assert patched.tokens == other.tokens


def test_pattern_can_be_replaced(llama):
    def first_only(pattern):
        return mx.zeros_like(pattern) + (mx.arange(pattern.shape[-1]) == 0)

    with zoo.intervene(llama, {"layers.0.mixer.pattern": first_only}):
        trace = zoo.trace(llama, PROMPT, max_tokens=1)
    heads, values = trace["layers.0.mixer.heads"], trace["layers.0.mixer.values"]
    assert close(heads[:, 4], np.repeat(values[:, 0], 2, axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("address", "value", "message"),
    [
        ("layers.2.mixer.hed", 0, "did you mean layers.2.mixer.heads"),
        ("layers.2.mixer.head.9", 0, "there are only 4"),
        ("layers.2.mixer", "zero", "give a number, an array or a function"),
        ("layers.2.mixer", np.zeros(3), "does not fit"),
    ],
)
def test_impossible_intervention_is_named(llama, address, value, message):
    with pytest.raises(PromptError, match=message), zoo.intervene(llama, {address: value}):
        zoo.generate(llama, PROMPT, max_tokens=1)
    assert zoo.generate(llama, PROMPT, max_tokens=4).text == " Beijing."


def test_intervention_that_was_never_reached_is_warned_of(llama):
    with pytest.warns(UserWarning, match="computed no head"), zoo.intervene(llama, {"head": 0}):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with zoo.intervene(llama, {"head": lambda logits: logits}):
            zoo.generate(llama, PROMPT, max_tokens=1)


def test_only_keeps_what_it_names(llama):
    trace = zoo.trace(llama, PROMPT, only="*.pattern", max_tokens=2)
    assert set(trace) == {f"layers.{i}.mixer.pattern" for i in range(4)}
    with pytest.raises(PromptError, match="no value has an address like"):
        zoo.trace(llama, PROMPT, only="nothing.*")


def test_saved_archive_has_every_value(trace, tmp_path):
    trace.save(tmp_path / "trace.npz")
    with np.load(tmp_path / "trace.npz") as found:
        assert set(found) == set(trace)
        assert np.array_equal(found["layers.3.mixer.pattern"], trace["layers.3.mixer.pattern"])


def test_long_prompt_read_in_chunks_gives_the_same_values(llama):
    ids = [5 + i % 50 for i in range(40)]
    whole = zoo.trace(llama, ids, max_tokens=3)
    pieces = zoo.trace(llama, ids, max_tokens=3, prefill_chunk=16)
    assert len(pieces.passes) == len(whole.passes) + 2
    for address in (
        "layers.2.mixer.pattern",
        "layers.2.mixer.keys",
        "layers.3",
        "layers.1.feedforward.hidden",
    ):
        assert close(whole[address], pieces[address], atol=1e-4), address
