"""The examples of every public name give what they show.

They load models and start processes: `make docs` runs them, by the name of this file.
"""

import doctest

import mlx.core as mx
import pytest

import zoo
from tests.helpers.public_names import LISTED, named


@pytest.mark.parametrize("name", [name for _, name in LISTED])
def test_its_examples_give_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder(recurse=False).find(named(name), name, globs={"zoo": zoo, "mx": mx})
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    shown = []
    for test in found:
        runner.run(test, out=shown.append)
    assert runner.failures == 0, "".join(shown)
    assert not any(example.options.get(doctest.SKIP) for test in found for example in test.examples), name
