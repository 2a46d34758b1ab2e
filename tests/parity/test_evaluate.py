"""`zoo evaluate --tasks`: item by item what lm-eval computes itself through transformers, on SmolLM2's weights.

The first layers are enough for that; all of them take part in the nightly tests.
"""

import json

import lm_eval
import pytest
from lm_eval.tasks import TaskManager
from transformers import AutoTokenizer

import zoo

from .smollm2 import read, reference_folder

from zoo_evaluate.harness import ZooLM  # isort: skip (after zoo, which loads the fast BLAS)
from zoo_evaluate.tasks import run_tasks  # isort: skip

CLOSE = 1e-3  # nats

CHOICES = [
    {"question": "The capital city of China is", "choices": ["Beijing", "Paris", "a river"], "answer": 0},
    {"question": "Water boils at a temperature of", "choices": ["100 degrees", "12 degrees"], "answer": 0},
    {"question": "中国的首都是", "choices": ["巴黎", "北京"], "answer": 1},
    {"question": "2 + 2 =", "choices": ["3", "4", "5", "22"], "answer": 1},
]
TEXTS = [
    {"question": "The capital of France is"},
    {"question": "def fibonacci(n):\n"},
    {"question": "The three primary colours are"},
    {"question": "Once upon a time, there was a little girl who"},
]
LONG = "The quick brown fox jumps over the lazy dog, and 1234567 more of them. " * 40
PASSAGES = [
    {"text": "The price of bread rose by 12 percent in 1847."},
    {"text": LONG},
    {"text": "中国的首都是北京。"},
]

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
{more}
"""
CHOOSE = """\
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]"""
LETTERS = """\
doc_to_text: "{{question}}\\nA. {{choices[0]}}\\nB. {{choices[1]}}\\nAnswer:"
doc_to_choice: ["A", "B"]
doc_to_target: "{{answer % 2}}"
fewshot_split: test
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]"""
GENERATE = """\
doc_to_text: "{{question}}"
doc_to_target: "."
generation_kwargs: {until: [".", "\\n\\n"], max_gen_toks: 16, do_sample: false}
metric_list: [{metric: bypass, aggregation: bypass, higher_is_better: true}]"""
ROLLING = """\
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false}]"""

TASKS = {
    "choices": ("multiple_choice", CHOICES, CHOOSE),
    "letters": ("multiple_choice", CHOICES, LETTERS),
    "texts": ("generate_until", TEXTS, GENERATE),
    "passages": ("loglikelihood_rolling", PASSAGES, ROLLING),
}


@pytest.fixture(scope="module", params=[6, pytest.param(30, marks=pytest.mark.nightly)])
def folder(tmp_path_factory, request):
    whole, first = reference_folder(tmp_path_factory), tmp_path_factory.mktemp("smollm2") / "float32"
    model = read(whole)
    model.model.layers = model.model.layers[: request.param]
    model.config.num_hidden_layers = request.param
    for part in (model, AutoTokenizer.from_pretrained(whole)):
        part.save_pretrained(first)
    return first


@pytest.fixture(scope="module")
def models(folder):
    """lm-eval's own model of the folder, and the zoo's. The context is short, so that a long text takes several windows."""
    theirs = lm_eval.api.registry.get_model("hf")(
        pretrained=str(folder), device="cpu", dtype="float32", batch_size=4, max_length=256
    )
    ours = ZooLM(zoo.load(folder))
    ours.max_length = 256
    return theirs, ours


def task_file(name, place):
    """A task's YAML file, with its data beside it."""
    kind, rows, more = TASKS[name]
    data, file = place / f"{name}.jsonl", place / f"{name}.yaml"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file.write_text(TASK.format(name=name, data=data, kind=kind, more=more))
    return str(file)


def evaluated(model, name, place, **settings):
    """The results of a task by lm-eval's own command's function."""
    manager = TaskManager(include_defaults=False)
    tasks = [task_file(name, place)]
    return lm_eval.simple_evaluate(model, tasks=tasks, task_manager=manager, bootstrap_iters=0, **settings)


def samples(model, name, place, **settings):
    """The items of a task with a model's answers, in order."""
    found = evaluated(model, name, place, **settings)
    return sorted(found["samples"][name], key=lambda item: item["doc_id"])


@pytest.fixture
def both(models, tmp_path, monkeypatch):
    """The function that gives the items of a task by lm-eval's model and by the zoo's."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return lambda name, **settings: [samples(model, name, tmp_path, **settings) for model in models]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("choices", {}),
        ("letters", {}),
        ("letters", {"num_fewshot": 2}),
        ("choices", {"apply_chat_template": True}),
        ("letters", {"apply_chat_template": True, "num_fewshot": 1}),
    ],
)
def test_the_likelihoods_of_choices(both, name, settings):
    theirs, ours = both(name, **settings)
    assert len(theirs) == len(ours) == len(CHOICES)
    for expected, found in zip(theirs, ours, strict=True):
        assert found["arguments"] == expected["arguments"]
        for one, other in zip(found["filtered_resps"], expected["filtered_resps"], strict=True):
            assert float(one[0]) == pytest.approx(float(other[0]), abs=CLOSE, rel=2e-5)
            assert str(one[1]) == str(other[1])
        assert found["acc"] == expected["acc"]


@pytest.mark.parametrize("settings", [{}, {"apply_chat_template": True}])
def test_the_texts_of_greedy_generation(both, settings):
    theirs, ours = both("texts", **settings)
    assert [item["filtered_resps"] for item in ours] == [item["filtered_resps"] for item in theirs]
    assert any(item["filtered_resps"][0] for item in ours)


def test_the_likelihoods_of_whole_texts(both):
    theirs, ours = both("passages")
    for expected, found in zip(theirs, ours, strict=True):
        (one,), (other,) = found["filtered_resps"], expected["filtered_resps"]
        assert float(one) == pytest.approx(float(other), abs=CLOSE, rel=1e-4)


@pytest.mark.parametrize(("name", "metric"), [("letters", "acc"), ("passages", "word_perplexity")])
def test_the_metrics_of_a_task(models, name, metric, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    theirs, ours = models
    expected = evaluated(theirs, name, tmp_path, num_fewshot=1)["results"][name][f"{metric},none"]
    monkeypatch.setattr(ZooLM, "__new__", lambda *_: ours)
    monkeypatch.setattr(ZooLM, "__init__", lambda *_: None)
    found = run_tasks(ours.loaded, [task_file(name, tmp_path)], num_fewshot=1)
    assert found[f"{name} {metric}"].interval().value == pytest.approx(expected, rel=1e-4)
