"""Classifiers and rerankers: heads, labels, scores, entities, and what is refused."""

import json

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.classifier_folders import WORDS, write_classifier
from zoo.checkpoint.convert import convert
from zoo.errors import CheckpointError, ConfigError, PromptError
from zoo.host.registry import default_registry
from zoo.host.resolve import resolve
from zoo.testing import subject
from zoo.tokenizer.huggingface import cut_lengths
from zoo_classify.classify import (
    Entity,
    batches_of,
    classify,
    encode_texts,
    group_entities,
    label_tokens,
    logits_of,
)
from zoo_classify.labels import function_of, labels_of, relevance_function_of
from zoo_classify.rerank import AFTER, BEFORE, rerank, score_pairs
from zoo_serve.protocols import ranking
from zoo_serve.ranking import RankingCall, encode_rows
from zoo_serve.requests import RequestError

SEQUENCE, TOKEN = ["BertForSequenceClassification"], ["BertForTokenClassification"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("classifiers")
    labels = {"0": "bad", "1": "good", "2": "odd"}
    kinds = {"0": "O", "1": "B-PER", "2": "I-PER"}
    return {
        "texts": write_classifier(root / "texts", id2label=labels),
        "tokens": write_classifier(root / "tokens", architectures=TOKEN, id2label=kinds),
        "pairs": write_classifier(root / "pairs", id2label={"0": "LABEL_0"}),
    }


@pytest.fixture(scope="module")
def texts(folders):
    return zoo.load(folders["texts"])


@pytest.fixture(scope="module")
def pairs(folders):
    return zoo.load(folders["pairs"])


def test_a_head_is_the_pooler_and_a_matrix_on_the_first_state(texts):
    row = encode_texts(texts, [("the cat sat", "who is it")])[0]
    assert row.types == (0, 0, 0, 0, 0, 1, 1, 1, 1)
    states = texts.model.encode(mx.array([row.ids]), token_types=mx.array([row.types]))
    first, head = np.array(states)[0, 0], texts.model.head
    dense = np.tanh(np.array(head.dense.weight) @ first + np.array(head.dense.bias))
    wanted = np.array(head.output.weight) @ dense + np.array(head.output.bias)
    assert np.allclose(logits_of(texts, [row])[0], wanted, atol=1e-5)
    scores = {label.label: label.score for label in classify(texts, [("the cat sat", "who is it")])[0]}
    softmax = np.exp(wanted) / np.exp(wanted).sum()
    assert [scores[name] for name in ("bad", "good", "odd")] == pytest.approx(softmax.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["bert-classifier", "modernbert-classifier", "llama-classifier"])
def test_a_text_of_a_batch_has_the_logits_of_the_text_alone(name, tmp_path):
    made = subject(name, "tiny", default_registry())
    loaded = (
        zoo.load(write_classifier(tmp_path / "model", name)) if name == "bert-classifier" else loaded_of(made)
    )
    rows = encode_texts(loaded, [[5, 6, 7], [8] * 30, [9]])
    together = logits_of(loaded, rows)
    for row, logits in zip(rows, together, strict=True):
        assert np.allclose(logits, logits_of(loaded, [row])[0], atol=1e-4)


def loaded_of(made, **config):
    from zoo.testing.subjects import loaded_of as plain

    return plain(made, {**made.numbers, **config})


def test_a_decoder_reads_the_last_token_that_is_not_the_paddings():
    made = subject("llama-classifier", "tiny", default_registry())
    loaded = loaded_of(made, pad_token_id=9)
    short, long = (logits_of(loaded, encode_texts(loaded, [ids]))[0] for ids in ([5, 6, 7], [5, 6, 7, 9]))
    assert np.allclose(short, long, atol=1e-5)
    plain = loaded_of(made)
    assert not np.allclose(short, logits_of(plain, encode_texts(plain, [[5, 6, 7, 9]]))[0], atol=1e-5)


def test_a_text_beyond_the_context_is_cut_with_a_warning(texts):
    with pytest.warns(UserWarning, match="texts of more than 128 tokens are cut"):
        (row,) = encode_texts(texts, ["cat " * 300])
    assert len(row.ids) == 128 and row.ids[-1] == WORDS.index("[SEP]")


@pytest.mark.parametrize(
    ("lengths", "most", "wanted"),
    [
        ([9], 4, [4]),
        ([3, 9], 8, [3, 5]),
        ([9, 3], 8, [5, 3]),
        ([9, 9], 7, [3, 4]),
        ([9, 8], 7, [4, 3]),
        ([2, 3], 9, [2, 3]),
    ],
)
def test_the_longer_of_two_texts_is_cut_first(lengths, most, wanted):
    assert cut_lengths(lengths, most) == wanted


def test_labels_are_those_of_the_config():
    assert labels_of({"id2label": {"1": "b", "0": "a"}}) == ("a", "b")
    assert labels_of({"num_labels": 1}) == ("LABEL_0",) and len(labels_of({})) == 2
    for wrong in ({"0": "a", "2": "b"}, {}, ["a"]):
        with pytest.raises(ConfigError, match="id2label"):
            labels_of({"id2label": wrong})


def test_scores_are_made_as_the_config_says():
    one, two = {"num_labels": 1}, {"num_labels": 2}
    assert (function_of(one), function_of(two)) == ("sigmoid", "softmax")
    assert function_of({**two, "problem_type": "multi_label_classification"}) == "sigmoid"
    assert function_of({**one, "problem_type": "regression"}) == "none"
    for problem in ("single_label_classification", "ranking"):
        with pytest.raises(ConfigError, match="problem_type"):
            function_of({**one, "problem_type": problem})
    torch = "torch.nn.modules"
    assert relevance_function_of({}) == "sigmoid"
    assert (
        relevance_function_of({"sbert_ce_default_activation_function": f"{torch}.linear.Identity"}) == "none"
    )
    assert (
        relevance_function_of({"sentence_transformers": {"activation_fn": f"{torch}.activation.Tanh"}})
        == "tanh"
    )
    with pytest.raises(ConfigError, match=r"sentence_transformers\.activation_fn"):
        relevance_function_of({"sentence_transformers": {"activation_fn": "mine.Scaled"}})


def test_sentence_transformers_own_file_is_followed_or_refused_by_name(folders, tmp_path):
    for path in folders["pairs"].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    told, given = tmp_path / "config_sentence_transformers.json", [("who is it", "a cat")]
    plain = score_pairs(zoo.load(tmp_path), given)[0]
    told.write_text('{"activation_fn": "torch.nn.modules.linear.Identity"}')
    logit = score_pairs(zoo.load(tmp_path), given)[0]
    assert plain == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)
    told.write_text('{"activation_fn": "mine.Scaled"}')
    with pytest.raises(ConfigError, match=r"config_sentence_transformers\.json: .*mine\.Scaled"):
        score_pairs(zoo.load(tmp_path), given)
    told.write_text('{"prompts": {"q": "who"}, "default_prompt_name": "q"}')
    with pytest.raises(ConfigError, match="default_prompt_name"):
        score_pairs(zoo.load(tmp_path), given)


