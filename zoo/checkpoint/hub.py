"""Hub ids: the files of a repository that a model needs, fetched by huggingface_hub into the cache it shares.

One request asks what the repository holds now; only what the cache lacks is fetched after it.
"""

from __future__ import annotations

import errno
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from zoo.architecture import QuantizedFormat, TokenizerFormat
from zoo.checkpoint.hub_guard import COMMIT, check_hexadecimal, confirm_download, guarding
from zoo.checkpoint.safetensors import INDEX, has_only_pickles, weight_files, weight_names
from zoo.errors import CheckpointError, SourceError
from zoo.files.reading import MAX_FILE_BYTES
from zoo.host.registry import Registry
from zoo.tokenizer.settings import MORE_TEMPLATES, SETTINGS, vocabulary_files

SECONDS = 10  # that the hub has for its first answer

# The account that converts weights at people's requests, and the title of its pull requests.
CONVERTER, CONVERTED = "SFconvertbot", "`safetensors` variant of this model"

CONFIG = "config.json"
DATA = (".jsonl", ".json")  # endings of a dataset's files that are fetched
# The files of sentence-transformers, whose modules have numbered folders of their own, and of named chat templates.
IN_FOLDERS = re.compile(
    MORE_TEMPLATES
    + r"/\w+\.jinja|modules\.json|config_sentence_transformers\.json|sentence_[\w-]+_config\.json|"
    r"\d+_\w+/(config\.json|model\.safetensors)"
)
BESIDE = (CONFIG, "generation_config.json", INDEX, *SETTINGS)


class Listing:
    """The files of a repository at one commit. `files` maps names to huggingface_hub's records.

    Those whose names end in `large` hold weights, and may be as large as the disk has room for. A file is left out
    whose name no terminal could show as it is. SourceError for an invalid commit.
    """

    def __init__(self, hub_id: str, info: Any, large: tuple[str, ...], repo_type: str = "model") -> None:
        self.hub_id = hub_id
        self.repo_type = repo_type
        self.large = large
        self.commit = str(info.sha)
        self.files: dict[str, Any] = {
            file.rfilename: file
            for file in info.siblings or ()
            if isinstance(file.rfilename, str) and file.rfilename.isprintable()
        }
        check_hexadecimal(hub_id, "commit", self.commit, COMMIT)

    def _blob(self, name: str) -> str | None:
        """The name of a file's blob in the cache, None where the hub does not say."""
        file = self.files[name]
        return file.lfs.sha256 if file.lfs else file.blob_id

    def fetch(self, names: Sequence[str], always_ask: bool = False) -> None:
        """Download these files at this commit, one after the other; those in the cache cost no request.

        `always_ask`: a small download is confirmed, too. SourceError, before anything is fetched, when the disk has no room
        for them, or a person who is asked declines.
        """
        from huggingface_hub import constants

        cache = Path(constants.HF_HUB_CACHE)
        blobs = cache / f"{self.repo_type}s--{self.hub_id.replace('/', '--')}" / "blobs"
        hashes = {name: self._blob(name) for name in names}
        lacking = [name for name, blob in hashes.items() if blob is None or not (blobs / blob).exists()]
        need = sum(self.files[name].size or 0 for name in lacking)
        with explaining(self.hub_id):
            disk = next(folder for folder in (cache, *cache.parents) if folder.exists())
            free = shutil.disk_usage(disk).free
        if need > free:
            raise SourceError(
                f"{self.hub_id}: needs {need / 1e9:.1f} GB on the disk of {cache}, which has {free / 1e9:.1f} GB free; "
                f"{_ROOM}"
            )
        confirm_download(self.hub_id, need, always_ask)
        for name in names:
            self.fetch_file(name, self.commit, tqdm_class=_bar(name))

    def fetch_file(self, name: str, revision: str | None, **options: Any) -> None:
        """Download a file unless the cache has it; the cache then knows this commit by the name `revision`."""
        from huggingface_hub import hf_hub_download

        size = self.files[name].size or 0
        if size > MAX_FILE_BYTES and not name.endswith(self.large):
            raise SourceError(
                f"{self.hub_id}: {name} has {size:,} bytes, where {MAX_FILE_BYTES:,} are the most"
            )
        options |= {"revision": revision, "repo_type": self.repo_type}
        with explaining(self.hub_id, revision):
            hf_hub_download(self.hub_id, name, **options)


