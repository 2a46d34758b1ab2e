"""`zoo classify` and `zoo rerank`."""

from __future__ import annotations

import json
from typing import Any

import click

from zoo.cli.source_options import (
    ModelOptions,
    architecture_option,
    complete_source,
    dtype_option,
    model_options,
    revision_option,
    yes_option,
)


@click.command()
@click.argument("source", shell_complete=complete_source)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--pair", metavar="TEXT", help="Second text of each pair, for a model that reads pairs.")
@click.option("--tokens", is_flag=True, help="Print each labelled token, not runs of tokens of one label.")
@model_options(architecture_option, revision_option, yes_option, dtype_option)
def classify(
    source: str, texts: tuple[str, ...], pair: str | None, tokens: bool, options: ModelOptions
) -> None:
    """Label each TEXT, or its tokens, with SOURCE (an architecture, a folder or a hub id).

    Without TEXT it reads one text from each line of the input. It prints a JSON object a line: the best label and its
    score, and the scores of all. Models that label tokens give entities with their characters.
    """
    lines = _texts(texts, "classify")
    from zoo.errors import PromptError
    from zoo_classify.classify import classify as labels_of_texts
    from zoo_classify.classify import head_of, label_tokens

    loaded = options.load(source)
    if head_of(loaded).pooling == "each":
        if pair is not None:
            raise PromptError("--pair: the model labels the tokens of one text")
        for text, entities in zip(lines, label_tokens(loaded, lines, group=not tokens), strict=True):
            _print({"text": text, "entities": [_values(entity) for entity in entities]})
        return
    if tokens:
        raise PromptError("--tokens: the model labels texts, not tokens")
    results = labels_of_texts(loaded, lines if pair is None else [(text, pair) for text in lines])
    for text, labels in zip(lines, results, strict=True):
        both = {"text": text} if pair is None else {"text": text, "pair": pair}
        scores = {"scores": {label.label: label.score for label in labels}}
        _print({**both, **_values(labels[0]), **scores})


@click.command()
@click.argument("source", shell_complete=complete_source)
@click.argument("query")
@click.argument("documents", nargs=-1, metavar="[DOCUMENT]...")
@click.option("--top", "top_n", type=click.IntRange(1), metavar="N", help="Print the best N documents.")
@click.option(
    "--instruction", metavar="TEXT", help="What is sought, for a language model that answers yes or no."
)
@model_options(architecture_option, revision_option, yes_option, dtype_option)
def rerank(
    source: str,
    query: str,
    documents: tuple[str, ...],
    top_n: int | None,
    instruction: str | None,
    options: ModelOptions,
) -> None:
    """Sort each DOCUMENT by how well it answers QUERY, with SOURCE (an architecture, a folder or a hub id).

    Without DOCUMENT it reads one from each line of the input. SOURCE is a cross-encoder, or a language model such as
    Qwen3-Reranker. It prints a JSON object a line, the best document first.
    """
    lines = _texts(documents, "rank")
    from zoo_classify.rerank import rerank as sort_documents

    results = sort_documents(options.load(source), query, lines, top_n=top_n, instruction=instruction)
    for result in results:
        _print({**_values(result), "text": lines[result.index]})


def _texts(given: tuple[str, ...], verb: str) -> list[str]:
    """The texts given, else the lines of the input; PromptError for none."""
    from zoo.cli.run import read_pipe
    from zoo.errors import PromptError

    lines = list(given) or [line for line in read_pipe().splitlines() if line.strip()]
    if not lines:
        raise PromptError(f"there is no text to {verb}")
    return lines


def _values(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _print(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
