"""A checkpoint's `config.json`, read with types, defaults and bounds, remembering which keys were read.

Null means absent. An error names the key. Imports no mlx.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from zoo.errors import ConfigError
from zoo.frozen import Frozen, frozen

REQUIRED: Any = object()  # the default of a key that has none

MOST_LAYERS = 2_000
# Widths, heads, vocabulary, positions, in configs and recipes: far above any published model, far below harm.
MOST = 16_777_216
# Bounds of other numbers, of either sign: beyond these, squares and quotients exceed float32.
LEAST_NUMBER, MOST_NUMBER = 1e-30, 1e15


@cache
def harmless_keys() -> frozenset[str]:
    """Keys that change no logit in any family: bookkeeping, special tokens, output flags, settings of generation.

    What one family has beside these its recipe leaves out by `Config.ignore`.
    """
    return frozenset(Path(__file__).with_name("harmless_config_keys.txt").read_text().split())


# Spellings of `hidden_act` in config.json, to the recipe's names.
ACTIVATION_NAMES = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}


@frozen()
class Origin(Frozen):
    """The source of a config's values, for messages: a file's `name`, and its names of the keys.

    `keys` maps a key ("rope_theta", "rope_scaling.factor") to the file's own ("llama.rope.freq_base"); empty where the
    file has the keys of a config.json. A value without a key of its own there is called as in a config.json.
    """

    name: str = "config.json"
    keys: Mapping[str, str] = field(default_factory=dict)

    def key(self, key: str) -> str:
        """The file's name of a key."""
        return self.keys.get(key, key)

    def of(self, key: str) -> str:
        """The file and its key, as a message begins: "config.json: rope_theta"."""
        derived = bool(self.keys) and key not in self.keys
        return f"{self.name}{', read as a config.json' if derived else ''}: {self.key(key)}"


CONFIG_JSON = Origin()