def download(
    hub_id: str,
    revision: str | None,
    registry: Registry,
    suffixes: tuple[str, ...],
    weights: bool = True,
    always_ask: bool = False,
) -> Path:
    """The folder of a repository's config, tokenizer and, with `weights`, safetensors files, fetched or from the cache.

    `revision` is a branch, a tag or a commit; `registry` has the plugins whose files are fetched, too; files with these
    `suffixes` are whole checkpoints. `always_ask`: small weights are confirmed, too. Where the main branch has pickles
    alone, their conversion to safetensors by the hub serves. Without a network, and with HF_HUB_OFFLINE=1, what is in
    the cache serves. SourceError says in one line what is wrong with the id, the access, the network or the disk.
    """
    try:
        listing = ask(hub_id, revision, suffixes)
    except SourceError as error:
        folder = _cached(hub_id, CONFIG, revision)
        return _cached_or_raise(error, None if weights and folder and not _is_whole(folder) else folder)
    if weights and revision is None and has_only_pickles(listing.files):
        converted = conversion(hub_id)
        if converted is not None:
            warnings.warn(
                f"{hub_id}: pickles are never opened; the hub's conversion, revision {converted}, serves",
                stacklevel=2,
            )
            return download(hub_id, converted, registry, suffixes, weights, always_ask)
    listing.fetch(wanted(hub_id, listing.files, registry, suffixes))
    folder = _snapshot(listing, CONFIG, revision)
    if not weights:
        return folder
    names = weight_names(folder, listing.files, hub_id)
    absent = next((name for name in names if name not in listing.files), None)
    if absent is not None:
        raise CheckpointError(f"{hub_id}: {INDEX} names {absent}, which the repository lacks")
    listing.fetch(names, always_ask)
    return folder


def download_file(hub_id: str, name: str, revision: str | None, suffixes: tuple[str, ...]) -> Path:
    """One file of a repository, by its name, fetched or from the cache; SourceError as for `download`."""
    try:
        listing = ask(hub_id, revision, suffixes)
    except SourceError as error:
        return _cached_or_raise(error, _cached(hub_id, name, revision)) / name
    if name not in listing.files:
        like = sorted(other for other in listing.files if other.endswith(Path(name).suffix))
        raise SourceError(f"{hub_id}: has no file {name}; it has {', '.join(like[:5]) or 'none of its kind'}")
    listing.fetch([name])
    return _snapshot(listing, name, revision) / name


def download_dataset(hub_id: str, choose: Callable[[Collection[str]], Collection[str]]) -> Path:
    """The folder of those files of a dataset that `choose` takes of their names, fetched or from the cache.

    SourceError as for `download`.
    """
    from huggingface_hub import snapshot_download

    try:
        listing = ask(hub_id, None, DATA, "dataset")
    except SourceError as error:
        cached = None
        with suppress(SourceError), explaining(hub_id):
            cached = Path(snapshot_download(hub_id, repo_type="dataset", local_files_only=True))
        return _cached_or_raise(error, cached)
    names = sorted(choose(listing.files))
    listing.fetch(names)
    return _snapshot(listing, names[0], None)


def wanted(hub_id: str, names: Collection[str], registry: Registry, suffixes: tuple[str, ...]) -> list[str]:
    """Of a repository's files, those beside the weights that loading reads; SourceError when it holds no model."""
    if CONFIG not in names:
        why = f"{hub_id}: has no {CONFIG}, so no folder that can be loaded"
        if files := sorted(name for name in names if name.endswith(suffixes)):
            kinds = " and ".join(sorted({Path(name).suffix[1:].upper() for name in files}))
            why += f"; of its {kinds} files name one: {', '.join(f'{hub_id}/{name}' for name in files[:8])}"
        raise SourceError(why)
    tokenizers = [format.files for format in registry.table(TokenizerFormat).listed().values()]
    quantized = [format.settings_file for format in registry.table(QuantizedFormat).listed().values()]
    files = [
        *(*BESIDE, *filter(None, quantized)),
        *sorted(filter(IN_FOLDERS.fullmatch, names)),
        *(file for files in tokenizers if all(name in names for name in files) for file in files),
        *vocabulary_files(names.__contains__),
    ]
    return [name for name in dict.fromkeys(files) if name in names]


def ask(hub_id: str, revision: str | None, suffixes: tuple[str, ...], repo_type: str = "model") -> Listing:
    """The files of a repository; SourceError when the hub refuses, or gives no answer within `SECONDS`."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise SourceError(
            f"{hub_id}: no folder of this name, no complete copy in the cache {constants.HF_HUB_CACHE}, and "
            f"HF_HUB_OFFLINE forbids the download"
        )
    from huggingface_hub import HfApi

    with explaining(hub_id, revision):
        info = HfApi().repo_info(
            hub_id, revision=revision, repo_type=repo_type, timeout=SECONDS, files_metadata=True
        )
        return Listing(hub_id, info, (".safetensors", *suffixes), repo_type)


def conversion(hub_id: str) -> str | None:
    """The revision, "refs/pr/1", in which the hub's converter added the weights as safetensors; None for none."""
    from huggingface_hub import HfApi

    with suppress(SourceError), explaining(hub_id):
        found = HfApi().get_repo_discussions(
            hub_id, author=CONVERTER, discussion_type="pull_request", discussion_status="open"
        )
        for request in found:
            if request.author == CONVERTER and CONVERTED in request.title:
                return f"refs/pr/{request.num}"
    return None  # then the pickles are refused


