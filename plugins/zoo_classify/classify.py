"""Texts, pairs of texts and tokens to labels. Axes: N texts, B batch, S length, D width, C labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import mlx.core as mx

from zoo import runtime
from zoo.errors import PromptError, TokenizerError, ZooError, warn
from zoo.files.reading import read_object
from zoo.frozen import Frozen, frozen
from zoo.generation import check_loaded
from zoo.generation.loop.prompt import encode_prompt, in_batches, padded
from zoo.generation.loop.step import Step
from zoo.generation.sampling.logits import check_numbers
from zoo.generation.strategies.embedding import BATCH, pool
from zoo.loading import Loaded
from zoo.tokenizer.backend import TypedIds
from zoo_classify.head import ClassifierHead
from zoo_classify.labels import function_of, labels_of

Text = str | tuple[str, str] | Sequence[int]
MOST_TOKENS = 2**14  # of a pass, padding included, unless one text has more
NO_LABEL = "O"  # of a token outside all entities, which transformers' pipeline leaves out


@frozen()
class Label(Frozen):
    """A label of a text and its score."""

    label: str
    score: float


@frozen()
class Entity(Frozen):
    """A part of a text with one label: its characters from `start` to `end`, and the mean score of its tokens."""

    label: str
    score: float
    text: str
    start: int
    end: int


def classify(loaded: Loaded, texts: Sequence[Text]) -> list[list[Label]]:
    """The labels of each of N texts with their scores, the best first.

    A text is a text, a pair of texts (a tuple) or token ids. Scores are what transformers' pipeline makes of the logits: by
    `problem_type`, else a sigmoid of one logit and a softmax of several. A text beyond the model's length is cut, with a
    warning. PromptError for an empty text, and for a model without such a head.

    >>> from zoo_classify.classify import classify
    >>> classify(zoo.load("llama"), ["Nice."])
    Traceback (most recent call last):
    zoo.errors.PromptError: llama has no head of labels: its task is generate, not classify; `zoo run` runs it
    """
    if head_of(loaded).pooling == "each":
        raise PromptError("the model labels tokens, not texts: zoo_classify.classify.label_tokens")
    names, function = labels_of(loaded.config), function_of(loaded.config)
    results = []
    for logits in logits_of(loaded, encode_texts(loaded, texts)):
        scores = zip(names, apply_function(function, logits).tolist(), strict=True)
        labels = [Label(name, score) for name, score in scores]
        results.append(sorted(labels, key=lambda label: -label.score))
    return results


def label_tokens(loaded: Loaded, texts: Sequence[str], *, group: bool = True) -> list[list[Entity]]:
    """The entities of each of N texts: tokens with labels but "O", or, with `group`, runs of those of one kind.

    Runs are those of transformers' "simple" aggregation: labels are joined with those after them of the same name, and "B-"
    begins another. PromptError for a model without such a head, and a tokenizer that does not say which characters a token has.
    """
    if head_of(loaded).pooling != "each":
        raise PromptError("the model labels texts, not tokens: zoo_classify.classify.classify")
    names, texts = labels_of(loaded.config), list(texts)
    rows = encode_texts(loaded, texts)
    results = []
    for text, row, logits in zip(texts, rows, logits_of(loaded, rows), strict=True):
        if not isinstance(text, str):
            raise PromptError("tokens are labelled in a text, not in a pair of texts or ids")
        if all(place is None for place in row.offsets):
            raise PromptError("the tokenizer does not say which characters a token has")
        scores = mx.softmax(logits, axis=-1)  # (S, C)
        best, likeliest = scores.max(axis=-1).tolist(), mx.argmax(scores, axis=-1).tolist()
        tokens = [
            Entity(names[label], score, text[place[0] : place[1]], *place)
            for label, score, place in zip(likeliest, best, row.offsets, strict=True)
            if place is not None
        ]
        entities = group_entities(text, tokens) if group else tokens
        results.append([entity for entity in entities if entity.label != NO_LABEL])
    return results


def group_entities(text: str, tokens: Iterable[Entity]) -> list[Entity]:
    """Runs of tokens of one kind, without the "B-" and "I-" of their labels; "B-" begins a run."""
    runs: list[list[Entity]] = []
    for token in tokens:
        begins = token.label.startswith("B-") or not runs
        if begins or _kind(token.label) != _kind(runs[-1][-1].label):
            runs.append([])
        runs[-1].append(token)
    return [
        Entity(
            run[0].label.partition("-")[2] or run[0].label,
            sum(token.score for token in run) / len(run),
            text[run[0].start : run[-1].end],
            run[0].start,
            run[-1].end,
        )
        for run in runs
    ]


def _kind(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


def head_of(loaded: Loaded) -> ClassifierHead:
    """The model's head of labels; PromptError, saying what the model does, for one without."""
    check_loaded(loaded, "classify")
    head = loaded.recipe.head
    if not isinstance(head, ClassifierHead):
        task = loaded.recipe.task if loaded.recipe.head is None else loaded.architecture.task
        command = "embed" if task == "encode" else "run"
        raise PromptError(
            f"{loaded.name} has no head of labels: its task is {task}, not classify; `zoo {command}` runs it"
        )
    return head


