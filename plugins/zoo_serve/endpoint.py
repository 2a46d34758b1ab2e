"""`Endpoint`: one path of the server. A protocol is a file of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from zoo.frozen import Frozen, frozen
from zoo_serve.fields import Fields, Schema
from zoo_serve.requests import Answer, Delta, Request, RequestError

Event = tuple[
    str | None, Any
]  # of a stream: its name, where the interface names events, and its data, JSON or a text
ErrorForm = Callable[[RequestError], Mapping[str, Any]]


class EventStream(Protocol):
    """Turns the parts of one answer into events. It is made with the request and the answer, which grows meanwhile."""

    def start(self) -> Iterable[Event]:
        """The events before the first part."""

    def add(self, delta: Delta) -> Iterable[Event]:
        """The events of a part, which the answer has already."""

    def end(self) -> Iterable[Event]:
        """The events after the last part."""

    def failed(self, error: RequestError) -> Iterable[Event]:
        """The events of an error after which nothing more comes."""


@frozen(kw_only=True)
class Endpoint(Frozen):
    """A path that takes a JSON object.

    `parse` makes a request of the object; RequestError for one that cannot be answered. `respond` makes the JSON of the
    response of the request and its result: an `Answer`, or what the service gives for other requests. `stream` makes the
    events of an answer whose request asks for a stream: server-sent events, or with `json_lines` lines of JSON. With `any_type`
    a body is JSON whatever its header says, as Ollama's clients and `curl -d` send it; a page of another site is then refused
    by its origin alone. `error` is the form of errors. `response` is the JSON Schema of the response, `about` what the
    endpoint is for.
    """

    path: str
    about: str
    fields: Fields
    parse: Callable[[Mapping[str, Any]], Request]
    respond: Callable[[Any, Any], Mapping[str, Any]]
    response: Schema
    stream: Callable[[Any, Answer], EventStream] | None = None
    json_lines: bool = False
    any_type: bool = False
    error: ErrorForm
