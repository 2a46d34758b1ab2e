"""A plugin with a task of its own: BERT with a classification head, and the strategy that names the labels."""

from dataclasses import dataclass, replace

import zoo_bert
from zoo.architecture import Block, Preset, Rename, Setting, Strategy, hookimpl
from zoo.recipe import Spec


@dataclass(frozen=True)
class ClassificationHead(Spec):
    """tanh(W h + b) of the first token, then a logit for each label (Devlin et al., 2018, section 4.1)."""

    kind, name = "head", "classification"
    labels: int

    def own_parameters(self, dim):
        return dim * dim + dim + (dim + 1) * self.labels


def recipe(config):
    labels = config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    return zoo_bert.bert(config).change(head=ClassificationHead(len(labels)))


@hookimpl
def zoo_blocks():
    yield Block(
        ClassificationHead,
        "tests.helpers.classifier_model:ClassificationHead",
        "a text's first state to labels",
    )


@hookimpl
def zoo_strategies():
    setting = Setting("labels", int, 3, minimum=1, help="How many labels are named.")
    yield Strategy("labels", "tests.helpers.classifier_model:stream", tasks=("label",), settings=(setting,))


@hookimpl
def zoo_architectures():
    bert = next(zoo_bert.zoo_architectures())
    yield replace(
        bert,
        name="bert-labels",
        summary="a label for a text",
        task="label",
        model_types=(),
        base="bert",
        recipe=recipe,
        weights=(
            Rename("bert.pooler.dense.*", "head.dense.*"),
            Rename("classifier.*", "head.output.*"),
            *zoo_bert.WEIGHTS,
        ),
        gguf=None,
        presets=(Preset("tiny", config=zoo_bert.TINY | {"id2label": {"0": "good", "1": "bad", "2": "odd"}}),),
    )


@hookimpl
def zoo_resolve(config):
    makers = config.get("architectures") or [""]
    return "bert-labels" if makers == ["BertForSequenceClassification"] else None
