"""Where a model is: an architecture's preset, a folder, or a hub id, tried in that order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.architecture import Architecture
from zoo.checkpoint.files import read_object
from zoo.errors import ConfigError, SourceError
from zoo.registry import Registry


@dataclass(frozen=True)
class Source:
    """A checkpoint folder on this machine, and the architecture it was asked for by, if it was."""

    folder: Path
    architecture: Architecture | None = None


def find(source: str | Path, known: Registry, revision: str | None = None) -> Source:
    """The checkpoint that `source` names; `revision` is of a hub id alone.

    SourceError, with the nearest names, when there is none.
    """
    name = str(source)
    named = isinstance(source, str) and not name.startswith((".", "/", "~"))
    if named:
        plain, _, preset = name.replace("::", "\0").partition(":")
        plain = plain.replace("\0", "::")
        if plain in known.architectures or "::" in plain:
            return _preset(known.architecture(plain), preset or None, revision)
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
        return Source(folder)
    if exists:
        raise SourceError(f"{folder}: is a file; give the folder that holds config.json and the weights")
    if named and name.count("/") == 1:
        return Source(_download(name, revision))
    if "/" in name or not named:
        raise SourceError(f"{name}: no such folder")
    raise SourceError(
        f"{name!r} is no architecture, folder or hub id{known.suggestion(name)}; `zoo list` shows all"
    )


def _no_revision(name: str, revision: str) -> SourceError:
    return SourceError(f"{name}: has no revision {revision!r}: only a hub id has revisions")


def _preset(architecture: Architecture, name: str | None, revision: str | None) -> Source:
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
        raise SourceError(f"{architecture.name}:{preset.name} has numbers only and no weights to run")
    return Source(_download(preset.hub, revision), architecture)


def _download(hub_id: str, revision: str | None) -> Path:
    from zoo.checkpoint.hub import download

    return download(hub_id, revision)


def read_json(path: Path, required: bool = True) -> dict[str, Any]:
    """The JSON object in a checkpoint's file; ConfigError naming the file when it is malformed, or `required` and missing."""
    return read_object(path.parent, path.name, ConfigError, required)
