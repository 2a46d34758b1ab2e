"""`/v1/embeddings`: OpenAI's Embeddings."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

from zoo_serve.endpoint import Endpoint
from zoo_serve.fields import TEXT, WHOLE, Field, Fields, object_of
from zoo_serve.protocols import openai
from zoo_serve.requests import EmbeddingRequest, Times

MOST_TEXTS = 2048

FIELDS = Fields(
    {
        "model": openai.MODEL,
        "input": Field(openai.PROMPTS, about=f"A text, token ids, or up to {MOST_TEXTS} of either."),
        "encoding_format": Field(
            {"enum": ["float", "base64"]}, about="base64: of little-endian numbers of 32 bits."
        ),
        "dimensions": Field(
            {**WHOLE, "minimum": 1}, about="Return the first numbers of each vector, scaled to length 1."
        ),
        "user": openai.IGNORED["user"],
    },
    required=("input",),
)


def parse(body: Mapping[str, Any]) -> EmbeddingRequest:
    """Parse the body of a request."""
    values, _ = FIELDS.checked(body)
    return EmbeddingRequest(
        model=values.get("model"),
        texts=openai.prompts_of(values, "input", MOST_TEXTS),
        dimensions=values.get("dimensions"),
        encoding=values.get("encoding_format", "float"),
    )


def respond(request: EmbeddingRequest, result: tuple[str, list[list[float]], int, Times]) -> dict[str, Any]:
    """The response of the vectors."""
    model, vectors, tokens = result[:3]
    data = [
        {"object": "embedding", "index": number, "embedding": _encode_vector(vector, request.encoding)}
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model, "data": data, "usage": usage}


def _encode_vector(vector: list[float], encoding: str) -> Any:
    return (
        vector if encoding == "float" else base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    )


RESPONSE = object_of(
    {
        "object": {"enum": ["list"]},
        "model": TEXT,
        "data": {
            "type": "array",
            "items": object_of(
                {
                    "object": {"enum": ["embedding"]},
                    "index": WHOLE,
                    "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}}, TEXT]},
                }
            ),
        },
        "usage": object_of({"prompt_tokens": WHOLE, "total_tokens": WHOLE}),
    }
)

ENDPOINT = Endpoint(
    path="/v1/embeddings",
    about="Make a vector of each text.",
    fields=FIELDS,
    parse=parse,
    respond=respond,
    response=RESPONSE,
    error=openai.error,
)
