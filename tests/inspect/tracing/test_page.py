"""The view of a trace, and its page."""

import json
import re

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.assemble import assemble
from zoo.describe.language import in_language
from zoo.errors import PromptError, ZooError
from zoo.host.registry import default_registry
from zoo.inspect.trace_view.build_view import build_view
from zoo.inspect.trace_view.page import embedded, page, script, table
from zoo.inspect.trace_view.summaries import attention_operands
from zoo.loading import Loaded
from zoo.testing import subject

PROMPT = "The capital city of China is"


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


@pytest.fixture(scope="module")
def trace(llama):
    return zoo.trace(llama, PROMPT, temperature=0.8, top_k=20, seed=3)


@pytest.fixture(scope="module")
def view(trace):
    return build_view(trace)


def data_of(html):
    found = re.search(r'<script type="application/json" class="data">(.*?)</script>', html, re.DOTALL)
    return json.loads(found[1])


def test_pieces_are_the_prompt_and_what_was_written(view, trace):
    (track,) = view.tracks
    assert "".join(piece.text for piece in track.pieces if not piece.special) == PROMPT + trace.text
    assert [p.id for p in track.pieces if p.origin == "prompt"] == trace.prompt
    assert [p.id for p in track.pieces if p.origin == "generated"] == trace.tokens


def test_every_address_of_the_trace_is_told(view, trace):
    told = {stage.address for stage in (*view.before, *view.after)}
    told |= {stage.address for layer in view.layers for stage in layer.stages}
    told |= {pattern.address for layer in view.layers for pattern in layer.patterns}
    assert told == set(trace)


def test_weights_of_heads_are_those_of_the_trace(view, trace):
    pattern = view.layers[2].patterns[0]
    weights = np.array([head.weights for head in pattern.heads])
    assert np.abs(weights - trace[pattern.address]).max() <= 0.0005 + 1e-6
    assert pattern.heads[1].attends_to == tuple(trace[pattern.address][1].argmax(axis=1))


