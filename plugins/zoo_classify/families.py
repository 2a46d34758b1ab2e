"""The architectures that have classifiers: the head of each, and its tensors. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import zoo_bert
import zoo_distilbert
import zoo_gemma
import zoo_llama
import zoo_modernbert
import zoo_roberta
from zoo.architecture import Architecture, Preset, Rename, Rule
from zoo.config import Config
from zoo.frozen import frozen
from zoo.recipe import Spec
from zoo_classify.head import ClassifierHead
from zoo_classify.labels import labels_of

SEQUENCE, TOKEN = "ForSequenceClassification", "ForTokenClassification"
# Of a head: its fields beside pooling and labels, given the config, the model below it, and whether each token has labels.
Fields = Callable[[Config, Any, bool], dict[str, Any]]


@frozen()
class DenseRename(Rename):
    """The tensor of a dense layer, which a head has not that labels each token: other rules then take the tensor."""

    def forward(self, source, target, recipe, join):
        if recipe.head.activation is not None:
            super().forward(source, target, recipe, join)

    def backward(self, source, target, recipe, join):
        if recipe.head.activation is not None:
            super().backward(source, target, recipe, join)


def bert_head(config: Config, model: Any, each: bool) -> dict[str, Any]:
    """BERT's pooler, the dense layer that it was trained with for pairs of sentences."""
    return {} if each else dict(activation="tanh")


BERT = (
    DenseRename("[bert.]pooler.dense.*", "head.dense.*"),
    Rename("classifier.*", "head.output.*"),
)


ROBERTA = (
    DenseRename("classifier.dense.*", "head.dense.*"),
    DenseRename("classifier.out_proj.*", "head.output.*"),
    Rename("classifier.*", "head.output.*"),
)


def distilbert_head(config: Config, model: Any, each: bool) -> dict[str, Any]:
    """A dense layer with a ReLU."""
    return {} if each else dict(activation="relu")


DISTILBERT = (
    DenseRename("pre_classifier.*", "head.dense.*"),
    Rename("classifier.*", "head.output.*"),
)


def modernbert_head(config: Config, model: Any, each: bool) -> dict[str, Any]:
    """The head of ModernBERT's training, with labels for the vocabulary; `classifier_pooling` is "cls" or "mean"."""
    pooling = {"cls": "first", "mean": "mean"}[config.choice("classifier_pooling", ("cls", "mean"), "cls")]
    return dict(
        activation=config.activation("classifier_activation", "gelu"),
        dense_bias=config.flag("classifier_bias", False),
        norm=model.norm,
        **({} if each else {"pooling": pooling}),
    )


MODERNBERT = (
    Rename("head.dense.*", "head.dense.*"),
    Rename("head.norm.*", "head.norm.*"),
    Rename("classifier.*", "head.output.*"),
)


def score_head(config: Config, model: Any, each: bool) -> dict[str, Any]:
    """One matrix without a bias, read at the last token; with a bias where each token has labels."""
    if config.get("is_causal") is False:
        raise config.error("is_causal", "is not implemented for a classifier")
    return {} if each else dict(bias=False, pooling="last")


SCORE = (Rename("score.*", "head.output.*"),)


def classifier(
    base: Architecture, fields: Fields, rules: Sequence[Rule], prefix: str, presets: Sequence[Preset] = ()
) -> Architecture:
    """The architecture NAME-classifier: the model of `base` with a head of labels, whose tensors `rules` name.

    `prefix` is that of transformers' classes: "Bert" of BertForSequenceClassification.
    """

    def recipe(config: Config) -> Spec:
        each = any(str(name).endswith(TOKEN) for name in config.get("architectures", [prefix + SEQUENCE]))
        model = base.recipe(config)
        pooling: dict[str, Any] = dict(bias=True, pooling="each" if each else "first")
        given = pooling | fields(config, model, each)
        config.ignore("problem_type", "sentence_transformers", "sbert_ce_default_activation_function")
        return model.change(head=ClassifierHead(vocab=len(labels_of(config)), **given))

    def quantizes(path: str, quantization: Any) -> Any:
        if path.startswith("head."):
            return None  # small, and all labels depend on it
        return base.quantizes(path, quantization) if base.quantizes else quantization

    numbers = dict(architectures=[prefix + SEQUENCE], num_labels=3)
    small = [(preset.name, preset.config) for preset in base.presets if preset.name in ("pocket", "tiny")]
    return replace(
        base,
        name=f"{base.name}-classifier",
        base=base.name,
        summary="its base with a head that labels texts or their tokens",
        task="classify",
        model_types=(),
        recipe=recipe,
        weights=(*rules, *base.weights),
        mlx_weights=None if base.mlx_weights is None else (*rules, *base.mlx_weights),
        gguf=None,
        quantizes=quantizes,
        presets=(*presets, *(Preset(name, config={**(config or {}), **numbers}) for name, config in small)),
        prediction=None,
    )


def named(module: Any, name: str) -> Architecture:
    """The architecture of a name among those of a plugin's module."""
    return next(found for found in module.zoo_architectures() if found.name == name)


MINILM = dict(
    zoo_bert.MINILM,
    architectures=["BertForSequenceClassification"],
    num_labels=1,
    sbert_ce_default_activation_function="torch.nn.modules.linear.Identity",
)


def classifiers() -> Iterator[Architecture]:
    """The architectures of classifiers."""
    reranker = Preset(
        "reranker",
        "sorts English passages by how they answer a question",
        hub="cross-encoder/ms-marco-MiniLM-L6-v2",
        config=MINILM,
        licence="Apache-2.0",
    )
    yield classifier(named(zoo_bert, "bert"), bert_head, BERT, "Bert", [reranker])
    yield classifier(named(zoo_modernbert, "modernbert"), modernbert_head, MODERNBERT, "ModernBert")
    yield classifier(named(zoo_roberta, "roberta"), bert_head, ROBERTA, "Roberta")
    yield classifier(named(zoo_distilbert, "distilbert"), distilbert_head, DISTILBERT, "DistilBert")
    for module, name, prefix in DECODERS:
        yield classifier(named(module, name), score_head, SCORE, prefix)


DECODERS = (
    (zoo_llama, "llama", "Llama"),
    (zoo_llama, "mistral", "Mistral"),
    (zoo_llama, "qwen2", "Qwen2"),
    (zoo_llama, "qwen3", "Qwen3"),
    (zoo_gemma, "gemma2", "Gemma2"),
)
# Names of classes to the architectures, by the prefix.
PREFIXES = {
    "Bert": "bert",
    "ModernBert": "modernbert",
    "DistilBert": "distilbert",
    **dict.fromkeys(("Roberta", "XLMRoberta"), "roberta"),
} | {prefix: name for _, name, prefix in DECODERS}


def classifier_of(config: Mapping[str, Any]) -> str | None:
    """The name of the architecture of a config whose `architectures` name a classifier that the zoo has; else None."""
    classes = config.get("architectures")
    for name in classes if isinstance(classes, list) else ():
        for ending in (SEQUENCE, TOKEN):
            base = PREFIXES.get(str(name).removesuffix(ending))
            if str(name).endswith(ending) and base is not None:
                return f"{base}-classifier"
    return None
