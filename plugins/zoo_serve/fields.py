"""Tables of the fields of requests: what is read, which setting a field is, and what each value may be.

The handlers check requests by these tables, and the OpenAPI document is written from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from zoo.architecture import Setting
from zoo.architecture.settings import GROUPS, SHARED
from zoo.errors import PromptError, did_you_mean
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry, default_registry
from zoo_serve.requests import RequestError

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
LIST: Schema = {"type": "array"}
TOKENS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}

# Settings that a request cannot give: functions, other models, and how the server reads prompts.
SERVER_ONLY = ("logits_processors", "draft_model", "prefill_chunk")


def or_null(schema: Schema) -> dict[str, Any]:
    """The schema of these values and null."""
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> dict[str, Any]:
    """The schema of objects that have these keys and no others; a value that is optional may be null."""
    others = {name: or_null(schema) for name, schema in (optional or {}).items()}
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **others},
        "additionalProperties": False,
    }


def open_object_of(required: Mapping[str, Schema], optional: Mapping[str, Schema]) -> dict[str, Any]:
    """The schema of objects that have these keys, and perhaps others."""
    return {**object_of(required, optional), "additionalProperties": True}


def tagged(
    kind: str,
    required: Mapping[str, Schema],
    optional: Mapping[str, Schema] | None = None,
    *,
    default: bool = False,
) -> dict[str, Any]:
    """The schema of objects of this `type`, as `object_of` makes it; the `default` one's type may be left out."""
    schema = object_of({"type": {"enum": [kind]}, **required}, optional)
    if default:
        schema["required"].remove("type")
        schema["properties"]["type"] = {"enum": [kind, None]}
    return schema


@frozen()
class Field(Frozen):
    """A field of a request. `schema` is the JSON Schema of its values; null always stands for a field that is left out.

    `setting` names the setting that it is, `variable` the variable of the chat template. `only` are the only values that it may
    have, where a server without the feature can accept them. `ignored` says why a value changes nothing here. `instead` are
    values that are other ways to say one, each with that one; None is a field that is left out.
    """

    schema: Schema
    setting: str | None = None
    variable: str | None = None
    only: tuple[Any, ...] = ()
    ignored: str = ""
    instead: tuple[tuple[Any, Any], ...] = ()
    about: str = ""

    def meant(self, value: Any) -> Any:
        """The value that stands for this one."""
        return next((other for given, other in self.instead if _is_among(value, (given,))), value)


