"""Addresses of the project, from the metadata of its installed package (`[project.urls]`): none is invented."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The labels by which package indexes know them, without punctuation, in small letters.
REPOSITORY = ("repository", "sourcecode", "source", "github", "code")
SITE = ("documentation", "docs")


def project_url(lines: Iterable[str] | None, labels: tuple[str, ...]) -> str:
    """The address with the first of `labels` among lines such as "Repository, https://example.org/zoo"; "" for none."""
    found = {}
    for line in lines or ():
        label, _, address = line.partition(",")
        found[re.sub(r"[\W_]", "", label).lower()] = address.strip()
    return next((found[label] for label in labels if found.get(label)), "")
