"""Grids of three parameters and more: each pair of two parameters' values is compared; `make nightly` adds the rest."""

from itertools import combinations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as nightly the combinations of a grid all of whose pairs of values occur in others."""
    grids = {}
    for item in items:
        if len(axes_of(item)) > 2:
            grids.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for grid in grids.values():
        left = {item: set(combinations(axes_of(item), 2)) for item in grid}
        while left:
            item = max(left, key=lambda item: len(left[item]))  # the first of those with the most new pairs
            new = left.pop(item)
            if not new:
                item.add_marker(pytest.mark.nightly)
            for pairs in left.values():
                pairs -= new


def axes_of(item):
    """The values of one item, as (name of the first argument, value) for each `parametrize` of its test."""
    values = item.callspec.params if hasattr(item, "callspec") else {}
    named = [mark.args[0] for mark in item.iter_markers("parametrize")]
    first = [names.split(",")[0].strip() if isinstance(names, str) else names[0] for names in named]
    return [(name, repr(values[name])) for name in first if name in values]
