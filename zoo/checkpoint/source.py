"""Where a model is: an architecture's preset, a folder, or a hub id, tried in that order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.architecture import Architecture
from zoo.errors import ConfigError, SourceError
from zoo.files import inside, read_object
from zoo.host.registry import Registry

GGUF_SUFFIX = ".gguf"
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True)
class Source:
    """A checkpoint folder or GGUF file on this machine, and the architecture it was asked for by, if it was."""

    folder: Path
    architecture: Architecture | None = None


def find(
    source: str | Path, registry: Registry, revision: str | None = None, *, weights: bool = True
) -> Source:
    """The checkpoint that `source` names; `revision` is of a hub id alone.

    Without `weights` only the config.json of a hub id is fetched. SourceError, with the nearest names, when there is
    nothing of the name.
    """
    name = str(source)
    named = isinstance(source, str) and not name.startswith((".", "/", "~"))
    if named and is_architecture(name, registry):
        plain, preset = _parted(name)
        return _preset(registry.architecture(plain), preset, revision, registry)
    try:
        folder = Path(source).expanduser()
        is_folder, exists = folder.is_dir(), folder.exists()
    except (OSError, RuntimeError, ValueError) as error:  # no such user, a name too long or with a zero byte
        raise SourceError(
            f"{name[:200]}: cannot be looked for ({getattr(error, 'strerror', error)})"
        ) from error
    if exists and revision is not None:
        raise _no_revision(str(folder), revision)
    if is_folder:
        return Source(_only_gguf(folder) or folder)
    if exists:
        return Source(_gguf(folder))
    if named and name.endswith(GGUF_SUFFIX) and name.count("/") > 1 and not folder.parent.is_dir():
        return Source(_download_file(name, revision))
    if name.endswith(GGUF_SUFFIX):
        raise SourceError(f"{name}: no such file")
    if named and name.count("/") == 1:
        return Source(
            _download(name, revision, registry)
            if weights
            else _download_file(f"{name}/config.json", revision).parent
        )
    if "/" in name or not named:
        raise SourceError(f"{name}: no such folder")
    raise SourceError(
        f"{name!r} is no architecture, folder or hub id{registry.suggestion(name)}; `zoo list` shows all"
    )


def is_architecture(name: str, registry: Registry) -> bool:
    """Whether a source names an architecture ("llama"), one of its presets, or what only one could be named."""
    plain, _ = _parted(name)
    return plain in registry or "::" in plain


def _parted(name: str) -> tuple[str, str | None]:
    """The architecture and the preset of "llama:pocket", where the name before the colon may itself have a "::"."""
    plain, _, preset = name.replace("::", "\0").partition(":")
    return plain.replace("\0", "::"), preset or None


def _gguf(path: Path) -> Path:
    """The same path where it is a GGUF file's; SourceError for another."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                if path.suffix == GGUF_SUFFIX or file.read(4) == b"GGUF":
                    return path
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    raise SourceError(
        f"{path}: give the folder that holds config.json and the weights, or a {GGUF_SUFFIX} file"
    )


def _only_gguf(folder: Path) -> Path | None:
    """The GGUF file of a folder that has no config.json, the first of those it is divided among; None without one.

    SourceError for several.
    """
    found = sorted(path.name for path in folder.glob(f"*{GGUF_SUFFIX}") if not _LATER_PART.search(path.name))
    if not found or inside(folder, "config.json"):
        return None
    if len(found) > 1:
        raise SourceError(f"{folder}: holds several GGUF files; name one: {', '.join(found)}")
    return inside(folder, found[0])


def _no_revision(name: str, revision: str) -> SourceError:
    return SourceError(f"{name}: has no revision {revision!r}: only a hub id has revisions")


def _preset(architecture: Architecture, name: str | None, revision: str | None, registry: Registry) -> Source:
    preset = architecture.preset(name)
    if preset is None:
        if not architecture.presets:
            raise SourceError(f"{architecture.name} has no checkpoint of its own: give a folder or a hub id")
        options = ", ".join(p.name for p in architecture.presets)
        raise SourceError(f"{architecture.name} has no preset {name!r}; it has: {options}")
    if preset.folder is not None and revision is not None:
        raise _no_revision(f"{architecture.name}:{preset.name}", revision)
    if preset.embedded and preset.folder is not None:
        return Source(preset.folder, architecture)
    if preset.folder is not None:
        how = f"`zoo train {architecture.name} --out FOLDER` makes one"
        raise SourceError(f"{architecture.name}:{preset.name} is not part of this installation; {how}")
    if preset.hub is None:
        how = f"; `zoo train {architecture.name} --out FOLDER` makes some" if preset.name == "pocket" else ""
        raise SourceError(f"{architecture.name}:{preset.name} has numbers only and no weights to run{how}")
    return Source(_download(preset.hub, revision, registry), architecture)


def _download(hub_id: str, revision: str | None, registry: Registry) -> Path:
    from zoo.checkpoint.hub import download

    return download(hub_id, revision, registry)


def _download_file(name: str, revision: str | None) -> Path:
    """The file of OWNER/NAME/FILE."""
    from zoo.checkpoint.hub import download_file

    owner, repository, file = name.split("/", 2)
    return download_file(f"{owner}/{repository}", file, revision)


def read_json(path: Path, required: bool = True) -> dict[str, Any]:
    """The JSON object in a checkpoint's file; ConfigError naming the file when it is malformed, or `required` and missing."""
    return read_object(path.parent, path.name, ConfigError, required)
