"""Tool calls: declarations of tools for the chat template, and the calls in a model's answer."""

from __future__ import annotations

import inspect
import re
import string
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from zoo.errors import PromptError
from zoo.generation.chat.values import KINDS, read_value
from zoo.generation.loop.step import ToolCall
from zoo.runtime import ranks

Tool = Mapping[str, Any] | Callable[..., Any]

FORM = '{"type": "function", "function": {"name": …, "description": …, "parameters": {…}}}'

_LETTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9  # Mistral's templates take ids of nine letters and digits and no others
_ARGUMENT = re.compile(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


NAME_KEYS = ("name", "tool_name", "function")
ARGUMENT_KEYS = ("arguments", "parameters")


def call_of(value: object) -> ToolCall | None:
    """A call from an object `{"name": …, "arguments": {…}}`, with its id or a new one; None for anything else.

    Some models write "tool_name" or "function" for the name and "parameters" for the arguments; some write the arguments
    as JSON text, and some the whole as an object at "function".
    """
    if not isinstance(value, Mapping):
        return None
    if isinstance(function := value.get("function"), Mapping):
        value = {"id": value.get("id"), **function}
    name = next((value[key] for key in NAME_KEYS if value.get(key)), None)
    key = next((key for key in ARGUMENT_KEYS if key in value), None)
    if not isinstance(name, str) or key is None:
        return None
    arguments = value[key] or {}
    if isinstance(arguments, str):
        arguments = parse_arguments(arguments)
    return made_call(name, arguments, value.get("id")) if isinstance(arguments, dict) else None


def made_call(name: str, arguments: dict[str, Any], id: object = None) -> ToolCall:
    """A call with this id or, where that is no text, a new one."""
    new = "".join(Random(ranks.random_seed()).choices(_LETTERS, k=_ID_LENGTH))
    return ToolCall(id if isinstance(id, str) and id else new, name, arguments)


def parse_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call from JSON, or an object of Python; None where they are malformed."""
    try:
        value = read_value(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def parameters_of(tools: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """The JSON schema of the parameters of the declared tool `name`; empty without one."""
    declared = (tool["function"].get("parameters") for tool in tools if tool["function"]["name"] == name)
    return next(declared, None) or {}


def properties_of(schema: object) -> Mapping[str, Any]:
    """The schemas of an object's entries, by their names; empty where its schema declares none."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def declarations(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The declarations of tools for a template: JSON objects as they are, Python functions by `declaration`.

    PromptError, with the tool's number, for anything else, and for two tools of one name.
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise PromptError(f"`tools` must be a list of declarations or functions, got {tools!r:.60}")
    by_name: dict[str, dict[str, Any]] = {}
    for number, tool in enumerate(tools, 1):
        declared = declaration(tool) if not isinstance(tool, Mapping) and callable(tool) else tool
        is_declaration = isinstance(declared, Mapping) and declared.get("type") == "function"
        function = declared.get("function") if is_declaration else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            raise PromptError(f"`tools`: tool {number} must be a function or {FORM}, got {tool!r:.60}")
        if not isinstance(function.get("parameters", {}), Mapping):
            raise PromptError(f"`tools`: {name}: parameters must be a JSON schema (an object)")
        if name in by_name:
            raise PromptError(f"`tools`: two tools are called {name}")
        by_name[name] = dict(declared)
    return list(by_name.values())


def names_of(declared: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The names of declared tools."""
    return frozenset(tool["function"]["name"] for tool in declared)


def declaration(function: Callable[..., Any]) -> dict[str, Any]:
    """The declaration of a Python function: its name, the start of its docstring, its parameters by their type hints.

    Parameters may be str, int, float, bool, list, dict, Literal, and unions of these; those with a default may be left
    out. Lines `name: …` of the docstring's section "Args:" describe them. PromptError for a parameter without a type
    hint, or of another type.

    >>> from zoo.generation.chat.tools import declaration
    >>> def add(x: int, y: int = 1):
    ...     "Add two numbers."
    >>> declaration(add)["function"]["parameters"]["required"]
    ['x']
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        hints = get_type_hints(function)
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise PromptError(f"`tools`: {name}: its type hints cannot be read ({error})") from error
    about, described = _documented(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise PromptError(f"`tools`: {name}: {parameter} is no parameter that can be given by name")
        if parameter.name not in hints:
            raise PromptError(f"`tools`: {name}: its parameter {parameter.name} needs a type hint")
        schema = _schema(hints[parameter.name], f"{name}: {parameter.name}")
        if parameter.name in described:
            schema["description"] = described[parameter.name]
        properties[parameter.name] = schema
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph of a docstring, and the description of each parameter in its section "Args:"."""
    about = " ".join(text.split("\n\n", 1)[0].split())
    described: dict[str, str] = {}
    last: str | None = None
    _, _, section = text.partition("Args:\n")
    for line in section.split("\n"):
        if not line.strip() or not line.startswith(" "):
            break
        if found := _ARGUMENT.fullmatch(line.strip()):
            last, described[found[1]] = found[1], found[2]
        elif last is not None:
            described[last] += f" {line.strip()}"
    return about, described


def _schema(hint: object, where: str) -> dict[str, Any]:
    """The JSON schema of a type; PromptError, saying `where`, when it has none."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in KINDS:
        return {"type": KINDS[hint]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, where) for one in inner]}
    if origin is Literal:
        kinds = {KINDS.get(type(value)) for value in inner}
        if None in kinds or len(kinds) != 1:
            raise PromptError(f"`tools`: {where}: the values of a Literal must be of one plain type")
        return {"type": kinds.pop(), "enum": list(inner)}
    if hint is list or origin is list:
        return {"type": "array", **({"items": _schema(inner[0], where)} if inner else {})}
    if hint is dict or (origin is dict and inner[0] is str):
        more = {"additionalProperties": _schema(inner[1], where)} if inner and inner[1] is not Any else {}
        return {"type": "object", **more}
    if hint is Any:
        return {}
    raise PromptError(f"`tools`: {where}: {getattr(hint, '__name__', hint)} has no JSON schema")
