"""Finding a model: an architecture's preset, a folder or file, or a hub id, tried in that order."""

from __future__ import annotations

from pathlib import Path

from zoo.architecture import Architecture
from zoo.checkpoint.detect_format import detect_format, suffixes_of
from zoo.errors import SourceError
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry


@frozen()
class Source(Frozen):
    """A checkpoint's folder or file on this machine, and the architecture it was asked for by, if it was."""

    path: Path
    architecture: Architecture | None = None


def find(
    source: str | Path,
    registry: Registry,
    revision: str | None = None,
    *,
    weights: bool = True,
    tokenizer: bool = False,
) -> Source:
    """The checkpoint that `source` names; `revision` is of a hub id alone.

    Without `weights` only the config.json of a hub id is fetched, with `tokenizer` what stands beside it, too. SourceError, with the nearest names, when there is
    nothing of the name.
    """
    name = str(source)
    named = isinstance(source, str) and not name.startswith((".", "/", "~"))
    if named and is_architecture(name, registry):
        plain, preset = split_preset(name)
        return _preset(registry.architecture(plain), preset, revision, registry, weights or not tokenizer)
    try:
        folder = Path(source).expanduser()
        exists = folder.exists()
    except (OSError, RuntimeError, ValueError) as error:  # no such user, a name too long or with a zero byte
        raise SourceError(
            f"{name[:200]}: cannot be looked for ({getattr(error, 'strerror', error)})"
        ) from error
    if exists:
        _check_no_revision(str(folder), revision)
        return Source(detect_format(folder, registry)[0])
    is_file = name.endswith(suffixes_of(registry))
    if named and is_file and name.count("/") > 1 and not folder.parent.is_dir():
        from zoo.checkpoint.hub import download_file

        owner, repository, file = name.split("/", 2)
        return Source(download_file(f"{owner}/{repository}", file, revision, registry))
    if is_file:
        raise SourceError(f"{name}: no such file")
    if named and name.count("/") == 1:
        from zoo.checkpoint.hub import download, download_file

        if weights or tokenizer:
            return Source(download(name, revision, registry, weights))
        return Source(download_file(name, "config.json", revision, registry).parent)
    if "/" in name or not named:
        raise SourceError(f"{name}: no such folder")
    raise SourceError(
        f"{name!r} is no architecture, folder or hub id{registry.suggestion(split_preset(name)[0])}; `zoo list` shows all"
    )


def is_architecture(name: str, registry: Registry) -> bool:
    """Whether a source has the form of an architecture's name ("llama") or preset's, registered or qualified by "::"."""
    plain, _ = split_preset(name)
    return plain in registry or "::" in plain


def split_preset(name: str) -> tuple[str, str | None]:
    """The architecture and the preset of "llama:pocket", where the name before the colon may itself have a "::"."""
    plain, _, preset = name.replace("::", "\0").partition(":")
    return plain.replace("\0", "::"), preset or None


def _check_no_revision(name: str, revision: str | None) -> None:
    if revision is not None:
        raise SourceError(f"{name}: has no revision {revision!r}: only a hub id has revisions")


def _preset(
    architecture: Architecture,
    name: str | None,
    revision: str | None,
    registry: Registry,
    weights: bool = True,
) -> Source:
    preset = architecture.preset(name)
    if preset is None:
        if not architecture.presets:
            raise SourceError(f"{architecture.name} has no checkpoint of its own: give a folder or a hub id")
        options = ", ".join(p.name for p in architecture.presets)
        raise SourceError(f"{architecture.name} has no preset {name!r}; it has: {options}")
    if preset.folder is not None:
        _check_no_revision(f"{architecture.name}:{preset.name}", revision)
        if preset.embedded:
            return Source(preset.folder, architecture)
        how = f"`zoo train {architecture.name} --out FOLDER` makes one"
        raise SourceError(f"{architecture.name}:{preset.name} is not part of this installation; {how}")
    if preset.hub is None:
        how = f"; `zoo train {architecture.name} --out FOLDER` makes some" if preset.name == "pocket" else ""
        raise SourceError(f"{architecture.name}:{preset.name} has numbers only and no weights to run{how}")
    from zoo.checkpoint.hub import download

    return Source(download(preset.hub, revision, registry, weights), architecture)
