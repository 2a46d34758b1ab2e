"""lm-eval, a program for benchmarks, as a client: its numbers are those of the zoo's own model."""

import json

import lm_eval
import mlx.core as mx
import mlx.nn as nn
import pytest
from lm_eval.tasks import TaskManager

import zoo

CHOICES = [
    {"question": "The capital city of China is", "choices": ["Beijing", "Paris", "a river"], "answer": 0},
    {"question": "The capital city of France is", "choices": ["Moscow", "Paris"], "answer": 1},
    {"question": "The longest river of Africa is", "choices": ["the Nile", "the Danube"], "answer": 0},
]
QUESTIONS = [{"question": entry["question"]} for entry in CHOICES]
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
{more}
"""
CHOOSE = """\
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]"""
GENERATE = """\
doc_to_target: "."
generation_kwargs: {until: ["."], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: bypass, aggregation: bypass, higher_is_better: true}]"""


@pytest.fixture
def samples(pockets, loaded_llama, tmp_path, monkeypatch):
    """The function that runs a task over the server and gives its items with their answers."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))

    def run(name, kind, rows, more):
        data = tmp_path / "rows.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "task.yaml").write_text(TASK.format(name=name, data=data, kind=kind, more=more))
        found = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={
                "model": "llama",
                "base_url": f"{pockets.v1}/completions",
                "tokenizer": str(loaded_llama.folder),
                "tokenizer_backend": "huggingface",
                "max_length": 128,
                "num_concurrent": 2,
            },
            tasks=[name],
            task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
            bootstrap_iters=0,
        )
        return found["samples"][name]

    return run


def test_the_likelihoods_of_choices_are_those_of_the_model(samples, loaded_llama):
    found = samples("zoo_choices", "multiple_choice", CHOICES, CHOOSE)
    for sample in sorted(found, key=lambda sample: sample["doc_id"]):
        entry = CHOICES[sample["doc_id"]]
        expected = [likelihood(loaded_llama, entry["question"], f" {text}") for text in entry["choices"]]
        answered = [(float(value), greedy) for value, greedy in sample["filtered_resps"]]
        assert [value for value, _ in answered] == pytest.approx([v for v, _ in expected], abs=1e-3)
        assert [greedy in (True, "True") for _, greedy in answered] == [greedy for _, greedy in expected]


def likelihood(loaded, context, continuation):
    """The log-probability of a continuation, and whether the model would choose it."""
    start, ids = len(loaded.tokenizer.encode(context)), loaded.tokenizer.encode(context + continuation)
    logits = loaded.model(mx.array([ids[:-1]]))[0, start - 1 :].astype(mx.float32)  # (N, V)
    targets = mx.array(ids[start:])
    losses = nn.losses.cross_entropy(logits, targets)
    return -losses.sum().item(), bool(mx.all(logits.argmax(-1) == targets).item())


def test_generated_texts_are_those_of_zoo_generate(samples, loaded_llama):
    found = samples("zoo_texts", "generate_until", QUESTIONS, GENERATE)
    for sample in found:
        question = QUESTIONS[sample["doc_id"]]["question"]
        expected = zoo.generate(loaded_llama, question, max_tokens=8, stop=["."]).text
        assert sample["filtered_resps"] == [expected]
