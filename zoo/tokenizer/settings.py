"""The settings in the files beside a vocabulary: special tokens, added tokens, end tokens, the chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from zoo.errors import TokenizerError
from zoo.files import reading
from zoo.files.reading import decoded, read_object_at
from zoo.frozen import Frozen, frozen

# The named special tokens a chat template may refer to.
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")  # of an `AddedToken`

# The files that a tokenizer is read from; where a folder has those of several kinds, the first one's are.
KINDS = (
    ("source.spm", "vocab.json"),
    ("tokenizer.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.json", "sentencepiece.bpe.model"),
    ("vocab.txt",),
    ("tekken.json",),
    ("qwen.tiktoken",),
    ("tiktoken.model",),
    ("tokenizer.model",),
    ("spiece.model",),
)

# The files with settings that may stand beside a tokenizer's own.
SETTINGS = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "target_vocab.json",
)
MORE_TEMPLATES = "additional_chat_templates"  # a folder of them


@frozen()
class AddedToken(Frozen):
    """A token beside the trained vocabulary, matched in the text before anything else.

    `lstrip` and `rstrip`: it takes the white space on that side with it. `special`: decoding may skip it. `normalized` is
    None for what `special` is not. `id` is -1 where the vocabulary alone knows it.
    """

    content: str
    id: int
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None
    single_word: bool = False


@frozen()
class TokenizerSettings(Frozen):
    """`tokenizer_config.json` and the older files it replaced, checked.

    `special_tokens` maps names such as "bos_token" to their text; `extra_special_tokens` are special without a name;
    `added_tokens` are in id order. `flagged` has the named special tokens whose flags the file gives, by text. `decoder`:
    `added_tokens` are those of `added_tokens_decoder`, whose flags replace the vocabulary's. `model_type` and `model_class`
    are the `model_type` and `tokenizer_class` of config.json.
    """

    path: Path
    values: Mapping[str, Any]
    special_tokens: dict[str, str]
    extra_special_tokens: tuple[AddedToken, ...]
    added_tokens: tuple[AddedToken, ...]
    flagged: Mapping[str, AddedToken] = field(default_factory=dict)
    decoder: bool = True
    model_type: str | None = None
    model_class: str | None = None

    def flag(self, key: str, default: bool | None) -> bool | None:
        """The boolean `key`, `default` where it is absent or null; TokenizerError for any other value."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise TokenizerError(f"{self.path}: {key} must be true or false, got {value!r}")
        return value

    @property
    def tokenizer_class(self) -> str | None:
        """The reference's class name without its "Fast" suffix, None where the folder names none."""
        name = self.values.get("tokenizer_class")
        if name is not None and not isinstance(name, str):
            raise TokenizerError(f"{self.path}: tokenizer_class must be a string, got {name!r}")
        name = name or self.model_class
        return name.removesuffix("Fast") if name else None

    def with_defaults(self, special_tokens: Mapping[str, str]) -> dict[str, str]:
        """The named special tokens, with a class's own where the settings do not even say null."""
        unset = {name: text for name, text in special_tokens.items() if name not in self.values}
        return unset | self.special_tokens


def read_vocabulary(path: Path) -> dict[str, int]:
    """The ids of tokens in a JSON file; TokenizerError for anything else in it."""
    vocab = read_object_at(path, TokenizerError)
    if not vocab or not all(type(id) is int and id >= 0 for id in vocab.values()):
        raise TokenizerError(f"{path}: must map tokens to ids")
    return vocab


def read_text(path: Path) -> str:
    """The UTF-8 text of a file, its lines ended by "\\n"; TokenizerError where it is missing or no text."""
    return decoded(read_bytes(path), path, TokenizerError).replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path) -> bytes:
    """What a file holds; TokenizerError where it is missing or cannot be read."""
    data = reading.read_bytes(path.parent, path.name, TokenizerError)
    if data is None:
        raise TokenizerError(f"{path}: missing")
    return data


def vocabulary_files(has: Callable[[str], bool]) -> tuple[str, ...]:
    """The files of the tokenizer in a folder that `has` files of these names; () where it has no tokenizer."""
    return next((kind for kind in KINDS if all(map(has, kind))), ())


def read_settings(folder: Path, config: Mapping[str, Any] | None = None) -> TokenizerSettings:
    """The tokenizer settings of a model folder; TokenizerError names the file and key of a wrong value.

    `config` is the parsed `config.json`.
    """
    path = folder / "tokenizer_config.json"
    values = read_object_at(path, TokenizerError)
    named, extra = _special_tokens(values, path), _extra_special(values, path)
    # In folders older than `added_tokens_decoder`, the file special_tokens_map.json takes precedence.
    decoder = values.get("added_tokens_decoder") is not None
    if not decoder:
        map_path = folder / "special_tokens_map.json"
        mapped = read_object_at(map_path, TokenizerError)
        named |= _special_tokens(mapped, map_path)
        extra = _extra_special(mapped, map_path) or extra
    texts = {name: token.content for name, token in named.items()}
    special = {*texts.values(), *(token.content for token in extra)}
    names = {key: (config or {}).get(key) for key in ("model_type", "tokenizer_class")}
    model_type, model_class = (name if isinstance(name, str) else None for name in names.values())
    return TokenizerSettings(
        path,
        values,
        texts,
        extra,
        _added_tokens(folder, values, path, set(texts.values()), special),
        {token.content: token for token in reversed(named.values())},
        decoder,
        model_type,
        model_class,
    )