def test_runs_of_one_kind_are_one_entity():
    labels = ["O", "B-PER", "I-PER", "B-PER", "LOC", "LOC", "O"]
    text = "a b c d e f g"
    tokens = [Entity(label, 0.5, text[2 * i], 2 * i, 2 * i + 1) for i, label in enumerate(labels)]
    groups = [(entity.label, entity.text) for entity in group_entities(text, tokens)]
    assert groups == [("O", "a"), ("PER", "b c"), ("PER", "d"), ("LOC", "e f"), ("O", "g")]


def test_tokens_have_the_characters_of_the_text(folders):
    loaded = zoo.load(folders["tokens"])
    entities = label_tokens(loaded, ["The cat  sat."], group=False)[0]
    assert all("The cat  sat."[entity.start : entity.end] == entity.text for entity in entities)
    assert {entity.label for entity in entities} <= {"B-PER", "I-PER"}
    with pytest.raises(PromptError, match="label_tokens"):
        classify(loaded, ["a cat"])


def test_documents_are_sorted_by_their_scores(pairs):
    documents = ["a cat", "the dog sat", "bad film !", "it"]
    scores = score_pairs(pairs, [("who is it", document) for document in documents])
    results = rerank(pairs, "who is it", documents, top_n=2)
    assert [result.score for result in results] == sorted(scores, reverse=True)[:2]
    assert all(scores[result.index] == result.score and 0 < result.score < 1 for result in results)


def test_what_cannot_be_ranked_is_refused_by_name(texts, pairs, folders):
    with pytest.raises(PromptError, match="has 3 labels"):
        rerank(texts, "who", ["a cat"])
    with pytest.raises(PromptError, match="labels tokens"):
        rerank(zoo.load(folders["tokens"]), "who", ["a cat"])
    with pytest.raises(PromptError, match="`instruction`"):
        rerank(pairs, "who", ["a cat"], instruction="find it")
    with pytest.raises(PromptError, match="not empty, got ' '"):
        rerank(pairs, "who", ["a cat", " "])
    with pytest.raises(PromptError, match="no token no, yes"):
        rerank(zoo.load("llama"), "who", ["a cat"])
    with pytest.raises(PromptError, match="has no head of labels: its task is generate"):
        classify(zoo.load("llama"), ["a cat"])
    with pytest.raises(PromptError, match="a text to classify is empty"):
        classify(pairs, ["a cat", ""])
    assert BEFORE.startswith("<|im_start|>system\n") and AFTER.endswith("</think>\n\n")


