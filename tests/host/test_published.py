"""When each architecture was published: data on its record, which its first reference confirms."""

import re

import pytest

from zoo.host.plugins import load_plugins
from zoo.host.registry import Registry

ARXIV = re.compile(r"arXiv:(\d\d)(\d\d)\.\d{4,5}")
ARCHITECTURES = [
    one
    for one in Registry([plugin for plugin in load_plugins({}) if plugin.first_party]).architectures.values()
    if any(preset.config for preset in one.presets)
]


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda one: one.name)
def test_the_month_of_publication_is_that_of_the_first_reference(architecture):
    first = architecture.references[0]
    if found := ARXIV.search(first):
        assert architecture.published == f"20{found[1]}-{found[2]}"
    else:
        year = architecture.published.partition("-")[0]
        assert year and year in first


def test_the_first_gpt_is_older_than_gpt2():
    months = {one.name: one.published for one in ARCHITECTURES}
    assert months["transformer"] < months["gpt"] < months["gpt2"] < months["llama"]
