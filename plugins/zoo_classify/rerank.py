"""How documents answer a query: by a cross-encoder, or by a language model that says yes or no. Axes: B batch, T length.

A cross-encoder is a classifier with one label that reads both as a pair. The language models are those of Zhang et al.,
2025 (arXiv:2506.05176): P(yes) of the two tokens "yes" and "no" after the published prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from zoo import runtime
from zoo.checkpoint.sentence_vectors import MODULES, PROMPTS
from zoo.errors import ConfigError, PromptError, warn
from zoo.files.reading import read_json, read_object
from zoo.frozen import Frozen, frozen
from zoo.generation import check_loaded
from zoo.generation.loop.prompt import encode_prompt, padded
from zoo.generation.sampling.logits import check_numbers
from zoo.loading import Loaded
from zoo.tokenizer.backend import TypedIds
from zoo_classify.classify import apply_function, batch_logits, batches_of, encode_texts, head_of
from zoo_classify.head import ClassifierHead
from zoo_classify.labels import labels_of, relevance_function_of

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
MOST = 8192  # tokens, as published
ANSWERS = ("no", "yes")


@frozen()
class Ranked(Frozen):
    """A document, by its `index` among those given, with its score."""

    index: int
    score: float


def rerank(
    loaded: Loaded,
    query: str,
    documents: Sequence[str],
    *,
    top_n: int | None = None,
    instruction: str | None = None,
) -> list[Ranked]:
    """The documents, or the `top_n` best of them, by how they answer a query, the best first; equal ones in their order.

    `instruction` tells a language model what is sought. The scores and errors are those of `score_pairs`.
    """
    if top_n is not None and (type(top_n) is not int or top_n < 1):
        raise PromptError(f"`top_n` must be a number of at least 1, got {top_n!r:.60}")
    if isinstance(documents, str):
        raise PromptError(f"`documents` must be a list of texts, got {documents!r:.60}")
    scores = score_pairs(loaded, [(query, document) for document in documents], instruction=instruction)
    return ranked(scores)[:top_n]


def ranked(scores: Sequence[float]) -> list[Ranked]:
    """Scores in their order, the best first."""
    return sorted((Ranked(index, score) for index, score in enumerate(scores)), key=lambda item: -item.score)


def score_pairs(
    loaded: Loaded, pairs: Sequence[tuple[str, str]], *, instruction: str | None = None
) -> list[float]:
    """How well the second text of each pair answers the first.

    A cross-encoder's scores are its logits by the activation that its config names, else by a sigmoid. PromptError for a
    model with several labels, an `instruction` for a cross-encoder, and a model that does neither.
    """
    rows = encode_pairs(loaded, pairs, instruction)
    found: dict[int, float] = {}
    for chosen in batches_of(loaded, rows):
        found |= zip(chosen, batch_scores(loaded, [rows[pair] for pair in chosen]), strict=True)
    return [found[pair] for pair in range(len(rows))]


def encode_pairs(
    loaded: Loaded, pairs: Sequence[tuple[str, str]], instruction: str | None = None
) -> list[TypedIds]:
    """The ids of each pair as the model reads it, cut where it is too long. For any thread; errors as `score_pairs`."""
    check_loaded(loaded, "rerank")
    if not pairs:
        raise PromptError("there is no document to score")
    for text in (text for pair in pairs for text in pair):
        if not isinstance(text, str) or not text.strip():
            raise PromptError(f"a query and a document must be texts that are not empty, got {text!r:.60}")
    if judges(loaded):
        check_answers(loaded)
        return _encode_prompts(loaded, pairs, INSTRUCTION if instruction is None else instruction)
    if instruction is not None:
        raise PromptError("`instruction`: a cross-encoder reads a query and a document alone")
    head = head_of(loaded)
    if head.pooling == "each" or len(labels_of(loaded.config)) != 1:
        what = "labels tokens" if head.pooling == "each" else f"has {head.vocab} labels"
        raise PromptError(f"{loaded.name} {what}; documents are ranked by one score: `zoo classify` runs it")
    relevance_function(loaded)  # checks it
    return encode_texts(loaded, pairs)


def relevance_function(loaded: Loaded) -> str:
    """What a cross-encoder makes of its logit: as sentence-transformers' file in its folder says, else as its config.json.

    ConfigError for what that file asks for besides.
    """
    told = read_object(loaded.folder, PROMPTS, ConfigError) if Path(loaded.folder).is_dir() else {}
    if told.get("default_prompt_name") is not None:
        raise ConfigError(
            f"{loaded.folder / PROMPTS}: default_prompt_name is not implemented for a cross-encoder"
        )
    if told.get("activation_fn") is None:
        return relevance_function_of(loaded.config)
    return relevance_function_of({"sentence_transformers": told}, str(loaded.folder / PROMPTS))


def check_answers(loaded: Loaded) -> None:
    """ConfigError where a folder's LogitScore module compares other tokens than "yes" and "no"."""
    modules = read_json(loaded.folder, MODULES, ConfigError) if Path(loaded.folder).is_dir() else None
    for module in modules if isinstance(modules, list) else ():
        if str(module.get("type")).endswith(".LogitScore"):
            file = f"{module.get('path')}/config.json"
            values = read_object(loaded.folder, file, ConfigError)
            told = [values.get("false_token_id"), values.get("true_token_id")]
            if loaded.tokenizer is None or told != [loaded.tokenizer.id(token) for token in ANSWERS]:
                why = "names other tokens than no and yes, which is not implemented"
                raise ConfigError(f"{loaded.folder / file}: {why}: {told}")


