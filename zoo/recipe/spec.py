"""`Spec`, the base of every part of a recipe, and the weight matrices that it counts. Imports no mlx."""

from __future__ import annotations

import dataclasses
import itertools
import re
import reprlib
import sys
import types
import typing
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.config import MOST
from zoo.errors import RecipeError
from zoo.frozen import Frozen, frozen

if TYPE_CHECKING:
    from zoo.recipe.division import Division, Share


@frozen()
class Matrix(Frozen):
    """`count` stacked weight matrices (outputs, inputs), in the parameter `name` within their block.

    Products and packed bytes are counted from them. A token is multiplied by `uses` of them (0: a table that is looked
    up). `packs`: the layer that holds them has a quantized form. `bias`: each has a vector (outputs,) beside it.
    """

    name: str
    inputs: int
    outputs: int
    count: int = 1
    uses: int = 1
    packs: bool = True
    bias: bool = False

    @property
    def numbers(self) -> int:
        """The numbers of all `count` matrices."""
        return self.count * self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """The numbers of all matrices and their biases."""
        return self.numbers + self.bias * self.count * self.outputs

    @property
    def flops(self) -> int:
        """Floating-point operations a token: two for each multiply-add."""
        return 2 * self.uses * self.inputs * self.outputs


LARGEST = 2**31 - 1  # that an array dimension can hold

# The kinds of the zoo's own specs. A field that declares one of them in its metadata, `{"kind": "norm"}`, refuses the
# others; a kind that a plugin made up passes, since only the plugin knows what its module can stand in for.
KINDS = frozenset(
    (
        *("model", "embedding", "layer", "norm", "mixer", "cross", "feedforward", "head"),
        *("position", "rope-scaling", "router", "experts"),
    )
)


