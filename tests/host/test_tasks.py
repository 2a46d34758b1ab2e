"""A task that the zoo does not have is a plugin's own: an architecture that does it, a strategy that serves it."""

import json

import pytest

import zoo
from tests.helpers import classifier
from zoo.checkpoint.convert import save
from zoo.errors import PluginError
from zoo.host.plugins import collect
from zoo.host.registry import default_registry, isolated, using
from zoo.testing import check_architecture, subject


@pytest.fixture(scope="module")
def known():
    return isolated(classifier)


@pytest.fixture
def classifier_folder(known, tmp_path):
    """A folder of random weights, as transformers writes one, with BERT's own tokenizer."""
    made, path = subject("bert-labels", "tiny", known), tmp_path / "model"
    save(path, made.model, made.architecture, made.recipe, made.numbers, registry=known)
    config = json.loads((path / "config.json").read_text())
    labels = {"0": "good", "1": "bad", "2": "odd"}
    changed = config | {"architectures": ["BertForSequenceClassification"], "id2label": labels}
    (path / "config.json").write_text(json.dumps(changed))
    return path


@pytest.mark.slow
def test_a_classifier_of_a_plugin_passes_the_suite(known):
    check_architecture("bert-labels", registry=known)


def test_its_folder_is_found_and_its_strategy_runs_it(known, classifier_folder, command):
    loaded = zoo.load(classifier_folder, registry=known)
    steps = list(zoo.stream(loaded, [1, 2, 3]))
    assert {step.candidate["label"] for step in steps} == {"good", "bad", "odd"}
    assert sum(step.candidate["probability"] for step in steps) == pytest.approx(1.0)
    assert steps[-1].finish_reason == "stop"
    with using(known):
        shown = json.loads(command("show", classifier_folder, "--json").stdout)
        refused = command("train", "bert-labels", "--out", classifier_folder.parent / "out")
    assert shown["task"] == "label"
    assert refused.returncode == 1 and "no objective trains bert-labels: label" in refused.stderr


def test_a_task_needs_an_architecture_and_a_strategy_in_one_plugin():
    class OnlyArchitectures:
        zoo_architectures = staticmethod(classifier.zoo_architectures)

    class OnlyStrategies:
        zoo_strategies = staticmethod(classifier.zoo_strategies)

    for plugin, name in (
        (OnlyArchitectures, "architecture bert-labels"),
        (OnlyStrategies, "strategy labels"),
    ):
        with pytest.raises(PluginError, match=f"{name}: task 'label' is not one of generate, translate"):
            collect(plugin())
    assert "label" not in {architecture.task for architecture in default_registry().architectures.values()}