def test_operands_of_a_pattern_give_its_weights_and_its_heads(view, trace):
    pattern = view.layers[1].patterns[0]
    operands = pattern.operands
    queries, keys, values = (np.array(each) for each in (operands.queries, operands.keys, operands.values))
    shared = len(queries) // len(keys)
    assert (len(queries), shared) == (4, 2)
    for head, query in enumerate(queries):
        for row, (first, end) in enumerate(operands.seen):
            assert (first, end) == (0, row + 1)
            scores = np.exp(keys[head // shared, first:end] @ query[row] * operands.scale)
            weights = scores / scores.sum()
            assert weights == pytest.approx(trace[pattern.address][head, row, first:end], abs=2e-3)
            output = weights @ values[head // shared, first:end]
            assert output == pytest.approx(trace["layers.1.mixer.heads"][head, row], abs=2e-2)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("bert", (0, 9)),  # in both directions
        ("transformer", (0, 1)),
        ("gpt-oss", None),  # attention sinks
        ("gemma2", None),  # capped scores
        ("deepseek-v3", None),  # low-rank keys and values
    ],
)
def test_operands_are_those_of_plain_attention_alone(name, seen):
    text = "The capital of China is [MASK]." if name == "bert" else PROMPT
    view = build_view(zoo.trace(zoo.load(name), text, **({} if name == "bert" else {"max_tokens": 1})), 5)
    told = [pattern.operands for layer in view.layers for pattern in layer.patterns]
    if seen is None:
        assert told and not any(told)
    else:
        assert all(told) and told[-2 if name == "transformer" else -1].seen[0] == seen


def test_a_window_bounds_what_a_row_sees():
    values = np.random.default_rng(0).normal(size=(3, 1, 5, 8))  # queries, keys, values
    scores = values[0] @ values[1].swapaxes(1, 2)
    near = np.tril(np.ones((5, 5), bool)) & ~np.tril(np.ones((5, 5), bool), -2)
    weights = np.where(near, np.exp(scores), 0)
    weights /= weights.sum(axis=-1, keepdims=True)
    operands = attention_operands(weights, *values, 1.0)
    assert operands.seen == ((0, 1), (0, 2), (1, 3), (2, 4), (3, 5))
    assert attention_operands(weights, *values, 2.0) is None  # another formula


def test_a_long_text_has_no_operands(llama, monkeypatch):
    monkeypatch.setattr("zoo.inspect.trace_view.build_view.OPERAND_NUMBERS", 100)
    view = build_view(zoo.trace(llama, PROMPT, max_tokens=1), 5)
    assert not any(pattern.operands for layer in view.layers for pattern in layer.patterns)


def test_bins_of_a_strip_are_means(view, trace):
    stage = next(stage for stage in view.before if stage.address == "embedding")
    value = trace["embedding"]
    assert stage.strip.per_bin == 2 and len(stage.strip.rows[0]) == 64
    assert np.allclose(stage.strip.rows, value.reshape(len(value), 64, 2).mean(axis=2), rtol=0.01, atol=1e-6)
    assert stage.norm == pytest.approx(np.linalg.norm(value, axis=1).mean(), rel=1e-4)


def test_choices_tell_every_token_of_a_small_vocabulary(view, llama):
    decision = view.decisions[0]
    assert len(decision.candidates) == llama.recipe.embedding.vocab and decision.rest_counts == ()
    shares = np.exp(np.array(decision.logits) - decision.logsumexp)
    assert shares.sum() == pytest.approx(1, abs=1e-4)


def test_tokens_beyond_the_candidates_are_grouped_with_their_mass(trace, llama):
    decision = build_view(trace, candidates=100).decisions[0]
    assert sum(decision.rest_counts) == llama.recipe.embedding.vocab - len(decision.candidates)
    shares = np.exp(np.array([*decision.logits, *decision.rest_logits]) - decision.logsumexp)
    counts = np.array([*[1] * len(decision.logits), *decision.rest_counts])
    assert (shares * counts).sum() == pytest.approx(1, abs=1e-3)


def test_page_holds_the_story_and_asks_for_nothing(view):
    html = page(view)
    whole, told = view.to_json(), data_of(html)
    named = {str(id) for decision in view.decisions for id in decision.candidates}
    assert set(told["vocabulary"]) >= named and told["vocabulary"].items() <= whole["vocabulary"].items()
    for part in ("tracks", "layers", "decisions", "passes", "lens", "before", "after"):
        assert told[part] == json.loads(json.dumps(whole[part]))
    assert len(html.encode()) < 1_500_000
    assert not re.search(r"https?://|@import|<link(?! rel=\"icon\" href=\"data:)|<img", html)


def test_text_cannot_become_markup(llama):
    html = page(build_view(zoo.trace(llama, "</script><b>&amp; ${x}", max_tokens=1)))
    assert html.count("</script>") == 3 and "<b>" not in html
    pieces = data_of(html)["tracks"][0]["pieces"]
    assert "".join(p["text"] for p in pieces if p["origin"] == "prompt") == "</script><b>&amp; ${x}"


def test_translation_tells_source_target_and_what_lies_across():
    view = build_view(zoo.trace(zoo.load("transformer"), "Hello world", max_tokens=3))
    assert [track.name for track in view.tracks] == ["source", "target"]
    across = {p.address for layer in view.layers for p in layer.patterns if p.columns != p.rows}
    assert across == {"decoder.layers.0.cross.pattern", "decoder.layers.1.cross.pattern"}
    assert len(view.decisions) == 3 and 'data-part="choice"' in page(view)


def test_masks_tell_their_candidates():
    trace = zoo.trace(zoo.load("bert"), "The capital city of China is [MASK].")
    (hidden,) = build_view(trace).masks
    assert trace.prompt[hidden.position] == 2 and hidden.probabilities[0] == pytest.approx(0.88, abs=0.01)
    assert 'data-part="masks"' in page(build_view(trace))


def test_encoder_is_followed_without_a_mask():
    loaded = zoo.load("bert")
    trace = zoo.trace(loaded, PROMPT)
    view = build_view(trace)
    ids = loaded.tokenizer.encode(PROMPT)
    assert trace.prompt == ids and trace.steps == [] and trace.choices() == []
    assert trace["layers.3"].shape == (len(ids), 128) and trace["layers.3.mixer.pattern"].shape[1:] == (7, 7)
    assert np.array_equal(trace["head"], loaded.model(mx.array([ids]))[0])
    (note,) = view.notes
    assert "[MASK]" in note and in_language(note, "zh").endswith("。") and note in page(view)
    with pytest.raises(PromptError, match="`temperature`"):
        zoo.trace(loaded, PROMPT, temperature=1.0)


def test_encoder_without_a_head_is_followed(tmp_path):
    made = subject("bert")
    recipe = made.recipe.change(head=None)
    model = assemble(recipe, default_registry())
    view = build_view(zoo.trace(Loaded(model, None, made.architecture, recipe, {}, tmp_path), [5, 6, 7]))
    assert view.layers[0].patterns and not view.lens and view.track("text").read == 3
    assert not any("predicted" in note for note in view.notes)


def test_a_residual_scale_is_told_beside_the_norms_that_leave_it_out(tmp_path):
    made = subject("llama")
    recipe = made.recipe.change_layers(residual_scale=0.22)
    model = assemble(recipe, default_registry())
    view = build_view(
        zoo.trace(Loaded(model, None, made.architecture, recipe, {}, tmp_path), [5, 6, 7], max_tokens=1)
    )
    assert "What a part adds is multiplied by 0.22; its norm is shown without that." in view.notes
    summaries = [stage["summary"] for stage in data_of(page(view, "zh"))["layers"][0]["stages"]]
    assert any("0.22" in text and "multiplied" not in text for text in summaries)


def test_unmasking_ends_in_the_text_that_was_written():
    loaded = zoo.load("llada")
    trace = zoo.trace(loaded, PROMPT, max_tokens=8)
    view = build_view(trace)
    assert len(view.unmasking) == len(trace.passes) > 1
    for before, after in zip(view.unmasking, view.unmasking[1:], strict=False):
        predicted = {hidden.position: hidden.tokens[0] for hidden in before.predictions}
        assert all(after.ids[position] == predicted[position] for position in before.kept)
    written = [piece.id for piece in view.tracks[0].pieces if piece.origin == "generated"]
    assert loaded.tokenizer.decode(written) == trace.text


def test_experts_are_told_the_heaviest_first():
    trace = zoo.trace(zoo.load("mixtral"), PROMPT, max_tokens=1)
    (experts,) = build_view(trace).layers[1].experts
    assert experts.count == 8 and all(a >= b for a, b in experts.weights)
    indices = trace["layers.1.feedforward.router.indices"]
    assert [set(row) for row in experts.chosen] == [set(row) for row in indices.tolist()]
    told = data_of(embedded(build_view(trace), ["experts"]))["layers"]
    assert len(told) == 4 and not any(layer["stages"] or layer["patterns"] for layer in told)
    assert told[1]["experts"][0]["chosen"] == [list(row) for row in experts.chosen]


def test_long_text_tells_the_last_rows_of_its_patterns(llama, monkeypatch):
    monkeypatch.setattr("zoo.inspect.trace_view.build_view.PATTERN_NUMBERS", 16 * 40 * 10)
    view = build_view(zoo.trace(llama, [5 + i % 50 for i in range(40)], max_tokens=1))
    pattern = view.layers[0].patterns[0]
    assert pattern.first_row == 30 and len(pattern.heads[0].weights) == 10
    assert any("last 10 tokens" in note for note in view.notes)


def test_missing_layer_and_head_are_named(view):
    with pytest.raises(PromptError, match="`layer`: there is no layer 9; they are numbered 0 to 3"):
        view.patterns([9])
    with pytest.raises(PromptError, match="`head`: there is no head 4; they are numbered 0 to 3"):
        view.patterns([0], [4])
    assert [(p.address, head) for p, head in view.patterns([1], [3])] == [("layers.1.mixer.pattern", 3)]


def test_embedded_part_has_its_own_data_alone(view, trace):
    html = embedded(view, ["lens"])
    told = data_of(html)
    assert len(told["lens"]) == 5 and not (told["layers"] or told["decisions"] or told["before"])
    assert re.findall('data-part="([a-z]+)"', html) == ["lens"] and len(html.encode()) < 12_000
    asked = {str(id) for guess in view.lens for row in guess.tokens for id in row}
    assert set(told["vocabulary"]) == asked


def test_embedded_layers_are_those_asked_for(view):
    told = data_of(embedded(view, ["layers"], layers=[2]))
    assert [layer["address"] for layer in told["layers"]] == ["layers.2"]
    assert told["layers"][0]["patterns"] == json.loads(json.dumps(view.to_json()["layers"][2]["patterns"]))
    assert not any(stage["strip"] for stage in told["layers"][0]["stages"])


def test_embedded_trace_without_scripts_has_pieces_and_predictions(view):
    html = embedded(view, ["choice"])
    shown = re.search(r"<noscript>(.*?)</noscript>", html, re.DOTALL)[1]
    best = view.vocabulary[view.decisions[0].candidates[0]]
    assert all(piece.text in shown for piece in view.tracks[0].pieces) and best in shown


def test_missing_part_and_layer_are_named(view):
    with pytest.raises(ZooError, match="has no part 'masks'; it has pieces, vectors"):
        embedded(view, ["masks"])
    with pytest.raises(ZooError, match="no layer 4"):
        embedded(view, ["layers"], layers=[4])


def test_tables_of_both_languages_have_the_same_names_and_places():
    english, chinese = table("en"), table("zh")
    assert english.keys() == chinese.keys()
    for name, text in english.items():
        assert set(re.findall(r"\{\w+\}", text)) >= set(re.findall(r"\{\w+\}", chinese[name])), name
    asked = re.findall(r't\.say\("(\w+)"', script())
    assert len(asked) > 40 and set(asked) <= english.keys()


def test_chinese_page_has_chinese_words(view):
    html = page(view, "zh")
    assert 'lang="zh-CN"' in html and "残差流" in html and "The logit lens reads" not in html
    assert "进入第一层的向量" in {stage["summary"] for stage in data_of(html)["before"]}