def _cached_or_raise(error: SourceError, folder: Path | None) -> Path:
    """Return the folder in the cache, with a warning that the hub failed; raise the error when there is none."""
    from huggingface_hub import constants

    if folder is None:
        raise error
    if not constants.HF_HUB_OFFLINE:
        warnings.warn(f"{error}; the copy in the cache serves", stacklevel=3)
    return folder


def _cached(hub_id: str, name: str, revision: str | None, repo_type: str = "model") -> Path | None:
    """The folder of the snapshot in the cache that has a file, None when none has."""
    from huggingface_hub import try_to_load_from_cache

    with explaining(hub_id, revision):
        found = try_to_load_from_cache(hub_id, name, revision=revision, repo_type=repo_type)
    return Path(found.removesuffix(name)) if isinstance(found, str) else None


def _is_whole(folder: Path) -> bool:
    """Whether a snapshot in the cache has all its weights, which are fetched after all else."""
    try:
        return bool(weight_files(folder))
    except CheckpointError:
        return False


def _snapshot(listing: Listing, name: str, revision: str | None) -> Path:
    """The folder of the snapshot that has `name`; the cache now knows which commit the revision's name stands for."""
    folder = _cached(listing.hub_id, name, listing.commit, listing.repo_type)
    assert folder is not None
    if _cached(listing.hub_id, name, revision, listing.repo_type) != folder:
        listing.fetch_file(name, revision)
    return folder


def _bar(name: str) -> Any:
    """huggingface_hub's progress bar, which only a terminal shows, for one file; gone when it is full."""
    from huggingface_hub.utils import tqdm

    # A bar controls the terminal: where the command line has put a stream that obeys nothing before it, the one beneath.
    stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | {"desc": name, "leave": False, "file": stream})

    return Bar


@contextmanager
def explaining(hub_id: str, revision: str | None = None) -> Iterator[None]:
    """Check what the hub answers, turn what huggingface_hub raises into a SourceError of one line, and hold back its logs."""
    from huggingface_hub.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity(max(level, logging.ERROR))
    try:
        with guarding(hub_id):
            yield
    except SourceError:
        raise
    except Exception as error:  # each version brings another HTTP library, whose errors share no base
        raise SourceError(f"{hub_id}: {_reason(error, hub_id, revision)}") from error
    finally:
        logging.set_verbosity(level)


_LOGIN = "log in with `hf auth login` or set HF_TOKEN"
_ROOM = "`zoo cache remove` makes room, HF_HOME names another place"


def _reason(error: Exception, hub_id: str, revision: str | None) -> str:
    """The cause of an error, and what to do about it."""
    from huggingface_hub import constants, errors

    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)

    def of(kind: Any) -> Any:
        return next((link for link in chain if isinstance(link, kind)), None)

    page = f"{constants.ENDPOINT}/{hub_id}"
    status = getattr(getattr(of(errors.HfHubHTTPError), "response", None), "status_code", None)
    disk = next((link.errno for link in chain if isinstance(link, OSError) and link.filename), None)
    reason = " ".join(str(chain[-1]).split())[:200] or type(chain[-1]).__name__  # what the others wrap
    if of(errors.HFValidationError):
        return "no folder of this name, and no hub id either: one is written OWNER/NAME, a file of it OWNER/NAME/FILE.gguf"
    if of(errors.GatedRepoError):
        copies = f"{constants.ENDPOINT}/models?search=mlx-community/{hub_id.rpartition('/')[2]}"
        return f"is gated: accept its licence at {page}, then {_LOGIN}; or give one of its copies, {copies}"
    if of(errors.RepositoryNotFoundError):
        return f"no folder of this name, and no such model or dataset on the hub; check the spelling, or {_LOGIN} if it is private"
    if of(errors.RevisionNotFoundError):
        return f"has no revision {revision!r}; {page}/tree/main shows its branches and tags"
    if status in (401, 403):
        return f"the hub refuses access (status {status}): accept its licence at {page}, if it has one, then {_LOGIN}"
    if status == 429:
        return f"the hub asks for a pause after too many requests; wait, or {_LOGIN}"
    if status is not None:
        return f"the hub fails with status {status}; try again later"
    if any(getattr(link, "errno", None) == errno.ENOSPC for link in chain):
        return f"the disk of {constants.HF_HUB_CACHE} is full; {_ROOM}"
    if disk is not None:
        return f"the cache {constants.HF_HUB_CACHE} cannot be used ({reason}); HF_HOME names another place"
    return (
        f"the hub at {constants.ENDPOINT} cannot be reached ({reason}); check the network and run again: "
        f"files that were downloaded whole are kept"
    )