@frozen()
class Spec(Frozen):
    """The description of one part of a model. Subclasses set `kind` ("mixer") and `name` ("attention").

    Whole numbers must lie in 1..2²⁴, as in a config, and floats be finite, or `RecipeError` names the field. A field's metadata may
    have `least`, another lower bound, `above`, a number that it must exceed, `choices`, the texts that it may be, and
    `kind`, the kind of the specs that it holds, and `by_heads`, true where they add to the scores of all heads of the mixers.

    What its module can do is declared here too, in class attributes or properties. `recurrent`: it keeps a state
    from token to token. `by_part`, of a layer: it takes masks and caches by the names of its parts, not those of its
    one mixer. `gives` and `takes`: the names of values that it hands to later layers, and of those that it needs from
    earlier ones.
    """

    kind: ClassVar[str] = ""
    name: ClassVar[str] = ""
    recurrent: ClassVar[bool] = False

    @property
    def by_part(self) -> bool:
        """Whether a layer takes its masks and caches by the names of its parts."""
        return False

    @property
    def gives(self) -> tuple[str, ...]:
        """The names of the values that its module puts into `passed`, for later layers."""
        return ()

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of the values that its module reads from `passed`, given by earlier layers or the embedding."""
        return ()

    @property
    def remembers(self) -> bool:
        """Whether its module is called with a mask and a cache, which it makes: a mixer, or whatever is recurrent."""
        return self.kind == "mixer" or self.recurrent

    @property
    def widens(self) -> bool:
        """Whether its module gives float32 where its input is of 16 bits. Of others the conformance suite refuses it."""
        return False

    @property
    def attention_window(self) -> int | None:
        """How many tokens its module sees, itself included: its field `window`, where it has one; None for all."""
        return getattr(self, "window", None)

    @property
    def cache_kind(self) -> str:
        """What its cache keeps: "state" of a fixed size, keys of a "window", or "full". A plugin may add a kind."""
        if self.recurrent:
            return "state"
        return "full" if self.attention_window is None else "window"

    @property
    def title(self) -> str:
        """What the field calls it: the name of its class in words, such as "selective state space" or "RMSNorm"."""
        return in_words(type(self).__name__)

    @property
    def norm_placement(self) -> str:
        """Where a layer has its norms, in words; "" where it does not say."""
        return ""

    @property
    def ties_embedding(self) -> bool:
        """Whether, as a head, it multiplies by the embedding's table: its field `tied`, where it has one."""
        return bool(getattr(self, "tied", False))

    def __post_init__(self) -> None:
        hints = field_types(type(self))  # type: ignore[arg-type]  # mypy takes the hash of its instances
        for field in dataclasses.fields(self):
            value, kind = getattr(self, field.name), field.metadata.get("kind")
            problem = mismatch(value, hints[field.name], field.metadata.get("least"))
            problem = problem or _forbidden(value, **field.metadata)
            if problem:
                raise RecipeError(f"{field.name}: {problem}")
            for index, part in enumerate(value if isinstance(value, tuple) else (value,)) if kind else ():
                if isinstance(part, Spec) and part.kind != kind and part.kind in KINDS:
                    path = f"{field.name}.{index}" if isinstance(value, tuple) else field.name
                    raise RecipeError(f"{path}: {part.block()} is no {kind}")

    @classmethod
    def block(cls) -> str:
        """The identifier in JSON and in the registry: "kind/name"."""
        return f"{cls.kind}/{cls.name}"

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON values: an object with `block`, "kind/name", and every field by name.

        Equal specs in a row are written once, as `{"repeat": 12, "layer": {…}}`. `zoo.recipe.from_json` reads it back.
        RecipeError for a field that has no JSON form.
        """
        fields = (field for field in dataclasses.fields(self) if field.init)
        return {"block": self.block()} | {f.name: _as_json(f.name, getattr(self, f.name)) for f in fields}

    def parts(self) -> Iterator[tuple[str, Spec | tuple[Spec, ...]]]:
        """The fields that hold specs, in the order of their declaration."""
        for name in field_names(self):
            value = getattr(self, name)
            if isinstance(value, Spec) or (isinstance(value, tuple) and value and isinstance(value[0], Spec)):
                yield name, value

    def shown_fields(self) -> Iterator[tuple[str, Any]]:
        """The fields by name, as a table of facts shows them."""
        for name in field_names(self):
            yield name, getattr(self, name)

    def walk(self, path: str = "") -> Iterator[tuple[str, Spec]]:
        """This spec and all below it, each with its path: "layers.3.mixer"."""
        yield path, self
        for below, part in self.children(path):
            yield from part.walk(below)

    def children(self, path: str = "") -> Iterator[tuple[str, Spec]]:
        """The specs in its fields, each with its path; `path` is this spec's own."""
        for name, value in self.parts():
            below = f"{path}.{name}" if path else name
            if isinstance(value, tuple):
                yield from ((f"{below}.{index}", part) for index, part in enumerate(value))
            else:
                yield below, value

    def width(self, part: str, dim: int) -> int:
        """The width that the field `part` works in, given this spec's own."""
        return dim

    def parameters(self, dim: int) -> int:
        """How many parameters the module of this spec holds in width `dim`, its parts included."""
        return self.own_parameters(dim) + self._sum("parameters", dim)

    def own_parameters(self, dim: int) -> int:
        """The number of its own parameters, without those of its parts: of its matrices, where it says them."""
        said = type(self).matrices is not Spec.matrices
        return sum(matrix.parameters for matrix in self.matrices(dim)) if said else 0

    def active_parameters(self, dim: int) -> int:
        """How many of its parameters one token is computed with.

        All, but in a mixture of experts, whose idle ones are left out, and in tables of which a token reads one row: an
        embedding counts as the head that is tied to it, or not at all.
        """
        return self.own_parameters(dim) + self._sum("active_parameters", dim)

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        """Its own weight matrices, without those of its parts.

        Unless a spec says them, its own parameters are taken for one matrix with `dim` inputs; those of a norm and of
        positions, and what does not fill a row, for vectors. One that says them has no other parameters unless it
        says so.
        """
        outputs = 0 if self.kind in ("norm", "position") else int(self.own_parameters(dim)) // dim
        return (Matrix("", dim, outputs),) if outputs else ()

    def flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        """Floating-point operations for one token that attends to `keys` tokens, itself included.

        Counted are matrix products and attention's scores and sums, two operations for each multiply-add; not norms,
        activations, softmax, convolutions and recurrences. `prefill`: while a text is read, not while one is written,
        which only matters where the two are computed in different ways.
        """
        return self.own_flops(dim, keys, prefill) + self._sum("flops", dim, keys, prefill)

    def own_flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        """The operations of its own, without those of its parts: by default, of its matrices."""
        return sum(matrix.flops for matrix in self.matrices(dim))

    def kv_cache_size(self, dim: int) -> int:
        """How many numbers a cache keeps for each token."""
        return self._sum("kv_cache_size", dim)

    def kv_widths(self, dim: int) -> tuple[int, int] | None:
        """The widths of one key and of one value that a cache keeps, as it is given them; None where it does not say."""
        return None

    def state_size(self, dim: int) -> int:
        """How many numbers a cache keeps whatever the length of the text: the state of recurrent mixers."""
        return self._sum("state_size", dim)

    def check_width(self, dim: int) -> None:
        """RecipeError that names the field when the module cannot work in width `dim`; its parts are asked for theirs."""

    def _sum(self, method: str, dim: int, *arguments: Any) -> int:
        total = 0
        for name, value in self.parts():
            parts = value if isinstance(value, tuple) else (value,)
            times = Counter(map(id, parts))  # layers are often one spec many times: it is counted once
            for part in {id(part): part for part in parts}.values():
                total += times[id(part)] * getattr(part, method)(self.width(name, dim), *arguments)
        return total

    def divided(self, dim: int, share: Share) -> Division | None:
        """What a rank has of its part in width `dim`; None: all of it, as all ranks have. See `zoo.recipe.tensor_parallel`.

        RecipeError that names the field that cannot be divided among so many ranks.
        """
        return None

    def change(self, **changes: Any) -> typing.Self:
        """A copy with some fields changed; a dict for a field that holds a spec changes that spec's fields."""
        names = field_names(self)
        for name, value in changes.items():
            if name not in names:
                raise RecipeError(f"{name}: {self.block()} has no such field")
            if isinstance(value, dict) and isinstance(part := getattr(self, name), Spec):
                changes[name] = part.change(**value)
        return dataclasses.replace(self, **changes)


