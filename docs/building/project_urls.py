"""Addresses of the project: of the variables ZOO_SITE and ZOO_REPOSITORY, else of the package's metadata. None is invented."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib.metadata import metadata

# The labels of `[project.urls]` by which package indexes know them, without punctuation, in small letters.
REPOSITORY = ("repository", "sourcecode", "source", "github", "code")
SITE = ("documentation", "docs")


def project_url(lines: Iterable[str] | None, labels: tuple[str, ...]) -> str:
    """The address with the first of `labels` among lines such as "Repository, https://example.org/zoo"; "" for none."""
    found = {}
    for line in lines or ():
        label, _, address = line.partition(",")
        found[re.sub(r"[\W_]", "", label).lower()] = address.strip()
    return next((found[label] for label in labels if found.get(label)), "")


def site_url() -> str:
    """Where the site is published, "" where nothing says so."""
    return os.environ.get("ZOO_SITE") or project_url(metadata("mlx-zoo").get_all("Project-URL"), SITE)


def repository_url() -> str:
    """Where the code is published, "" where nothing says so."""
    return os.environ.get("ZOO_REPOSITORY") or project_url(
        metadata("mlx-zoo").get_all("Project-URL"), REPOSITORY
    )
