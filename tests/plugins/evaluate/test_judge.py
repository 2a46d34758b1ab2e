"""Metrics of each kind of example, held to values computed otherwise."""

import math
import random
from dataclasses import replace

import mlx.core as mx
import pytest
import sacrebleu

import zoo
from zoo.errors import PromptError, ZooError
from zoo.generation.sampling.logits import logprobs
from zoo.inspect.perplexity import perplexity
from zoo.training.answers import ANSWERS
from zoo.training.examples import TextExample
from zoo_evaluate.data import examples_to_judge
from zoo_evaluate.judge import PART, Judge, check_model, items_of, metrics_of
from zoo_evaluate.likelihood import Likelihood

from .conftest import CAPITALS, TEMPLATE

PAIRS = [("I love NLP", "我爱NLP"), ("She drinks tea.", "她喝茶。"), ("The cat sleeps.", "狗")]


def judged(loaded, path, metrics=None, **settings):
    """The values of a model on a file by the names of their metrics."""
    items = items_of(examples_to_judge(str(path)))
    found = Judge(items, metrics_of(type(items[0]), metrics), **settings)(loaded)
    return {name: sample.interval().value for name, sample in found.items()}


def test_texts_have_the_perplexity_of_zoo_perplexity(llama, lines):
    texts = [CAPITALS[0]["prompt"] + " Beijing.", "北京是中国的首都。"]
    found = judged(llama, lines([{"text": text} for text in texts]))
    each = [perplexity(llama, text) for text in texts]
    nats, tokens, size = (sum(getattr(one, name) for one in each) for name in ("nats", "tokens", "bytes"))
    assert found["loss"] == pytest.approx(nats / tokens)
    assert found["perplexity"] == pytest.approx(math.exp(nats / tokens))
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / size)


def test_a_long_text_is_several_items(tmp_path):
    text = "A sentence of a text. " * 1000
    (tmp_path / "text.md").write_text(text)
    items = items_of(examples_to_judge(str(tmp_path / "text.md")))
    assert len(items) > 4 and max(len(item.text) for item in items) <= PART
    assert " ".join(item.text for item in items) == text.strip()


def test_answers_have_the_loss_that_tuning_measures(llama, lines):
    path = lines(CAPITALS)
    rows = [row for example in examples_to_judge(str(path)) for row in ANSWERS.encode(example, llama, 64)]
    batch = ANSWERS.collate(rows, llama, random.Random(0))
    assert judged(llama, path)["loss"] == pytest.approx(ANSWERS.loss(llama.model, *batch).item(), rel=1e-4)


def test_an_answer_is_right_where_it_is_the_greedy_one_up_to_white_space(llama, lines):
    assert judged(llama, lines(CAPITALS), "accuracy")["accuracy"] == 0.5  # Milan; the Chinese answer goes on
    spaced = [{**CAPITALS[0], "completion": "  Beijing. "}]
    assert judged(llama, lines(spaced), "accuracy")["accuracy"] == 1


def test_each_answer_of_a_conversation_counts(lines, monkeypatch):
    loaded = zoo.load("llama")
    monkeypatch.setattr(loaded.tokenizer, "chat_template", TEMPLATE)
    turns = [("The capital city of China is", " Beijing."), ("The capital city of France is", " Lyon.")]
    messages = [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    path = lines([{"messages": messages[:2]}, {"messages": messages}])
    assert judged(loaded, path, "accuracy")["accuracy"] == 0.75  # 1 of 1, and 1 of 2


def test_more_tokens_than_the_limit_are_no_right_answer(llama, lines):
    assert judged(llama, lines(CAPITALS[:2]), "accuracy", max_tokens=2)["accuracy"] == 0


def test_a_preference_is_right_where_the_chosen_answer_is_likelier(llama, lines):
    pairs = [(" Beijing.", " Paris."), (" Paris.", " Beijing."), (" Beijing. " + "It is. " * 9, " Paris.")]
    records = [{"prompt": CAPITALS[0]["prompt"], "chosen": a, "rejected": b} for a, b in pairs]
    found = judged(llama, lines(records))
    assert found["preference"] == pytest.approx(1 / 3)
    sums = []
    for text in pairs[2]:
        before, whole = (llama.tokenizer.encode(CAPITALS[0]["prompt"] + more) for more in ("", text))
        whole.append(0)  # the end of the answer
        scores = logprobs(llama.model(mx.array([whole[:-1]]))[0])
        each = [scores[at - 1, whole[at]].item() for at in range(len(before), len(whole))]
        sums.append(sum(each) / len(each))
    assert found["preference_per_token"] == pytest.approx((1 + (sums[0] > sums[1])) / 3)


def test_of_a_conversation_before_a_preference_nothing_is_scored(lines, monkeypatch):
    loaded = zoo.load("llama")
    monkeypatch.setattr(loaded.tokenizer, "chat_template", TEMPLATE)
    asked = [
        {"role": "user", "content": "The capital city of France is"},
        {"role": "assistant", "content": " zzzz qqqq xxxx."},
        {"role": "user", "content": "The capital city of China is"},
    ]
    seen = []
    monkeypatch.setattr(
        "zoo_evaluate.judge.likelihoods",
        lambda loaded, rows, report: seen.extend(rows) or [Likelihood([-1.0], [True]) for _ in rows],
    )
    judged(loaded, lines([{"prompt": asked, "chosen": " Beijing.", "rejected": " Paris."}]))
    for row, answer in zip(seen, (" Beijing.", " Paris."), strict=True):
        assert loaded.tokenizer.decode([row.targets[place] for place in row.places]) == answer


def test_ranks_count_the_candidates_that_are_nearer(llama, lines, monkeypatch):
    vectors = {"a": [1.0, 0.0], "A": [0.9, 0.1], "b": [0.0, 1.0], "B": [1.0, 0.05], "n": [0.1, 0.9]}
    monkeypatch.setattr(
        "zoo_evaluate.judge.embed",
        lambda loaded, texts, normalise: mx.array([vectors[text] for text in texts]),
    )
    records = [{"anchor": "a", "positive": "A"}, {"anchor": "b", "positive": "B", "negative": "n"}]
    found = judged(llama, lines(records))  # A is second to B; B third after n and A
    assert found["mean_rank"] == 2.5 and found["mrr"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert (found["recall@1"], found["recall@5"]) == (0, 1)


def test_a_pair_that_comes_twice_is_no_candidate_twice(lines):
    records = [{"anchor": "Paris is in France.", "positive": "Paris"}] * 3
    assert judged(zoo.load("bert"), lines(records))["mean_rank"] == 1


def test_translations_are_compared_by_sacrebleu(transformer, lines):
    sources, targets = zip(*PAIRS, strict=True)
    found = judged(transformer, lines([{"source": s, "target": t} for s, t in PAIRS]), "chrf,bleu,accuracy")
    texts = [one.text for one in zoo.batch(transformer, sources, temperature=0.0)]
    assert texts[0] == targets[0]
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(texts, [targets]).score)
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, [targets], tokenize="zh").score)
    assert found["accuracy"] == pytest.approx(sum(a == b for a, b in zip(texts, targets, strict=True)) / 3)


