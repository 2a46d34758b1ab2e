"""`zoo cache`: what was downloaded from the hub."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.hints import Group
from zoo.cli.terminal import table

if TYPE_CHECKING:
    from huggingface_hub import HFCacheInfo


def scan() -> HFCacheInfo | None:
    """Scan the cache of huggingface_hub. None when there is no cache yet; SourceError when it cannot be read."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    from zoo.errors import SourceError

    try:
        return scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return None
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SourceError(f"the cache {constants.HF_HUB_CACHE} cannot be read ({reason})") from error


def downloaded(scanned: HFCacheInfo | None) -> list[dict[str, Any]]:
    """Each downloaded revision of a model, as a dictionary for JSON.

    Sizes are in bytes and count a shared file in each of its revisions. Times are seconds since 1970.
    """
    return [
        {
            "id": repository.repo_id,
            "revision": revision.commit_hash,
            "names": sorted(revision.refs),
            "bytes": revision.size_on_disk,
            "last_used": repository.last_accessed,
            "path": str(revision.snapshot_path),
        }
        for repository in sorted(scanned.repos if scanned else (), key=lambda repository: repository.repo_id)
        if repository.repo_type == "model"
        for revision in sorted(repository.revisions, key=lambda revision: -revision.last_modified)
    ]


@click.group(cls=Group, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def cache(context: click.Context, as_json: bool) -> None:
    """List the models that were downloaded from the hub, by the zoo or by another program that shares its cache."""
    if context.invoked_subcommand is not None:
        return
    from huggingface_hub import constants

    from zoo.describe import amount

    found = downloaded(scan())
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    if not found:
        click.echo(f"no model is in the cache {constants.HF_HUB_CACHE}")
        return
    rows = [
        [
            row["id"],
            " ".join([row["revision"][:8], *row["names"]]),
            f"{amount(row['bytes'])}B",
            time.strftime("%Y-%m-%d", time.localtime(row["last_used"])),
            row["path"],
        ]
        for row in found
    ]
    click.echo(table(rows, ["id", "revision", "size", "last used", "path"]))


@cache.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(ids: tuple[str, ...], yes: bool) -> None:
    """Remove models that `zoo cache` lists: every revision of OWNER/NAME, or the one revision 1234abcd."""
    from dataclasses import replace

    from zoo.checkpoint.hub import explaining
    from zoo.describe import amount
    from zoo.errors import SourceError

    scanned = scan()
    chosen: dict[str, set[str]] = {}
    for wanted in ids:
        name, revisions = _named(wanted, downloaded(scanned))
        chosen.setdefault(name, set()).update(revisions)
    assert scanned is not None  # or nothing would have been named
    plans = {  # each from one model alone: another one can have the same commit
        model.repo_id: replace(scanned, repos=frozenset({model})).delete_revisions(*chosen[model.repo_id])
        for model in scanned.repos
        if model.repo_type == "model" and model.repo_id in chosen
    }
    named = [(name, revision) for name, revisions in chosen.items() for revision in sorted(revisions)]
    what = ", ".join(f"{name} ({revision[:8]})" for name, revision in named)
    what = f"{what}: {amount(sum(plan.expected_freed_size for plan in plans.values()))}B"
    if not yes and not _agreed(f"remove {what}?"):
        raise click.ClickException("nothing was removed")
    for name, plan in plans.items():
        with explaining(name):
            plan.execute()
    for row in downloaded(scan()):  # `execute` only logs that it may not remove a folder
        if (row["id"], row["revision"]) in named:
            raise SourceError(f"{row['path']}: cannot be removed (no permission)")
    click.echo(f"removed {what}", err=True)


def _named(wanted: str, found: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The model that `wanted` names, by its id or by the start of a revision, and those of its revisions that are meant.

    SourceError when it names none, or several.
    """
    from zoo.errors import SourceError, did_you_mean

    if revisions := [row["revision"] for row in found if row["id"] == wanted]:
        return wanted, revisions
    matching = [row for row in found if len(wanted) >= 8 and row["revision"].startswith(wanted)]
    if not matching:
        hint = did_you_mean(wanted, [row["id"] for row in found], "; `zoo cache` lists what is")
        raise SourceError(f"{wanted}: not in the cache{hint}")
    if len(matching) > 1:
        names = ", ".join(f"{row['id']} ({row['revision']})" for row in matching)
        raise SourceError(f"{wanted}: names several revisions: {names}; give the id of a model")
    return matching[0]["id"], [matching[0]["revision"]]


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:  # the end of the input
        click.echo(err=True)
        return False