class Config(Mapping[str, Any]):
    """The values of a `config.json`. `where` ("rope_parameters.") prefixes a nested object's keys in errors.

    `unread()` names the keys that nothing has asked for and that are not known to be harmless. `tensors` are the
    names of the checkpoint's tensors, or those by name, None without one, for what the config does not say (see `has_tensor`).
    `origin` is where the values come from, if that is no config.json: errors name its file and its keys.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        where: str = "",
        tensors: Collection[str] | None = None,
        origin: Origin = CONFIG_JSON,
    ) -> None:
        self._tensors = tensors
        self._values = {key: value for key, value in values.items() if value is not None}
        self._nulls = values.keys() - self._values.keys()
        self._where = where
        self.origin = origin
        self._read: set[str] = set()
        self._defaults: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        if key not in self._values:
            raise ConfigError(f"{self._named(key)} is missing")
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str, default: object = None) -> Any:
        """The value as it stands, or `default` when absent or null."""
        return self[key] if key in self._values else self._absent(key, default)

    def _absent(self, key: str, default: object) -> Any:
        if default is REQUIRED:
            return self[key]
        if isinstance(default, bool | int | float | str | list):
            self._defaults[key] = default
        return default

    def with_defaults(self, **defaults: Any) -> Config:
        """This config with values for absent keys (null is present); keys that the copy reads count as read here.

        For a family whose reference has other defaults than the base that its recipe starts from.
        """
        other = copy.copy(self)
        given = {key: value for key, value in defaults.items() if key not in self._nulls}
        other._values = given | self._values
        self._defaults |= {key: value for key, value in given.items() if key not in self._values}
        return other

    def replaced(self, **values: Any) -> Config:
        """This config with other values, which count in the place of its own; None removes a key.

        For a checkpoint whose tensors say something else than its config; `defaults` has the values. Keys that the copy
        reads count as read here.
        """
        other = copy.copy(self)
        other._values = {key: value for key, value in (self._values | values).items() if value is not None}
        self._read.update(values)
        self._defaults |= {key: value for key, value in values.items() if value is not None}
        return other

    def renamed(self, names: Mapping[str, str]) -> Config:
        """This config with the values of other names of its keys: `names` maps each to the key that is read.

        A key that has its own value keeps it; ConfigError for another under the other name. Keys that the copy reads count as read
        here.
        """
        aliases = {alias: key for alias, key in names.items() if alias in self._values}
        for alias, key in aliases.items():
            if self._values.get(key, self._values[alias]) != self._values[alias]:
                raise self.error(alias, f"contradicts {self._key(key)}, {_shown(self._values[key])}")
        self._read.update(aliases)
        other = copy.copy(self)
        other._values = {key: self._values[alias] for alias, key in aliases.items()} | self._values
        return other

    def is_null(self, key: str) -> bool:
        """Whether the key is null, for the few where null means "none" and absence a default."""
        return key in self._nulls

    def count(self, key: str, default: object = REQUIRED, *, least: int = 1, most: int = MOST) -> Any:
        """A whole number in `least`..`most`; ConfigError otherwise. Without a default the key is required."""
        if key not in self._values:
            return self._absent(key, default)
        value = self[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, "expected a whole number")
        if not least <= value <= most:
            raise self.error(key, f"must lie in {least}..{most}")
        return value

    def layers(self, key: str = "num_hidden_layers") -> int:
        """The number of layers, bounded so that no recipe grows without limit."""
        return self.count(key, most=MOST_LAYERS)

    def number(
        self, key: str, default: object = REQUIRED, *, least: float = -MOST_NUMBER, most: float = MOST_NUMBER
    ) -> Any:
        """A number in `least`..`most`, and 0 or at least `LEAST_NUMBER` away from it; ConfigError otherwise."""
        if key not in self._values:
            return self._absent(key, default)
        if why := _unfit(self[key], least, most):
            raise self.error(key, why)
        return float(self[key])

    def numbers(
        self, key: str, default: object = REQUIRED, *, least: float = -MOST_NUMBER, most: float = MOST_NUMBER
    ) -> Any:
        """A list of at least one number, each within the bounds of `number`, as a tuple; ConfigError otherwise."""
        if key not in self._values:
            return self._absent(key, default)
        value = self[key]
        if not isinstance(value, list) or not value:
            raise self.error(key, "expected a list of numbers")
        for index, number in enumerate(value):
            if why := _unfit(number, least, most):
                raise ConfigError(f"{self._named(key)}[{index}] {_shown(number)} {why}")
        return tuple(map(float, value))

    def flag(self, key: str, default: object = REQUIRED) -> Any:
        """True or false; ConfigError otherwise."""
        if key not in self._values:
            return self._absent(key, default)
        if not isinstance(self[key], bool):
            raise self.error(key, "expected true or false")
        return self[key]

    def choice(self, key: str, options: Iterable[str], default: object = REQUIRED) -> Any:
        """One of `options`; ConfigError, naming them, otherwise."""
        value = self.get(key, default)
        known = list(options)
        if value is REQUIRED or value not in known:
            raise self.error(key, f"is not implemented; known: {', '.join(known)}")
        return value

    def choices(self, key: str, options: Iterable[str], count: int, default: object = REQUIRED) -> Any:
        """A list of `count` of `options`, such as one `layer_types` for each layer, as a tuple; ConfigError otherwise."""
        value, known = self.get(key, default), list(options)
        if value is None:
            return None
        fits = isinstance(value, list | tuple) and len(value) == count
        if not fits or any(item not in known for item in value):
            raise self.error(key, f"must be a list of {count}, each one of {', '.join(known)}")
        return tuple(value)

    def activation(self, key: str = "hidden_act", default: str = "silu") -> str:
        """The recipe's name of an activation function spelled as transformers spells it."""
        name = self.get(key, default)
        if not isinstance(name, str) or name not in ACTIVATION_NAMES:
            raise self.error(key, f"is not an activation the zoo has; known: {', '.join(ACTIVATION_NAMES)}")
        return ACTIVATION_NAMES[name]

    def head_width(self, dim_key: str = "hidden_size", heads_key: str = "num_attention_heads") -> int:
        """Width ÷ heads; ConfigError when it does not divide."""
        dim, heads = self.count(dim_key), self.count(heads_key)
        if dim % heads:
            raise self.error(heads_key, f"does not divide {self._key(dim_key)}, {dim}")
        return dim // heads

    def kv_heads(
        self, default: object, key: str = "num_key_value_heads", heads_key: str = "num_attention_heads"
    ) -> int:
        """Key/value heads, which must divide the query heads."""
        heads = self.count(heads_key)
        kv_heads = self.count(key, default)
        if heads % kv_heads:
            raise self.error(key, f"does not divide {self._key(heads_key)}, {heads}")
        return kv_heads

    def refuse(self, key: str, *values: Any, why: str = "is not implemented") -> None:
        """ConfigError when the key has one of `values` (of any value but false and 0, when none are given)."""
        value = self.get(key)
        if value in values if values else bool(value):
            raise self.error(key, why)

    def ignore(self, *keys: str) -> None:
        """Declare that these keys change nothing: no warning says that they were not read."""
        self._read.update(keys)

    def peek(self) -> dict[str, Any]:
        """All values as they stand; none of them counts as read."""
        return dict(self._values)

    def note(self, key: str, value: object) -> None:
        """Record the effective value of a key that was found elsewhere; see `defaults`."""
        self._defaults[key] = value

    def nested(self, key: str) -> Config | None:
        """The object under `key` as a Config of its own; None when absent."""
        if key not in self._values:
            return None
        if not isinstance(self[key], Mapping):
            raise self.error(key, "expected an object")
        return Config(self[key], where=f"{self._where}{key}.", origin=self.origin)

    def error(self, key: str, why: str) -> ConfigError:
        """A ConfigError about `key`'s value, to be raised."""
        error = ConfigError(f"{self._named(key)} {_shown(self._values.get(key))} {why}")
        error.key = f"{self._where}{key}" if key in self._values else ""
        return error

    def _key(self, key: str) -> str:
        return self.origin.key(f"{self._where}{key}")

    def _named(self, key: str) -> str:
        return self.origin.of(f"{self._where}{key}")

    def has_tensor(self, word: str, default: bool) -> bool:
        """Whether a tensor of the checkpoint has `word` in its name; `default` when there is no checkpoint."""
        return default if self._tensors is None else any(word in name for name in self._tensors)

    def widest(self) -> int | None:
        """The longest side of any of the checkpoint's tensors; None when there is no checkpoint."""
        if not isinstance(self._tensors, Mapping):
            return None
        return max((side for tensor in self._tensors.values() for side in tensor.shape), default=0)

    def tensor_shape(self, word: str) -> tuple[int, ...] | None:
        """The shape of the first of the checkpoint's tensors with `word` in its name; None where none has it."""
        tensors = self._tensors if isinstance(self._tensors, Mapping) else {}
        return next((tuple(tensor.shape) for name, tensor in tensors.items() if word in name), None)

    def defaults(self) -> dict[str, Any]:
        """The values used for absent keys, and those noted: together with the config they leave no default implicit."""
        return {
            key: value for key, value in self._defaults.items() if key not in (*self._nulls, "architectures")
        }

    def was_read(self, key: str) -> bool:
        """Whether a key that is present was read."""
        return key in self._read

    def unread(self) -> list[str]:
        """Keys that nothing read and that are not on the list of harmless ones."""
        return sorted(set(self._values) - self._read - harmless_keys())


def _unfit(value: object, least: float, most: float) -> str | None:
    """The reason why a value is not a number within the bounds; None when it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "expected a number"
    if not least <= value <= most or 0 < abs(value) < LEAST_NUMBER:
        return f"must lie in {least:g}..{most:g}"
    return None


def _shown(value: object, most: int = 60) -> str:
    """A value, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
