"""Finding a model: an architecture's preset, a folder or file, or a hub id, tried in that order; and its format.

The format is known by the name, the first bytes, or the files in the folder. Imports no mlx.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path

from zoo.architecture import Architecture, CheckpointFormat
from zoo.architecture.architecture import Alias
from zoo.errors import SourceError
from zoo.files.reading import file_in_folder, names_in
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry

FOLDER = "folder"  # the format of a folder that no other one recognises
# The address of a repository's page, or of one of its files. The branch "main" counts as no revision.
_HUB_PAGE = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<id>[^/?#]+/[^/?#]+)/?"
    r"(?:(?:tree|blob|resolve)/(?:main|(?P<revision>[^/?#]+))(?P<file>/[^?#]+)?/?)?(?:[?#].*)?"
)
_ONE_COLON = re.compile(r"(?<!:):(?!:)")
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.")  # in the name of all shards but the first


def detect_format(path: Path, registry: Registry) -> tuple[Path, CheckpointFormat]:
    """The checkpoint at a path, and its format; in a folder without a config.json it is the only checkpoint file.

    SourceError for a file that no format reads, and for a folder with several of them.
    """
    if path.exists() and not path.is_dir():
        return path, _format_of_file(path, registry)
    default = registry.table(CheckpointFormat).require(FOLDER)
    found = _chosen(registry, path, lambda format: format is not default and _has(path, format.files))
    if found is None and not _has(path, default.files):
        suffixes = suffixes_of(registry)
        names = [name for name in names_in(path) if name.endswith(suffixes)] if path.is_dir() else []
        names = [name for name in names if not _LATER_SHARD.search(name)]
        names = [name for name in names if "mmproj" not in name.lower()] or names
        if len(names) > 1:
            kinds = " and ".join(sorted({Path(name).suffix[1:].upper() for name in names}))
            raise SourceError(f"{path}: holds several {kinds} files; name one: {', '.join(names)}")
        if names and (file := file_in_folder(path, names[0])) is not None:
            return file, _format_of_file(file, registry)
    return path, found or default


def suffixes_of(registry: Registry) -> tuple[str, ...]:
    """The suffixes of files that are whole checkpoints."""
    formats = registry.table(CheckpointFormat).listed().values()
    return tuple(dict.fromkeys(suffix for format in formats for suffix in format.suffixes))


def _format_of_file(path: Path, registry: Registry) -> CheckpointFormat:
    if path.is_file():
        longest = max(len(format.magic) for format in registry.table(CheckpointFormat).listed().values())
        try:
            with path.open("rb") as file:
                start = file.read(longest)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        found = _chosen(registry, path, lambda format: path.name.endswith(format.suffixes)) or _chosen(
            registry, path, lambda format: bool(format.magic) and start.startswith(format.magic)
        )
        if found is not None:
            return found
    files = " or ".join(suffixes_of(registry))
    raise SourceError(f"{path}: give the folder that holds config.json and the weights, or a {files} file")


def _has(folder: Path, files: Collection[str]) -> bool:
    return bool(files) and all(file_in_folder(folder, name) is not None for name in files)


def _chosen(
    registry: Registry, path: Path, reads: Callable[[CheckpointFormat], bool]
) -> CheckpointFormat | None:
    """The format that reads a path, a third party's before the zoo's own; PluginError for several third parties'."""
    claims = [claim for claim in registry.table(CheckpointFormat).pairs() if reads(claim[1])]
    return registry.table(CheckpointFormat).winner(claims, str(path))[1] if claims else None


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

    Without `weights` only the config.json of a hub id is fetched, with `tokenizer` what stands beside it, too. A page of the
    hub (https://huggingface.co/OWNER/NAME) and hf://OWNER/NAME stand for its id. SourceError, with the nearest names, when
    there is nothing of the name.
    """
    name = str(source)
    named = isinstance(source, str) and not name.startswith((".", "/", "~"))
    if named and is_architecture(name, registry):
        return _preset(*named_preset(name, registry), revision, registry, weights or not tokenizer)
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
    if page := _HUB_PAGE.fullmatch(name):
        name, revision = page["id"] + (page["file"] or ""), revision or page["revision"]
    elif named:
        name = name.removeprefix("hf://")
        if "://" in name:
            raise SourceError(
                f"{name}: not the address of a model on the hub, https://huggingface.co/OWNER/NAME"
            )
    suffixes = suffixes_of(registry)
    is_file = name.endswith(suffixes)
    if named and is_file and name.count("/") > 1 and (page or not folder.parent.is_dir()):
        from zoo.checkpoint.hub import download_file

        owner, repository, file = name.split("/", 2)
        return Source(download_file(f"{owner}/{repository}", file, revision, suffixes))
    if is_file:
        raise SourceError(f"{name}: no such file")
    if named and name.count("/") == 1:
        from zoo.checkpoint.hub import download, download_file

        if weights or tokenizer:
            return Source(download(name, revision, registry, suffixes, weights))
        return Source(download_file(name, "config.json", revision, suffixes).parent)
    if "/" in name or not named:
        raise SourceError(f"{name}: no such folder")
    raise _unknown_source(name, registry)


def is_architecture(name: str, registry: Registry) -> bool:
    """Whether a source has the form of an architecture's name ("llama") or preset's, registered or qualified by "::".

    In another case ("Llama") only where there is no file or folder of the name.
    """
    plain, _ = split_preset(name)
    if plain in registry or "::" in plain or name in registry.table(Alias):
        return True
    return spelling(name, registry) != name and not os.path.exists(name)


def spelling(name: str, registry: Registry) -> str:
    """A name such as "Llama:8b" or "SmolLM2", its architecture or alias in the case in which it is registered."""
    architectures, aliases = registry.table(Architecture), registry.table(Alias)
    plain, _ = split_preset(name)
    if (known := architectures.spelling(plain)) in architectures:
        return known + name.removeprefix(plain)
    return aliases.spelling(name)


def named_preset(name: str, registry: Registry) -> tuple[Architecture, str | None]:
    """The architecture, and the preset if it names one, of "llama", "llama:8b" or an alias such as "smollm2",
    whatever the case.

    An architecture's name comes before an alias. SourceError, with the nearest names, when there is nothing of the name.
    """
    name = spelling(name, registry)
    plain, preset = split_preset(name)
    if plain not in registry and (found := registry.table(Alias).get(name)) is not None:
        return found.architecture, found.preset.name
    if plain not in registry and "::" not in plain:
        raise _unknown_source(name, registry)
    return registry.architecture(plain), preset


def _unknown_source(name: str, registry: Registry) -> SourceError:
    """The error for a name that nothing has. It suggests models whose hub id begins with the name, "Llama-3.2" for llama3.2."""
    plain, _ = split_preset(name)
    sizes = [alias for alias in registry.table(Alias).listed() if alias.startswith(f"{plain}:")]
    near = sizes or _models_like(name, registry) or _models_like(plain, registry)
    hint = registry.suggestion(name if sizes else plain, near[:3])
    hint += " " if hint.endswith("?") else "; "
    hint += "`zoo list --presets` shows the models, `zoo run mlx-community/NAME` runs one of the hub"
    return SourceError(f"{name!r} is no architecture, folder or hub id{hint}")


def _models_like(name: str, registry: Registry) -> list[str]:
    word = _letters(name)
    if len(word) < 4:
        return []
    return [known for known in registry.architectures if _letters(known) == word] + [
        next(iter(preset.aliases), f"{known}:{preset.name}")
        for known, architecture in registry.architectures.items()
        for preset in architecture.presets
        if _letters((preset.hub or "").rpartition("/")[2]).startswith(word)
    ]


def _letters(name: str) -> str:
    """Letters and digits alone, in small letters."""
    return re.sub(r"\W|_", "", name).lower()


def split_preset(name: str) -> tuple[str, str | None]:
    """The architecture and the preset of "llama:pocket", where the name before the colon may itself have a "::"."""
    plain, *preset = _ONE_COLON.split(name, maxsplit=1)
    return plain, "".join(preset) or None


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
        how = "; `zoo run mlx-community/NAME` runs a checkpoint of the hub"
        if preset.name in ("pocket", "tiny"):
            how = (
                f"; `zoo train {architecture.name} --out FOLDER` makes some"
                if preset.name == "pocket"
                else ""
            )
        raise SourceError(f"{architecture.name}:{preset.name} has a configuration but no weights to run{how}")
    from zoo.checkpoint.hub import download

    # A short name does not tell that it is a download.
    suffixes = suffixes_of(registry)
    return Source(download(preset.hub, revision, registry, suffixes, weights, always_ask=True), architecture)