def _as_json(name: str, value: object) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, tuple):
        raise RecipeError(f"{name}: {type(value).__name__} has no JSON form")
    found: list[Any] = []
    for item, equal in itertools.groupby(value):
        count, written = len(list(equal)), _as_json(name, item)
        run = count > 1 and isinstance(item, Spec)
        found += [{"repeat": count, "layer": written}] if run else [written] * count
    return found


def check_widths(spec: Spec, dim: int) -> None:
    """Ask a spec and all below it whether they can work in the widths they get; RecipeError names the field's path.

    No side of a matrix may be longer than a dimension of an array can be.
    """
    fit: set[tuple[int, int]] = set()  # most layers are one and the same spec

    def visit(spec: Spec, dim: int, path: str) -> None:
        try:
            spec.check_width(dim)
            for matrix in spec.matrices(dim):
                if (side := max(matrix.inputs, matrix.outputs, matrix.count)) > LARGEST:
                    name = matrix.name or spec.block()
                    raise RecipeError(f"{name}: a side of {side}, more than the {LARGEST} of an array")
            widths = {name: spec.width(name, dim) for name, _ in spec.parts()}
        except RecipeError as error:
            raise RecipeError(f"{path}.{error}" if path else str(error)) from None
        for below, part in spec.children(path):
            width = widths[below.removeprefix(f"{path}." if path else "").partition(".")[0]]
            if (id(part), width) not in fit:
                visit(part, width, below)
                fit.add((id(part), width))

    visit(spec, dim, "")


def in_words(name: str) -> str:
    """The name of a class in words: "LatentAttention" -> "latent attention", "RMSNorm" and "LSTM" as they are."""
    if name.endswith("Norm"):
        return name
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+", name)
    return " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words)


def undeclared_fields(cls: type[Spec]) -> list[str]:
    """The annotated attributes of a spec's class that are not dataclass fields, because the decorator is missing."""
    annotations = vars(cls).get("__annotations__", {}).items()
    fields = {field.name for field in dataclasses.fields(cls)}
    return [name for name, hint in annotations if name not in fields and "ClassVar" not in str(hint)]


def field_names(spec: Spec) -> tuple[str, ...]:
    """The names of a spec's fields, in the order of their declaration."""
    return _field_names(type(spec))  # type: ignore[arg-type]  # mypy takes the hash of its instances


@cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


@cache
def field_types(cls: type) -> dict[str, Any]:
    """The types of a spec's fields, evaluated once a class."""
    return typing.get_type_hints(cls)


def _forbidden(
    value: Any, *, above: float | None = None, choices: tuple[str, ...] = (), **other: Any
) -> str | None:
    """The reason why a value of the right type is none that its field's metadata allow, or None when it is."""
    if choices and value not in choices:
        return f"{value!r} is not one of {', '.join(choices)}"
    if above is not None and value is not None and value <= above:
        return f"must be {f'greater than {above}' if above else 'positive'}, got {value}"
    return None


def mismatch(value: object, hint: object, least: float | None = None) -> str | None:
    """The reason why `value` is not of the type `hint`, or None when it is. Whole numbers pass for floats.

    A whole number must be at least `least` (None: 1), a float too (None: any that is finite).
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        reasons = [mismatch(value, option, least) for option in typing.get_args(hint)]
        return None if None in reasons else next(r for r in reasons if r)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if not isinstance(value, tuple):
            return f"expected a list, got {reprlib.repr(value)}"
        return next((m for m in (mismatch(item, inner, least) for item in value) if m), None)
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"expected a whole number, got {reprlib.repr(value)}"
        least = 1 if least is None else least
        return None if least <= value <= MOST else f"must lie in {least}..{MOST}, got {value}"
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"expected a number, got {reprlib.repr(value)}"
        if least is not None and not value >= least:
            return f"must be at least {least}, got {value}"
        return None if abs(value) <= sys.float_info.max else f"must be finite, got {value}"
    if hint is None or hint is type(None):
        return None if value is None else f"expected null, got {reprlib.repr(value)}"
    if isinstance(hint, type) and not isinstance(value, hint):
        wanted = (
            hint.block()
            if issubclass(hint, Spec) and hint.kind
            else {str: "text", bool: "true or false"}.get(hint)
        )
        return f"expected {wanted or 'a block'}, got {reprlib.repr(value)}"
    return None