class Fields:
    """The fields of one kind of request by their names; `required` are those that must be there.

    With `settings`, each setting of generation whose name is not taken is a field under its own name, except those in
    `without`: what they ask for would not be returned.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        *,
        required: Iterable[str] = (),
        settings: bool = False,
        without: Iterable[str] = (),
    ) -> None:
        self.own, self.required, self._settings = dict(fields), tuple(required), settings
        self._taken = {*fields, *without}

    @property
    def all(self) -> dict[str, Field]:
        """The fields, those of settings among them."""
        settings = setting_fields(default_registry()) if self._settings else {}
        return self.own | {name: field for name, field in settings.items() if name not in self._taken}

    def checked(self, body: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of the fields that are read, and the settings, each in its kind.

        RequestError, 400, names a field that is wrong.
        """
        if not isinstance(body, Mapping):
            raise RequestError(400, "the request must be a JSON object")
        known, values, settings, variables = self.all, dict[str, Any](), dict[str, Any](), dict[str, Any]()
        declared = request_settings(default_registry())
        for name, value in body.items():
            field = known.get(name)
            value = value if field is None else field.meant(value)
            if value is None:
                continue
            if field is None:
                raise RequestError(
                    400,
                    f"`{name:.60}`: nothing here serves this field{did_you_mean(name, known)}",
                    param=name,
                )
            check(value, field.schema, name)
            if field.only and not _is_among(value, field.only):
                raise RequestError(
                    400,
                    f"`{name}`: nothing here serves this value; it can only be {_listed(field.only)}",
                    param=name,
                )
            if field.setting is not None:
                try:
                    value = declared[field.setting].checked(value)
                except PromptError as error:
                    message = str(error).replace(f"`{field.setting}`", f"`{name}`")
                    raise RequestError(400, message, param=name) from error
                if settings.get(field.setting, value) != value:
                    raise RequestError(
                        400, f"`{name}`: another field gives the same setting another value", param=name
                    )
                settings[field.setting] = value
            elif field.variable is not None:
                variables[field.variable] = value
            elif not field.ignored and not field.only:
                values[name] = value
        for name in self.required:
            if body.get(name) is None:
                raise RequestError(400, f"`{name}` is missing", param=name)
        if variables:
            values["chat_template_kwargs"] = {**variables, **values.get("chat_template_kwargs", {})}
        return values, settings

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of such a request; `setting_groups` says under what title a page shows a setting."""
        properties, settings, groups = {}, request_settings(default_registry()), setting_groups()
        for name, field in self.all.items():
            only = {"enum": list(field.only)} if field.only else {}
            helps = field.about or (settings[field.setting].help if field.setting else "")
            about = " ".join(
                filter(None, (helps, field.ignored and f"Changes nothing here: {field.ignored}."))
            )
            inner = {**field.schema, **only}
            if field.instead:
                inner = {"anyOf": [inner, {"enum": [given for given, _ in field.instead]}]}
            properties[name] = {
                **(inner if name in self.required else or_null(inner)),
                **({"description": about} if about else {}),
                **({"deprecated": True} if field.ignored else {}),
                **groups.get(field.setting, {}),
            }
        return {
            "type": "object",
            "properties": properties,
            "required": list(self.required),
            "additionalProperties": False,
        }


@cache
def setting_fields(registry: Registry) -> dict[str, Field]:
    """The fields of all settings that a request may give, by name."""
    return {
        name: Field(schema_of(setting), setting=name, about=setting.help)
        for name, setting in request_settings(registry).items()
    }


def request_settings(registry: Registry) -> dict[str, Setting]:
    """The settings that a request may give, by name: the shared ones and those of installed strategies."""
    settings = dict(SHARED)
    for strategy in registry.strategies.values():
        settings |= {
            setting.name: setting for setting in strategy.own_settings if setting.name not in settings
        }
    return {name: setting for name, setting in settings.items() if name not in SERVER_ONLY}


def setting_groups() -> dict[str | None, dict[str, str]]:
    """Keywords of each setting's schema by its name: "x-group", the title of its group, or "x-strategy", whose own it is."""
    groups: dict[str | None, dict[str, str]] = {}
    for label, strategy in default_registry().strategies.items():
        for setting in strategy.own_settings:
            groups.setdefault(setting.name, {"x-strategy": label})
    return groups | {one.name: {"x-group": title} for title, group in GROUPS.items() for one in group}


def schema_of(setting: Setting) -> dict[str, Any]:
    """The JSON Schema of a setting's values, as `Setting.checked` takes them."""
    if setting.choices:
        kind: dict[str, Any] = {"enum": list(setting.choices)}
    elif setting.kind in (int, float):
        kind = {"type": "integer" if setting.kind is int else "number"}
        bounds = {"minimum": setting.minimum, "maximum": setting.maximum, "exclusiveMinimum": setting.above}
        kind |= {name: bound for name, bound in bounds.items() if bound is not None}
    elif setting.kind is tuple:
        items = [schema_of(item) for item in setting.items]
        kind = {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    elif setting.kind is object:
        kind = {"anyOf": [TEXT, TOKENS]}
    else:
        kind = {"type": {bool: "boolean", str: "string", dict: "object"}[setting.kind]}
    others = [{"type": "array", "items": kind}] if setting.several else []
    others += [{"enum": list(setting.also)}] if setting.also else []
    return {"anyOf": [kind, *others]} if others else kind


TYPES: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": Mapping,
    "array": list,
    "null": type(None),
}
SHOWN = 60  # characters of a value in a message