def test_a_folder_without_its_head_is_refused_with_the_tensors_names(folders, tmp_path):
    from zoo.checkpoint.safetensors import load_file

    tensors = load_file(folders["texts"] / "model.safetensors").arrays
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folders["texts"] / name).read_bytes())
    kept = {name: array for name, array in tensors.items() if not name.startswith("classifier")}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), kept, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"missing tensors? .*classifier"):
        zoo.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("BertForSequenceClassification", "bert-classifier"),
        ("BertForTokenClassification", "bert-classifier"),
        ("ModernBertForSequenceClassification", "modernbert-classifier"),
        ("Qwen3ForSequenceClassification", "qwen3-classifier"),
        ("BertForMaskedLM", "bert"),
        ("Qwen3ForCausalLM", "qwen3"),
    ],
)
def test_the_class_of_a_config_decides_on_the_head(name, wanted):
    kind = {"M": "modernbert", "Q": "qwen3"}.get(name[0], "bert")
    found = resolve(default_registry(), {"model_type": kind, "architectures": [name]})
    assert found.name == wanted


def test_a_quantized_classifier_keeps_its_head_whole(folders, tmp_path):
    convert(folders["texts"], tmp_path / "packed", quantize="4", group_size=32)
    loaded = zoo.load(tmp_path / "packed")
    assert "scales" in loaded.model.layers[0].mixer.query
    assert "scales" not in loaded.model.head.output and "scales" not in loaded.model.head.dense
    assert len(classify(loaded, ["a cat"])[0]) == 3


def test_the_commands_print_an_object_a_line(folders, command):
    done = command("classify", folders["texts"], "a cat", "--pair", "who is it")
    (line,) = map(json.loads, done.stdout.splitlines())
    assert line["pair"] == "who is it" and line["score"] == max(line["scores"].values())
    lines = command("classify", folders["tokens"], stdin="the cat\n\na dog\n").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["the cat", "a dog"]
    lines = command(
        "rerank", folders["pairs"], "who is it", "a cat", "a dog", "--top", "1"
    ).stdout.splitlines()
    assert json.loads(lines[0]).keys() == {"index", "score", "text"} and len(lines) == 1
    for arguments in (
        ("classify", folders["texts"], "x", "--tokens"),
        ("rerank", folders["texts"], "a", "b"),
    ):
        assert command(*arguments).returncode == 1
    shown = command("run", folders["texts"], "a cat").stdout.split()
    assert set(shown[1::2]) == {"bad", "good", "odd"}


def test_a_trace_of_a_classifier_shows_one_text_and_no_likeliest_tokens(texts):
    from zoo.inspect.trace_view.build_view import build_view

    trace = zoo.trace(texts, "the cat sat")
    view = build_view(trace)
    assert trace.lens() == [] and [track.name for track in view.tracks] == ["text"]
    assert len(view.tracks[0].pieces) == 5


def test_the_server_answers_in_the_forms_of_the_interfaces(texts, pairs):
    body = {"query": "who is it", "documents": ["a cat", {"text": "bad film", "id": 3}], "top_n": 1}
    request = ranking.parse_rerank(body)
    assert request.pairs == (("who is it", "a cat"), ("who is it", "bad film"))
    rows = encode_rows(pairs, request)
    scores = [score for batch in RankingCall((tuple(rows),), False)(pairs) for score in batch]
    assert scores == pytest.approx(score_pairs(pairs, request.pairs))
    best = int(np.argmax(scores))
    answer = ranking.respond_rerank(request, ("m", scores, 9))
    assert answer["results"] == [
        {
            "index": best,
            "relevance_score": scores[best],
            "document": {"text": request.pairs[best][1]},
        }
    ]
    assert (
        "document"
        not in ranking.respond_rerank(
            ranking.parse_rerank({**body, "return_documents": False}), ("m", scores, 9)
        )["results"][0]
    )
    request = ranking.parse_score({"text_1": "who", "text_2": ["a cat", "a dog"]})
    assert request.pairs == (("who", "a cat"), ("who", "a dog"))
    assert [one["score"] for one in ranking.respond_score(request, ("m", [0.1, 0.2], 9))["data"]] == [
        0.1,
        0.2,
    ]
    with pytest.raises(RequestError, match="`text_1` must be one text, or 3"):
        ranking.parse_score({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})
    request = ranking.parse_classify({"input": "a cat"})
    (labels,) = RankingCall((tuple(encode_rows(texts, request)),), True)(texts)
    answer = ranking.respond_classify(request, ("m", labels, 4))["data"][0]
    (wanted,) = classify(texts, ["a cat"])
    assert answer["label"] == wanted[0].label and max(answer["probs"]) == pytest.approx(wanted[0].score)
    with pytest.raises(PromptError, match="no head of labels"):
        encode_rows(zoo.load("llama"), request)


def test_long_texts_share_a_pass_with_fewer_others(texts, monkeypatch):
    monkeypatch.setattr("zoo_classify.classify.MOST_TOKENS", 60)
    rows = encode_texts(texts, [[5] * length for length in (3, 50, 20, 20, 20, 20, 4)])
    assert batches_of(texts, rows) == [[1], [2, 3, 4], [5, 6, 0]]
