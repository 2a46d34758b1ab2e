"""The OpenAPI document of the server, written from the tables that check its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.version import __version__
from zoo_serve.endpoint import Endpoint
from zoo_serve.fields import OBJECT, TEXT, WHOLE, object_of
from zoo_serve.protocols import openai
from zoo_serve.protocols.ollama_fields import LIST_RESPONSE
from zoo_serve.requests import RequestError

ERRORS = {
    400: "A field is missing, unknown or out of bounds, or the model refuses the request.",
    401: "The API key is missing or wrong.",
    403: "The host or the origin may not ask.",
    404: "There is no such model or path.",
    408: "The request arrives, or its answer is read, too slowly.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    500: "The model failed.",
    503: "The server is loading, full, stopping, or has failed.",
}
MODEL = object_of(
    {
        "id": TEXT,
        "object": {"enum": ["model"]},
        "created": WHOLE,
        "owned_by": TEXT,
        "type": {"enum": ["model"]},
        "display_name": TEXT,
        "created_at": {**TEXT, "format": "date-time"},
        "lifecycle": {"enum": ["active"]},
        "zoo": OBJECT,
    }
)
MODELS = object_of(
    {
        "object": {"enum": ["list"]},
        "data": {"type": "array", "items": MODEL},
        "has_more": {"enum": [False]},
        "first_id": TEXT,
        "last_id": TEXT,
    }
)
HEALTH = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"enum": ["loading", "ready", "stopping", "failed"]}},
}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The document of these endpoints and of what else is served."""
    paths: dict[str, Any] = {endpoint.path: {"post": _operation(endpoint)} for endpoint in endpoints}
    paths["/v1/models"] = {
        "get": _get("The models, the first of which is used where a request names none.", MODELS)
    }
    paths["/v1/models/{name}"] = {
        "get": {
            **_get("One model.", MODEL, 404),
            "parameters": [{"name": "name", "in": "path", "required": True, "schema": TEXT}],
        }
    }
    for name, about in (("tags", "The models"), ("ps", "The models that are loaded")):
        paths[f"/api/{name}"] = {"get": _get(f"{about}, in Ollama's interface.", LIST_RESPONSE)}
    version = object_of({"version": TEXT})
    paths["/api/version"] = {"get": _get("The version of Ollama whose interface this is.", version)}
    health = _get("Whether the server is ready.", HEALTH)
    health["responses"]["503"] = _content("It is not.", "application/json", HEALTH)
    paths["/health"] = {"get": health}
    metrics = _get("Metrics in Prometheus' format.", TEXT)
    metrics["responses"]["200"] = _content("The metrics.", "text/plain", TEXT)
    paths["/metrics"] = {"get": metrics}
    return {
        "openapi": "3.1.0",
        "info": {"title": "zoo serve", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answer = _content("The answer.", "application/json", endpoint.response)
    if endpoint.stream is not None:
        kind = "application/x-ndjson" if endpoint.json_lines else "text/event-stream"
        answer["content"][kind] = {"schema": TEXT}
    return {
        "summary": endpoint.about,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": endpoint.fields.schema()}},
        },
        "responses": {"200": answer, **_errors(endpoint.error, ERRORS)},
    }


def _get(about: str, schema: Mapping[str, Any], *errors: int) -> dict[str, Any]:
    statuses = (401, 403, *errors)
    answer = {"200": _content(about, "application/json", schema)}
    return {"summary": about, "responses": {**answer, **_errors(openai.error, statuses)}}


def _errors(form: Any, statuses: Any) -> dict[str, Any]:
    """The responses of errors, whose schema is that of an example in the interface's form."""
    return {
        str(status): _content(ERRORS[status], "application/json", _schema(form(RequestError(status, ""))))
        for status in statuses
    }


def _schema(example: Any) -> dict[str, Any]:
    """The schema of a value like this one: an object's keys are required, a value of None may be a text."""
    if isinstance(example, Mapping):
        properties = {key: _schema(value) for key, value in example.items()}
        return {"type": "object", "required": list(example), "properties": properties}
    return {"type": "string"} if example is not None else {"type": ["string", "null"]}


def _content(about: str, kind: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": about, "content": {kind: {"schema": schema}}}
