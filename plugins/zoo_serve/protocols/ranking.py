"""`/v1/rerank`, Jina's and Cohere's; `/v1/score` and `/classify`, vLLM's.

Sources: https://jina.ai/reranker, https://docs.cohere.com/reference/rerank, https://docs.vllm.ai (pooling models).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zoo_classify.rerank import ranked
from zoo_serve.endpoint import Endpoint
from zoo_serve.fields import FLAG, TEXT, WHOLE, Field, Fields, Schema, object_of, open_object_of
from zoo_serve.protocols import openai
from zoo_serve.requests import ClassificationRequest, RequestError, ScoreRequest

MOST_TEXTS = 2048
NUMBER: Schema = {"type": "number"}
TEXTS: Schema = {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1, "maxItems": MOST_TEXTS}]}
DOCUMENT: Schema = {"anyOf": [TEXT, open_object_of({"text": TEXT}, {})]}
USAGE = object_of({"prompt_tokens": WHOLE, "total_tokens": WHOLE})
INSTRUCTION = Field(TEXT, about="What is sought, for a language model that answers yes or no.")

RERANK_FIELDS = Fields(
    {
        "model": openai.MODEL,
        "query": Field(TEXT, about="The question."),
        "documents": Field(
            {"type": "array", "items": DOCUMENT, "minItems": 1, "maxItems": MOST_TEXTS},
            about="Texts, or objects with a `text`.",
        ),
        "top_n": Field({**WHOLE, "minimum": 1}, about="Return so many documents, the best ones."),
        "return_documents": Field(FLAG, about="False: without the texts of documents."),
        "instruction": INSTRUCTION,
    },
    required=("query", "documents"),
)


def parse_rerank(body: Mapping[str, Any]) -> ScoreRequest:
    """Parse the body of a request into pairs: the query with each document."""
    values, _ = RERANK_FIELDS.checked(body)
    documents = [one if isinstance(one, str) else one["text"] for one in values["documents"]]
    return ScoreRequest(
        model=values.get("model"),
        pairs=tuple((values["query"], document) for document in documents),
        instruction=values.get("instruction"),
        top_n=values.get("top_n"),
        texts=values.get("return_documents", True),
    )


def respond_rerank(request: ScoreRequest, result: tuple[str, list[float], int]) -> dict[str, Any]:
    """The documents, the best first."""
    model, scores, tokens = result
    results = []
    for item in ranked(scores)[: request.top_n]:
        text = {"document": {"text": request.pairs[item.index][1]}} if request.texts else {}
        results.append({"index": item.index, "relevance_score": item.score, **text})
    return {
        "id": f"rerank-{secrets.token_hex(12)}",
        "model": model,
        "usage": usage(tokens),
        "results": results,
    }


def usage(tokens: int) -> dict[str, int]:
    """The number of tokens that were read."""
    return {"prompt_tokens": tokens, "total_tokens": tokens}


RERANK = Endpoint(
    path="/v1/rerank",
    about="Sort documents by how they answer a query.",
    fields=RERANK_FIELDS,
    parse=parse_rerank,
    respond=respond_rerank,
    response=object_of(
        {
            "id": TEXT,
            "model": TEXT,
            "usage": USAGE,
            "results": {
                "type": "array",
                "items": object_of(
                    {"index": WHOLE, "relevance_score": NUMBER}, {"document": object_of({"text": TEXT})}
                ),
            },
        }
    ),
    error=openai.error,
)

SCORE_FIELDS = Fields(
    {
        "model": openai.MODEL,
        "text_1": Field(TEXTS, about="A query, or one a document."),
        "text_2": Field(TEXTS, about="A document or several."),
        "instruction": INSTRUCTION,
    },
    required=("text_1", "text_2"),
)


def parse_score(body: Mapping[str, Any]) -> ScoreRequest:
    """Parse the body of a request into pairs: one query with each document, or as many queries as documents, in order."""
    values, _ = SCORE_FIELDS.checked(body)
    first, second = (
        [value] if isinstance(value, str) else value for value in (values["text_1"], values["text_2"])
    )
    if len(first) not in (1, len(second)):
        message = f"`text_1` must be one text, or {len(second)} as `text_2`, got {len(first)}"
        raise RequestError(400, message, param="text_1")
    first = first * len(second) if len(first) == 1 else first
    pairs = tuple(zip(first, second, strict=True))
    return ScoreRequest(model=values.get("model"), pairs=pairs, instruction=values.get("instruction"))


def respond_score(request: ScoreRequest, result: tuple[str, list[float], int]) -> dict[str, Any]:
    """The score of each pair, in their order."""
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(result[1])]
    return _list("score", result, data)


def _list(kind: str, result: tuple[str, Any, int], data: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": f"{kind}-{secrets.token_hex(12)}", "object": "list", "created": int(time.time())}
    return {**head, "model": result[0], "data": data, "usage": usage(result[2])}


def _list_of(item: Schema) -> Schema:
    head: dict[str, Schema] = {"id": TEXT, "object": {"enum": ["list"]}, "created": WHOLE, "model": TEXT}
    return object_of({**head, "data": {"type": "array", "items": item}, "usage": USAGE})


SCORE = Endpoint(
    path="/v1/score",
    about="Score how documents answer queries.",
    fields=SCORE_FIELDS,
    parse=parse_score,
    respond=respond_score,
    response=_list_of(object_of({"index": WHOLE, "object": {"enum": ["score"]}, "score": NUMBER})),
    error=openai.error,
)

CLASSIFY_FIELDS = Fields(
    {"model": openai.MODEL, "input": Field(TEXTS, about=f"A text, or up to {MOST_TEXTS}.")},
    required=("input",),
)


def parse_classify(body: Mapping[str, Any]) -> ClassificationRequest:
    """Parse the body of a request."""
    values, _ = CLASSIFY_FIELDS.checked(body)
    texts = values["input"]
    return ClassificationRequest(
        model=values.get("model"), texts=(texts,) if isinstance(texts, str) else tuple(texts)
    )


def respond_classify(
    request: ClassificationRequest, result: tuple[str, list[tuple[str, list[float]]], int]
) -> dict[str, Any]:
    """The best label of each text, and the scores of all in the order of the model's."""
    data = [
        {"index": index, "label": label, "probs": scores, "num_classes": len(scores)}
        for index, (label, scores) in enumerate(result[1])
    ]
    return _list("classify", result, data)


CLASSIFY = Endpoint(
    path="/classify",
    about="Give texts labels.",
    fields=CLASSIFY_FIELDS,
    parse=parse_classify,
    respond=respond_classify,
    response=_list_of(
        object_of(
            {
                "index": WHOLE,
                "label": TEXT,
                "probs": {"type": "array", "items": NUMBER},
                "num_classes": WHOLE,
            }
        )
    ),
    error=openai.error,
)

# The second version of Cohere's interface, and vLLM's, have other paths.
RERANKS = (RERANK, replace(RERANK, path="/v2/rerank"), replace(RERANK, path="/rerank"))
ENDPOINTS = (*RERANKS, SCORE, replace(SCORE, path="/score"), CLASSIFY)