def check(value: Any, schema: Schema, where: str) -> None:
    """RequestError, 400, unless a value is as its schema says; `where` is the path of the value in the request.

    The keywords are those that the tables use: type, enum, minimum, maximum, exclusiveMinimum, minItems, maxItems,
    maxLength, items, properties, required, additionalProperties, anyOf. Others, of settings, are checked by the setting.
    """
    param = where.partition(".")[0].partition("[")[0]

    def fail(expected: str) -> RequestError:
        return RequestError(400, f"`{where}` must be {expected}, got {value!r:.{SHOWN}}", param=param)

    if "anyOf" in schema:
        errors = []
        alternatives = _of_its_type(value, schema["anyOf"], where)
        fitting = [one for one in alternatives if "type" not in one or _is_any(value, one["type"])]
        for one in fitting or alternatives:
            try:
                return check(value, one, where)
            except RequestError as error:
                errors.append(error)
        # The error that lies deepest is of the alternative that was meant.
        raise max(
            errors, key=lambda error: (str(error).split("`")[1].count("."), len(str(error).split("`")[1]))
        )
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not _is_any(value, kinds):
        raise fail(" or ".join(ARTICLES[kind] for kind in kinds))
    if "enum" in schema and not _is_among(value, schema["enum"]):
        raise fail(f"one of {_listed(schema['enum'])}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        for key, wrong, words in BOUNDS:
            if key in schema and wrong(value, schema[key]):
                raise fail(f"{words} {schema[key]:g}")
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        raise fail(f"at most {schema['maxLength']} characters")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            raise fail(f"a list of at least {least}{f' and at most {most}' if most else ''} values")
        if "items" in schema:
            for number, item in enumerate(value):
                check(item, schema["items"], f"{where}[{number}]")
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                raise RequestError(400, f"`{where}.{name}` is missing", param=param)
        for name, inner in value.items():
            if name in properties:
                check(inner, properties[name], f"{where}.{name}")
            elif inner is not None and schema.get("additionalProperties", True) is False:
                hint = did_you_mean(name, properties)
                raise RequestError(
                    400, f"`{where}.{name:.60}`: nothing here serves this field{hint}", param=param
                )


def _of_its_type(value: Any, alternatives: Iterable[Schema], where: str) -> list[Schema]:
    """The alternatives for an object with its `type`, or its `role`, where they have different ones.

    RequestError where there are none.
    """
    alternatives = list(alternatives)
    objects = [schema for schema in alternatives if "properties" in schema]
    key = next(
        (key for key in ("type", "role") if all("enum" in _property(schema, key) for schema in objects)), None
    )
    if not isinstance(value, Mapping) or not objects or key is None:
        return alternatives
    if key not in value:
        fitting = [schema for schema in objects if key not in schema["required"]]
    else:
        fitting = [schema for schema in objects if value[key] in _property(schema, key)["enum"]]
    if not fitting:
        kinds = [kind for schema in objects for kind in _property(schema, key)["enum"] if kind]
        check(value.get(key), {"enum": kinds}, f"{where}.{key}")
    return fitting


def _property(schema: Schema, key: str) -> Schema:
    """The schema of an object's property, {} where it has none."""
    return schema["properties"].get(key, {})  # type: ignore[no-any-return]


def _is_any(value: Any, kinds: str | Iterable[str]) -> bool:
    return any(_is(value, kind) for kind in ((kinds,) if isinstance(kinds, str) else kinds))


def _is(value: Any, kind: str) -> bool:
    return kind == "boolean" if isinstance(value, bool) else isinstance(value, TYPES[kind])


def _is_among(value: Any, allowed: Iterable[Any]) -> bool:
    """Whether a value equals an allowed one of the same type: 1 does not equal true."""
    return any(type(value) is type(choice) and value == choice for choice in allowed)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(f'"{value}"' if isinstance(value, str) else str(value).lower() for value in values)


ARTICLES = {
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
BOUNDS = (
    ("minimum", lambda value, bound: value < bound, "at least"),
    ("maximum", lambda value, bound: value > bound, "at most"),
    ("exclusiveMinimum", lambda value, bound: value <= bound, "more than"),
)