def read_chat_templates(folder: Path, settings: TokenizerSettings) -> dict[str, str]:
    """The folder's chat templates by name; the one without a name is "default".

    It is that of `chat_template.jinja`, `chat_template.json` or `tokenizer_config.json`, the last two of which may hold a
    list of named templates. The files of the folder `additional_chat_templates` have others by their names.
    """
    path = folder / "chat_template.json"
    template = read_object_at(path, TokenizerError).get("chat_template")
    if template is None:
        path, template = settings.path, settings.values.get("chat_template")
    templates = _named_templates(template, path)
    names = {"default": Path("chat_template.jinja")}
    if (folder / MORE_TEMPLATES).is_dir():
        more = (Path(MORE_TEMPLATES, name) for name in reading.names_in(folder / MORE_TEMPLATES))
        names |= {file.stem: file for file in more if file.suffix == ".jinja"}
    for name, file in names.items():
        text = reading.read_text(folder, str(file), TokenizerError)
        if text is not None:
            templates[name] = text.replace("\r\n", "\n").replace("\r", "\n")
    return templates


def _named_templates(template: object, path: Path) -> dict[str, str]:
    """The templates of a JSON file's `chat_template`, a text or a list of objects, by name."""
    if template is None:
        return {}
    if not isinstance(template, list):
        template = [{"name": "default", "template": template}]
    templates = {}
    for entry in template:
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
            raise TokenizerError(
                f"{path}: chat_template must be a list of objects with a name and a template"
            )
        if not isinstance(text := entry.get("template"), str):
            raise TokenizerError(f"{path}: chat_template must be a string, got {type(text).__name__}")
        templates[name] = text
    return templates


def token_ids(value: Any, where: str) -> tuple[int, ...]:
    """Ids from a config value that is absent, an integer or a list of integers; negative ones mean "none"."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for item in ids:
        if not isinstance(item, int) or isinstance(item, bool):
            raise TokenizerError(f"{where} must be an integer or a list of integers, got {value!r}")
    return tuple(item for item in ids if item >= 0)


def _content(value: object, path: Path, key: str) -> str:
    """A token's text, written as a string or as an object with a "content"."""
    content = value.get("content") if isinstance(value, dict) else value
    if not isinstance(content, str):
        raise TokenizerError(f"{path}: {key} must be a string or an object with a content, got {value!r}")
    return content


def _token(value: object, path: Path, key: str, special: bool, id: int = -1) -> AddedToken:
    """A token, written as a string or as an object with flags; `special` where the object does not say."""
    content = _content(value, path, key)
    written = value if isinstance(value, dict) else {}
    flags = {name: written[name] for name in FLAGS if name in written}
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TokenizerError(f"{path}: {key}.{name} must be true or false, got {flag!r}")
    return AddedToken(content, id, **{"special": special} | flags)


def _special_tokens(values: Mapping[str, Any], path: Path) -> dict[str, AddedToken]:
    """The special tokens that have a name: a usual one, or one of the model's own, such as "image_token"."""
    extra = values.get("extra_special_tokens")
    own = {name: value for name, value in values.items() if name.endswith("_token")}
    named = {name: values.get(name) for name in SPECIAL_NAMES} | {
        name: value
        for name, value in {**own, **(extra if isinstance(extra, dict) else {})}.items()
        if name not in SPECIAL_NAMES and isinstance(value, str | dict)
    }
    named = {name: value for name, value in named.items() if value is not None}
    tokens = {name: _token(value, path, name, True) for name, value in named.items()}
    return {name: replace(token, special=True) for name, token in tokens.items()}


def _extra_special(values: Mapping[str, Any], path: Path) -> tuple[AddedToken, ...]:
    """The special tokens that have no name, under either of the keys used for them."""
    tokens: list[AddedToken] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        value = [] if values.get(key) is None else values[key]
        if not isinstance(value, list | dict):
            raise TokenizerError(f"{path}: {key} must be a list, got {value!r}")
        listed = value.values() if isinstance(value, dict) else value
        tokens += [_token(token, path, key, True) for token in listed]
    return tuple(tokens)


def _added_tokens(
    folder: Path, values: Mapping[str, Any], path: Path, named: set[str], special: set[str]
) -> tuple[AddedToken, ...]:
    """The added tokens in id order, from `added_tokens_decoder` or the older `added_tokens.json`.

    `named` are the texts of named special tokens, `special` those of all.
    """
    decoder = values.get("added_tokens_decoder")
    tokens = []
    if decoder is None:
        path = folder / "added_tokens.json"
        for content, id in read_object_at(path, TokenizerError).items():
            if not isinstance(id, int) or isinstance(id, bool) or id < 0:
                raise TokenizerError(f"{path}: {content!r} must have a token id, got {id!r}")
            tokens.append(AddedToken(content, id, content in special))
    elif not isinstance(decoder, dict):
        raise TokenizerError(f"{path}: added_tokens_decoder must be an object, got {type(decoder).__name__}")
    for id, entry in (decoder or {}).items():
        key = f"added_tokens_decoder[{id!r}]"
        if not id.isascii() or not id.isdigit() or len(id) > 9 or not isinstance(entry, dict):
            raise TokenizerError(f"{path}: {key} must map a token id to an object")
        token = _token(entry, path, key, False, int(id))
        tokens.append(replace(token, special=token.special or token.content in named))
    return tuple(sorted(tokens, key=lambda token: token.id))