def judges(loaded: Loaded) -> bool:
    """Whether the model is a language model, which answers yes or no."""
    causal = loaded.architecture.task == "generate" and loaded.architecture.causality == "causal"
    return causal and not isinstance(loaded.recipe.head, ClassifierHead)


def _encode_prompts(loaded: Loaded, pairs: Sequence[tuple[str, str]], instruction: str) -> list[TypedIds]:
    """The prompts that ask whether each document answers its query; PromptError where the vocabulary has not the tokens."""
    tokenizer = loaded.tokenizer
    missing = [
        token
        for token in (*ANSWERS, "<|im_start|>", "<|im_end|>")
        if tokenizer is None or tokenizer.id(token) is None
    ]
    if tokenizer is None or missing:
        raise PromptError(f"{loaded.name} is no reranker: its vocabulary has no token {', '.join(missing)}")
    template = tokenizer.chat_template or ""
    if "rerank" not in loaded.name.lower() and "Judge whether the Document" not in template:
        warn(
            f"{loaded.name} may not have been trained to rank: a score is its probability of yes as the answer to Qwen3-Reranker's question"
        )
    before, after = (tokenizer.encode(text, special_tokens=False) for text in (BEFORE, AFTER))
    most = min(MOST, loaded.recipe.context or MOST) - len(before) - len(after)
    rows, cut = [], False
    for query, document in pairs:
        text = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
        own = tokenizer.encode(tokenizer.beginning(text, most), special_tokens=False)
        cut = cut or len(own) > most
        ids = (*before, *own[:most], *after)
        rows.append(TypedIds(ids, (0,) * len(ids), (None,) * len(ids), len(own) > most))
    if cut:
        warn(f"queries and documents of more than {most:,} tokens together are cut")
    encode_prompt(loaded, rows[0].ids)  # checks the prompt's own tokens
    return rows


def batch_scores(loaded: Loaded, rows: Sequence[TypedIds]) -> list[float]:
    """The scores of some pairs, read in one pass."""
    if not judges(loaded):
        function = relevance_function(loaded)
        logits = mx.concatenate(batch_logits(loaded, rows))  # (B,)
        return apply_function(function, logits).tolist()  # type: ignore[no-any-return]
    runtime.check_not_forked()
    assert loaded.tokenizer is not None
    answers = mx.array([loaded.tokenizer.id(token) for token in ANSWERS])
    tokens, mask = padded([row.ids for row in rows], left=True)  # (B, T)
    with runtime.eager():
        states = loaded.model.backbone(tokens, mask=mask)  # type: ignore[operator]
        logits = loaded.model.head(states[:, -1:])[:, -1, answers]  # type: ignore[operator]
    probabilities = mx.softmax(logits.astype(mx.float32), axis=-1)[:, 1]  # (B,)
    mx.eval(probabilities)
    check_numbers(probabilities.max().item(), "a pair's score")
    return probabilities.tolist()  # type: ignore[no-any-return]
