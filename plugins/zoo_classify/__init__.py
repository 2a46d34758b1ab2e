"""Classifiers: a head of labels on an encoder or a decoder, `zoo classify` and `zoo rerank`. Imports no mlx."""

from zoo.architecture import (
    Block,
    Command,
    Drawing,
    ModuleProbe,
    Setting,
    Strategy,
    hookimpl,
)
from zoo_classify.head import ClassifierHead


@hookimpl
def zoo_architectures():
    from zoo_classify.families import classifiers

    return classifiers()


@hookimpl
def zoo_resolve(config):
    from zoo_classify.families import classifier_of

    return classifier_of(config)


@hookimpl
def zoo_blocks():
    yield Block(
        ClassifierHead, "zoo_classify.block:ClassifierHead", "a logit for each label of a text or token"
    )


@hookimpl
def zoo_strategies():
    yield Strategy(
        "classify",
        "zoo_classify.classify:stream",
        tasks=("classify",),
        settings=(Setting("top_k", int, 5, minimum=1, help="Number of labels to show, likeliest first."),),
        summary="the labels of a text, or of its tokens",
    )


@hookimpl
def zoo_commands():
    yield Command("classify", "zoo_classify.command:classify", "Give texts or their tokens labels.", "Run")
    yield Command(
        "rerank", "zoo_classify.command:rerank", "Sort documents by how they answer a query.", "Run"
    )


@hookimpl
def zoo_drawings():
    yield Drawing(ClassifierHead, "zoo_classify.drawing:classifier_head")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_classify.block:ClassifierHead", "zoo_classify.probe:ClassifierHeadProbe")
