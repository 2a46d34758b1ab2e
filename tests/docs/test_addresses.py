"""The addresses of the site and the repository: from variables, else from the package's metadata, and none where neither says."""

import pytest
from building import project_urls

LABELS = {"site_url": "Documentation", "repository_url": "Source Code"}
VARIABLES = {"site_url": "ZOO_SITE", "repository_url": "ZOO_REPOSITORY"}


class Metadata:
    def __init__(self, *lines):
        self.lines = list(lines)

    def get_all(self, name):
        assert name == "Project-URL"
        return self.lines or None


@pytest.mark.parametrize("name", LABELS)
def test_an_address_is_the_variables_else_the_metadatas_else_none(name, monkeypatch):
    monkeypatch.delenv(VARIABLES[name], raising=False)
    found = getattr(project_urls, name)
    monkeypatch.setattr(project_urls, "metadata", lambda package: Metadata())
    assert found() == ""
    lines = f"{LABELS[name]}, https://example.org/there", "Changelog, https://example.org/changes"
    monkeypatch.setattr(project_urls, "metadata", lambda package: Metadata(*lines))
    assert found() == "https://example.org/there"
    monkeypatch.setenv(VARIABLES[name], "https://example.org/here")
    assert found() == "https://example.org/here"
