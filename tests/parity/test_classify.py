"""Classifiers against transformers: logits, pipelines, and pairs cut as its tokenizers cut them."""

import json
import random
from contextlib import nullcontext as nothing

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from transformers import AutoTokenizer, pipeline

import zoo
from zoo.checkpoint.convert import convert
from zoo_classify.classify import classify, encode_texts, label_tokens, logits_of
from zoo_classify.rerank import AFTER, BEFORE, rerank, score_pairs

from .support import TOLERANCE, reference

WORDS = [
    "a",
    "the",
    "cat",
    "dog",
    "sat",
    "on",
    "mat",
    "ran",
    "far",
    "away",
    ",",
    ".",
    "!",
    "who",
    "what",
    "is",
    "it",
    "good",
    "bad",
    "film",
    "very",
    "not",
    "yes",
    "no",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["the cat sat on the mat .", "bad film !", "who is it , the dog ? " * 3, "a"]
PAIRS = list(zip(TEXTS, ["the dog ran far away .", "good", "it is not a cat .", "the mat " * 9], strict=True))
SIZES = dict(
    vocab_size=len(SPECIAL) + len(WORDS),
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=40,
    pad_token_id=0,
)
ENCODERS = ["Bert", "ModernBert", "Roberta", "XLMRoberta", "DistilBert"]
MORE = {
    family: dict(max_position_embeddings=41) for family in ("Roberta", "XLMRoberta")
}  # one is the padding's
DECODERS = ["Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2"]


def write_tokenizer(folder):
    """A word-piece tokenizer with a template for pairs."""
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + WORDS))
    tokenizer = transformers.BertTokenizer(vocab=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    (folder / "vocab.txt").unlink()
    return AutoTokenizer.from_pretrained(folder)


def byte_tokenizer(folder):
    """A byte-level tokenizer with the tokens that a reranker's prompt needs."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = ["ye", "yes", "no", "<|im_start|>", "<|im_end|>"]
    vocab = {token: id for id, token in enumerate(letters + words)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("y", "e"), ("ye", "s"), ("n", "o")]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(words[-2:])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder, padding_side="left")


def saved(folder, family, kind="ForSequenceClassification", seed=0, **changes):
    """A random classifier of a family with its tokenizer, in a folder; returns both of transformers."""
    decoder = dict(num_key_value_heads=2, vocab_size=300, pad_token_id=258) if family in DECODERS else {}
    config = getattr(transformers, f"{family}Config")(**SIZES | MORE.get(family, {}) | decoder | changes)
    model = reference(getattr(transformers, f"{family}{kind}"), config, seed)
    model.save_pretrained(folder)
    return model, byte_tokenizer(folder) if family in DECODERS else write_tokenizer(folder)


def labelled(count):
    return {"id2label": {number: f"L{number}" for number in range(count)}}


def apart(found, expected):
    """The largest difference of logits, as a share of the expected range."""
    expected = np.array(expected)
    return float(np.abs(np.array(found) - expected).max() / max(1.0, expected.max() - expected.min()))


def logits_of_reference(model, tokenizer, texts):
    with torch.no_grad():
        for text in texts:
            parts = text if isinstance(text, tuple) else (text,)
            given = tokenizer(*parts, return_tensors="pt", truncation=True, max_length=40)
            if not hasattr(model.config, "type_vocab_size"):
                given.pop("token_type_ids", None)
            yield model(**given).logits[0].numpy()


@pytest.mark.parametrize("family", ENCODERS + DECODERS)
@pytest.mark.parametrize("kind", ["ForSequenceClassification", "ForTokenClassification"])
def test_logits_of_texts_and_pairs(tmp_path, family, kind):
    if not hasattr(transformers, family + kind):
        pytest.skip("transformers has no such class")
    model, tokenizer = saved(tmp_path, family, kind, **labelled(3))
    loaded = zoo.load(tmp_path)
    assert loaded.architecture.task == "classify"
    for texts in (TEXTS, PAIRS):
        found = logits_of(loaded, encode_texts(loaded, texts))
        for own, expected in zip(found, logits_of_reference(model, tokenizer, texts), strict=True):
            assert own.shape == expected.shape
            assert apart(own, expected) <= TOLERANCE


def test_modernbert_pools_the_mean_where_its_config_says_so(tmp_path):
    model, tokenizer = saved(tmp_path, "ModernBert", classifier_pooling="mean", classifier_bias=True)
    loaded = zoo.load(tmp_path)
    assert loaded.recipe.head.pooling == "mean"
    for own, expected in zip(
        logits_of(loaded, encode_texts(loaded, PAIRS)),
        logits_of_reference(model, tokenizer, PAIRS),
        strict=True,
    ):
        assert apart(own, expected) <= TOLERANCE


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize(
    "problem", [None, "regression", "single_label_classification", "multi_label_classification"]
)
def test_scores_are_those_of_the_pipeline(tmp_path, labels, problem):
    if labels == 1 and problem == "single_label_classification":
        pytest.skip("transformers refuses it")
    model, tokenizer = saved(tmp_path, "Bert", problem_type=problem, **labelled(labels))
    expected = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    pairs = [{"text": first, "text_pair": second} for first, second in PAIRS]
    loaded = zoo.load(tmp_path)
    for texts, given in ((TEXTS, TEXTS), (PAIRS, pairs)):
        for own, wanted in zip(classify(loaded, texts), expected(given), strict=True):
            assert [label.label for label in own] == [label["label"] for label in wanted]
            assert apart([label.score for label in own], [label["score"] for label in wanted]) <= TOLERANCE


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("family", ENCODERS)
def test_entities_are_those_of_the_pipeline(tmp_path, family, group, seed):
    names = ["O", "B-PER", "I-PER", "LOC", "B-LOC"]
    model, tokenizer = saved(
        tmp_path, family, "ForTokenClassification", seed, id2label=dict(enumerate(names))
    )
    strategy = "simple" if group else "none"
    expected = pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy
    )
    for own, wanted in zip(
        label_tokens(zoo.load(tmp_path), TEXTS, group=group), expected(TEXTS), strict=True
    ):
        key = "entity_group" if group else "entity"
        assert [(e.label, e.start, e.end) for e in own] == [(e[key], e["start"], e["end"]) for e in wanted]
        if own:
            assert apart([e.score for e in own], [e["score"] for e in wanted]) <= TOLERANCE


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("most", [7, 12, 13, 20])
def test_long_texts_and_pairs_are_cut_as_transformers_cuts_them(tmp_path, side, most):
    saved(tmp_path, "Bert")
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"model_max_length": most, "truncation_side": side}
    path.write_text(json.dumps(settings))
    tokenizer, loaded, draw = AutoTokenizer.from_pretrained(tmp_path), zoo.load(tmp_path), random.Random(most)
    for _ in range(30):
        text, pair = (" ".join(draw.choices(WORDS, k=draw.randint(1, 25))) for _ in range(2))
        for given in ((text,), (text, pair)):
            wanted = tokenizer(*given, truncation=True)
            with pytest.warns() if loaded.tokenizer.encode_pair(*given, most=most).cut else nothing():
                (own,) = encode_texts(loaded, [given if len(given) == 2 else text])
            assert list(own.ids) == wanted["input_ids"]
            assert list(own.types) == wanted["token_type_ids"]


@pytest.mark.parametrize("activation", ["Identity", "Sigmoid", None])
def test_a_cross_encoders_scores_follow_its_activation(tmp_path, activation):
    model, tokenizer = saved(tmp_path, "Bert", **labelled(1))
    path, config = tmp_path / "config.json", json.loads((tmp_path / "config.json").read_text())
    name = activation and f"torch.nn.modules.activation.{activation}"
    path.write_text(json.dumps(config | {"sentence_transformers": {"activation_fn": name, "version": "5.0"}}))
    logits = torch.tensor(np.concatenate(list(logits_of_reference(model, tokenizer, PAIRS))))
    wanted = logits if activation == "Identity" else torch.sigmoid(logits)
    loaded = zoo.load(tmp_path)
    assert apart(score_pairs(loaded, PAIRS), wanted) <= TOLERANCE
    documents = [second for _, second in PAIRS]
    own = rerank(loaded, "who is it", documents, top_n=3)
    scores = list(score_pairs(loaded, [("who is it", document) for document in documents]))
    assert [item.index for item in own] == sorted(range(4), key=lambda index: -scores[index])[:3]


def test_a_language_model_says_yes_as_often_as_qwen3_rerankers_own_code(tmp_path):
    config = transformers.Qwen3Config(
        **SIZES | dict(vocab_size=300, num_key_value_heads=2, max_position_embeddings=512)
    )
    model = reference(transformers.Qwen3ForCausalLM, config)
    model.save_pretrained(tmp_path)
    tokenizer = byte_tokenizer(tmp_path)
    loaded = zoo.load(tmp_path)
    with pytest.warns(UserWarning, match="may not have been trained"):
        own = score_pairs(loaded, PAIRS, instruction="find it")
    no, yes = (tokenizer.convert_tokens_to_ids(token) for token in ("no", "yes"))
    for score, (query, document) in zip(own, PAIRS, strict=True):
        text = f"{BEFORE}<Instruct>: find it\n<Query>: {query}\n<Document>: {document}{AFTER}"
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[0, -1, [no, yes]]
        assert abs(score - torch.softmax(logits, -1)[1].item()) <= TOLERANCE


@pytest.mark.parametrize("layout", ["hf", "mlx"])
@pytest.mark.parametrize("family", ["Bert", "ModernBert", "Qwen2"])
def test_a_converted_classifier_is_read_by_transformers(tmp_path, family, layout):
    (tmp_path / "in").mkdir()
    model, tokenizer = saved(tmp_path / "in", family)
    convert(tmp_path / "in", tmp_path / "out", layout=layout)
    again = getattr(transformers, f"{family}ForSequenceClassification").from_pretrained(tmp_path / "out")
    for own, wanted in zip(
        logits_of_reference(again.eval(), tokenizer, PAIRS),
        logits_of_reference(model, tokenizer, PAIRS),
        strict=True,
    ):
        assert apart(own, wanted) <= TOLERANCE
