"""Where a model is: an architecture's preset, a folder, or a hub id, tried in that order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.architecture import Architecture
from zoo.errors import ConfigError, SourceError
from zoo.registry import Registry

MOST_JSON = 64 * 2**20  # bytes; the largest published config is far below


@dataclass(frozen=True)
class Source:
    """A checkpoint folder on this machine, and the architecture it was asked for by, if it was."""

    folder: Path
    architecture: Architecture | None = None


def find(source: str | Path, known: Registry) -> Source:
    """The checkpoint that `source` names. SourceError, with the nearest names, when there is none."""
    name = str(source)
    if isinstance(source, str) and not name.startswith((".", "/", "~")):
        plain, _, preset = name.replace("::", "\0").partition(":")
        plain = plain.replace("\0", "::")
        if plain in known or "::" in plain:
            return _preset(known.architecture(plain), preset or None)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return Source(folder)
    if folder.exists():
        raise SourceError(f"{folder}: is a file; give the folder that holds config.json and the weights")
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return Source(download(name))
    if "/" in name or name.startswith((".", "~")):
        raise SourceError(f"{name}: no such folder")
    raise SourceError(
        f"{name!r} is no architecture, folder or hub id{known.suggestion(name)}; `zoo list` shows all"
    )


def _preset(architecture: Architecture, name: str | None) -> Source:
    preset = architecture.preset(name)
    if preset is None:
        options = ", ".join(p.name for p in architecture.presets) or "none"
        raise SourceError(f"{architecture.name} has no preset {name!r}; it has: {options}")
    if preset.embedded and preset.folder is not None:
        return Source(preset.folder, architecture)
    if preset.folder is not None:
        how = f"`zoo train {architecture.name} --out FOLDER` makes one"
        raise SourceError(f"{architecture.name}:{preset.name} is not part of this installation; {how}")
    if preset.hub is None:
        raise SourceError(f"{architecture.name}:{preset.name} has numbers only and no weights to run")
    return Source(download(preset.hub), architecture)


def download(hub_id: str) -> Path:
    """A hub repository's config, tokenizer and safetensors files, fetched or from the cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [
        "*.json",
        "*.safetensors",
        "*.jinja",
        "tokenizer.model",
        "*.spm",
        "spiece.model",
        "merges.txt",
        "vocab.txt",
    ]
    try:
        return Path(snapshot_download(hub_id, allow_patterns=patterns))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise SourceError(
            f"{hub_id}: no folder of this name, and the hub did not give it ({reason})"
        ) from error


def read_json(path: Path, required: bool = True) -> dict[str, Any] | None:
    """A JSON object from a file; ConfigError naming the file when it is missing or malformed."""
    if not path.is_file():
        if required:
            raise ConfigError(f"{path}: missing")
        return None
    values = parse_json(path)
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return values


def parse_json(path: Path) -> Any:
    """What a JSON file holds; ConfigError naming the file when it is too large or malformed."""
    if path.stat().st_size > MOST_JSON:
        raise ConfigError(f"{path}: larger than {MOST_JSON // 2**20} MiB")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON ({error})") from error