def encode_texts(loaded: Loaded, texts: Sequence[Text]) -> list[TypedIds]:
    """The ids of N texts, pairs of texts or lists of ids, cut to what the model reads. For any thread."""
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise PromptError(f"`texts` must be a list of texts, got {texts!r:.60}")
    texts = list(texts)
    if not texts:
        raise PromptError("there is no text to classify")
    most = longest(loaded)
    rows = [_encode(loaded, text, most) for text in texts]
    if any(row.cut for row in rows):
        warn(f"texts of more than {most:,} tokens are cut: the model reads at most that many")
    return rows


def _encode(loaded: Loaded, text: Text, most: int | None) -> TypedIds:
    pair = isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)
    parts = text if pair else (text,)
    if any(isinstance(part, str) and not part.strip() for part in parts) or not text:
        raise PromptError("a text to classify is empty")
    if not isinstance(parts[0], str):
        ids = tuple(encode_prompt(loaded, text))  # type: ignore[arg-type]
        return TypedIds(ids, (0,) * len(ids), (None,) * len(ids))
    if loaded.tokenizer is None:
        raise PromptError(
            f"{loaded.folder}: has no tokenizer, so a text must be a list of token ids: [1, 2, 3]"
        )
    try:
        row = loaded.tokenizer.encode_pair(*parts, most=most)  # type: ignore[misc]
    except TokenizerError as error:
        raise PromptError(str(error)) from error
    encode_prompt(loaded, row.ids)  # checks them
    return row


def longest(loaded: Loaded) -> int | None:
    """The most tokens of a text: those that the model or its tokenizer_config.json takes; None where neither says."""
    limits = [loaded.recipe.context]
    if Path(loaded.folder).is_dir():
        limits.append(read_object(loaded.folder, "tokenizer_config.json", ZooError).get("model_max_length"))
    known = [int(n) for n in limits if isinstance(n, int | float) and not isinstance(n, bool) and n > 0]
    return min(known) if known else None


def logits_of(loaded: Loaded, rows: Sequence[TypedIds]) -> list[mx.array]:
    """The logits of each text in float32: (C,), or (S, C) where each token has labels."""
    found: dict[int, mx.array] = {}
    for chosen in batches_of(loaded, rows):
        found |= zip(chosen, batch_logits(loaded, [rows[text] for text in chosen]), strict=True)
    return [found[text] for text in range(len(rows))]


