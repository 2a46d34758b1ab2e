"""The application: all paths of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from zoo.describe.pages.template import asset, theme
from zoo_serve.access import Access, Guard
from zoo_serve.endpoint import Endpoint, ErrorForm
from zoo_serve.http import EndpointApp
from zoo_serve.openapi import document
from zoo_serve.protocols import (
    anthropic,
    chat,
    completions,
    embeddings,
    ollama,
    ollama_answers,
    openai,
    ranking,
    responses,
    tokens,
)
from zoo_serve.requests import RequestError
from zoo_serve.service import Service

ENDPOINTS: tuple[Endpoint, ...] = (
    chat.ENDPOINT,
    completions.ENDPOINT,
    responses.ENDPOINT,
    anthropic.ENDPOINT,
    anthropic.COUNT_TOKENS,
    embeddings.ENDPOINT,
    *ranking.ENDPOINTS,
    tokens.TOKENIZE,
    tokens.DETOKENIZE,
    *ollama.ENDPOINTS,
)
MANAGES = ("GET", "POST", "DELETE")  # methods of Ollama's paths that change models
PAGE = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"


def application(service: Service, access: Access) -> ASGIApp:
    """The ASGI application of a service."""
    files = page_files()
    routes = [
        Route(endpoint.path, EndpointApp(endpoint, service), methods=["POST"]) for endpoint in ENDPOINTS
    ]
    routes += [
        Route("/v1/models", _models),
        Route("/v1/models/{name:path}", _model),
        Route("/api/tags", _ollama_tags),
        Route("/api/ps", _ollama_loaded),
        Route("/api/version", _ollama_version),
        *(
            Route(f"/api/{action}{rest}", _ollama_unmanaged, methods=MANAGES)
            for action in ollama.UNMANAGED
            for rest in ("", "/{name:path}")
        ),
        Route("/health", _health),
        Route("/metrics", _metrics),
        Route("/openapi.json", _openapi),
        *(Route(path, _file(text, TYPES[Path(name).suffix])) for path, (name, text) in files.items()),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _not_found, Exception: _server_error})
    app.router.redirect_slashes = False
    app.state.service = service
    return Guard(app, access, ["/health", *files], error_form, service.metrics)


def page_files() -> dict[str, tuple[str, str]]:
    """The files of the server's page: the name and the text of each, by its path. Its colours are those of `zoo compare`."""
    page = {path.name: path.read_text(encoding="utf-8") for path in PAGE.iterdir() if path.suffix in TYPES}
    shared = {"base.css": theme() + asset("page.css"), "theme.js": asset("page.js")}
    return {f"/{name.replace('index.html', '')}": (name, text) for name, text in (page | shared).items()}


def error_form(path: str) -> ErrorForm:
    """The form of errors at a path: its interface's."""
    if path.startswith("/api/"):
        return ollama_answers.error
    return next((endpoint.error for endpoint in ENDPOINTS if path.startswith(endpoint.path)), openai.error)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: f"there is nothing at {request.url.path[:80]}", 405: "the method is not one of this path"}
    problem = RequestError(error.status_code, words.get(error.status_code, error.detail))
    return JSONResponse(error_form(request.url.path)(problem), error.status_code, error.headers)


async def _server_error(request: Request, error: Exception) -> Response:
    problem = RequestError(500, "the server failed at this request", code="internal_error")
    return JSONResponse(error_form(request.url.path)(problem), 500)


def _file(text: str, kind: str) -> Callable[[Request], Any]:
    headers = {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "cache-control": "no-cache",
    }

    async def serve(request: Request) -> Response:
        return Response(text, media_type=kind, headers=headers)

    return serve


def model_record(service: Service, name: str) -> dict[str, Any]:
    """A model as /v1/models lists it, for clients of either interface."""
    source = service.table.sources[name]
    state = "loaded" if source.holder in service.table.served else "available"
    return {
        "id": name,
        "object": "model",
        "created": STARTED,
        "owned_by": "zoo",
        # Of Anthropic's interface:
        "type": "model",
        "display_name": name if source.adapter else source.about.get("name", name),
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(STARTED)),
        "lifecycle": "active",
        "zoo": {**source.about, "state": state},
    }


STARTED = int(time.time())


async def _models(request: Request) -> Response:
    service: Service = request.app.state.service
    data = [model_record(service, name) for name in service.table.sources]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
    return JSONResponse({"object": "list", "data": data, "has_more": False, **ends})


async def _model(request: Request) -> Response:
    service: Service = request.app.state.service
    name = request.path_params["name"]
    if name in service.table.sources:
        return JSONResponse(model_record(service, name))
    return JSONResponse(openai.error(service.unknown_model(name)), 404)


async def _ollama_tags(request: Request) -> Response:
    sources = request.app.state.service.table.sources
    moment = ollama_answers.moment(STARTED)
    models = [
        ollama_answers.listed(name, source.about, size=source.about.get("bytes", 0), modified_at=moment)
        for name, source in sources.items()
    ]
    return JSONResponse({"models": models})


async def _ollama_loaded(request: Request) -> Response:
    service: Service = request.app.state.service
    models = []
    for name, model in list(service.table.served.items()):
        left = service.table.seconds_left(name, service.worker.unload_after)
        ends = {} if left is None else {"expires_at": ollama_answers.moment(time.time() + left)}
        about, size = service.table.sources[name].about, model.weight_bytes
        context = {} if about.get("context") is None else {"context_length": about["context"]}
        models.append(ollama_answers.listed(name, about, size=size, size_vram=size, **context, **ends))
    return JSONResponse({"models": models})


async def _ollama_version(request: Request) -> Response:
    return JSONResponse({"version": ollama_answers.VERSION})


async def _ollama_unmanaged(request: Request) -> Response:
    problem = ollama.unmanaged(request.url.path.removeprefix("/api/").partition("/")[0])
    return JSONResponse(ollama_answers.error(problem), problem.status)


async def _health(request: Request) -> Response:
    state = request.app.state.service.state
    return JSONResponse({"status": state}, 200 if state == "ready" else 503)


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    text = service.metrics.text(service.worker.counts)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _openapi(request: Request) -> Response:
    return JSONResponse(openapi_document())


def openapi_document() -> Mapping[str, Any]:
    """The OpenAPI document of the server."""
    return document(ENDPOINTS)