def test_divergence_is_kl_of_the_next_tokens_and_zero_from_itself(llama, gpt2, lines):
    records = [{"text": "The capital city of China is Beijing."}, {"text": "北京是中国的首都。"}]
    judge = Judge(items_of(examples_to_judge(str(lines(records)))), ("divergence",))
    assert judge.divergence(llama, llama).interval().value == pytest.approx(0, abs=1e-6)
    total = count = 0
    for record in records:
        inputs = mx.array([llama.tokenizer.encode(record["text"])])
        wanted, found = (logprobs(loaded.model(inputs)[0]) for loaded in (llama, gpt2))
        total += (mx.exp(wanted) * (wanted - found)).sum().item()
        count += inputs.size
    assert judge.divergence(llama, gpt2).interval().value == pytest.approx(total / count, rel=1e-3)


def test_divergence_of_two_vocabularies_is_refused(llama, lines):
    judge = Judge(items_of(examples_to_judge(str(lines([{"text": "The capital"}])))), ("divergence",))
    with pytest.raises(PromptError, match=r"one vocabulary.*data\.jsonl, line 1"):
        judge.divergence(llama, other_vocabulary(llama))


def other_vocabulary(llama):
    """A model like llama whose tokenizer writes one id more."""

    class Longer:
        def __getattr__(self, name):
            return getattr(llama.tokenizer, name)

        def encode(self, *arguments):
            return [*llama.tokenizer.encode(*arguments), 5]

    return replace(llama, tokenizer=Longer())


@pytest.mark.parametrize(
    ("name", "records", "words"),
    [
        ("bert", CAPITALS, "bert fills masked tokens: it does not answer prompts"),
        ("transformer", CAPITALS, "transformer translates: it does not answer prompts"),
        ("llada", CAPITALS, "llada fills masked tokens in any order: it does not answer prompts"),
        ("llama", [{"source": "a", "target": "b"}], "llama does not translate"),
        ("bert", [{"text": "a b"}], "no perplexity: bert"),
    ],
)
def test_a_model_that_cannot_do_what_the_data_asks_is_named(name, records, words, lines):
    example = examples_to_judge(str(lines(records)))[0]
    with pytest.raises(PromptError, match=words):
        check_model(zoo.load(name).architecture, type(example))


def test_a_conversation_without_a_template_is_refused_with_its_line(llama, lines):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    with pytest.raises(ZooError, match=r"data\.jsonl, line 1: .*has no chat template"):
        judged(llama, lines([{"messages": messages}]))


def test_an_unknown_metric_is_refused_with_those_of_the_data():
    with pytest.raises(
        PromptError, match="'accuracy' is not one of loss, perplexity, bits_per_byte, divergence"
    ):
        metrics_of(TextExample, "accuracy")


def test_of_a_folder_the_test_data_is_judged_on(lines, tmp_path):
    for split in ("train", "valid", "test"):
        lines([{"text": split}], f"{split}.jsonl")
    assert [example.text for example in examples_to_judge(str(tmp_path))] == ["test"]
    (tmp_path / "test.jsonl").unlink()
    assert [example.text for example in examples_to_judge(str(tmp_path))] == ["valid"]