def batches_of(loaded: Loaded, rows: Sequence[TypedIds]) -> list[list[int]]:
    """The indices of texts that share a pass: those of like length, as many as have `MOST_TOKENS` together."""
    lengths = [len(row.ids) for row in rows]
    batches: list[list[int]] = []
    for chosen in in_batches(loaded, lengths, BATCH):
        batches.append([])
        for text in chosen:  # the longest comes first
            if batches[-1] and (len(batches[-1]) + 1) * lengths[batches[-1][0]] > MOST_TOKENS:
                batches.append([])
            batches[-1].append(text)
    return batches


def batch_logits(loaded: Loaded, rows: Sequence[TypedIds]) -> list[mx.array]:
    """The logits of some texts, read in one pass."""
    runtime.check_not_forked()
    model, head = loaded.model, head_of(loaded)
    left = not model.encodes
    tokens, mask = padded([row.ids for row in rows], left)  # (B, S)
    with runtime.eager():
        if model.encodes:
            types = [row.types for row in rows]
            second = any(map(any, types)) and getattr(loaded.recipe.embedding, "token_types", 1) > 1
            inputs = {"token_types": padded(types)[0]} if second else {}
            states = model.encode(tokens, mask, **inputs)  # type: ignore[operator]
        else:
            states = model.backbone(tokens, mask=mask)  # type: ignore[operator]
        if head.pooling != "each":
            seen = mx.ones(tokens.shape, mx.int32) if mask is None else mask
            if head.pooling == "last" and isinstance(pad := loaded.config.get("pad_token_id"), int):
                # transformers reads the last token that is not the padding's, whatever stands there.
                seen = mx.where(tokens == pad, 0, seen)
            states = pool(states, seen, head.pooling).astype(states.dtype)[:, None]  # (B, 1, D)
        logits = model.head(states).astype(mx.float32)  # type: ignore[operator]
    mx.eval(logits)
    check_numbers(logits.max().item(), "a text's labels")
    if head.pooling != "each":
        return list(logits[:, 0])
    return [
        row_logits[-len(row.ids) :] if left else row_logits[: len(row.ids)]
        for row, row_logits in zip(rows, logits, strict=True)
    ]


def apply_function(function: str, logits: mx.array) -> mx.array:
    """Scores (C,) of logits (C,): by "softmax", "sigmoid" or "tanh", or, by "none", these themselves."""
    functions = {"softmax": lambda x: mx.softmax(x, axis=-1), "sigmoid": mx.sigmoid, "tanh": mx.tanh}
    return functions[function](logits) if function != "none" else logits


def stream(loaded: Loaded, prompt: str | Sequence[int], *, top_k: int) -> Iterator[Step]:
    """The `top_k` likeliest labels of a text, best first, or the entities of a text, a `Step` each.

    A step's text is a line, "0.9312  POSITIVE"; its `candidate` has `label` and `score`, and of an entity `text`, `start`
    and `end`. PromptError, before anything runs, for an empty text.
    """
    results: Sequence[Label | Entity]
    if head_of(loaded).pooling == "each" and isinstance(prompt, str):
        results = label_tokens(loaded, [prompt])[0]
    elif head_of(loaded).pooling == "each":
        rows = encode_texts(loaded, [prompt])
        names, logits = labels_of(loaded.config), logits_of(loaded, rows)[0]
        best = mx.argmax(logits, axis=-1).tolist()
        scores = mx.softmax(logits, axis=-1).max(axis=-1).tolist()
        results = [Label(names[label], score) for label, score in zip(best, scores, strict=True)]
    else:
        results = classify(loaded, [prompt])[0][:top_k]
    return _steps(results)


def _steps(results: Sequence[Label | Entity]) -> Iterator[Step]:
    for number, result in enumerate(results, 1):
        values = {name: getattr(result, name) for name in result.__dataclass_fields__}
        line = f"{result.score:.4f}  {result.label}" + (f"  {values['text']}" if "text" in values else "")
        yield Step(
            None, f"{line}\n", finish_reason=None if number < len(results) else "stop", candidate=values
        )
    if not results:
        yield Step(None, "", finish_reason="stop")
