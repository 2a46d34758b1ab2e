"""The zoo's part of pytest: `--zoo-arch NAME`, and a registry that does not depend on what is installed.

A module by itself, and not one of the zoo's, since pytest imports it in every session: nothing else is imported
before the option or the fixture is used.
"""

import contextlib

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("zoo")
    group.addoption(
        "--zoo-arch",
        action="append",
        default=[],
        metavar="NAME",
        help="hold this architecture of the zoo to its conformance suite, a test a check; may be repeated",
    )


@pytest.hookimpl(tryfirst=True)  # before -k and -m choose
def pytest_collection_modifyitems(session, config, items):
    for name in config.getoption("--zoo-arch"):
        from zoo.testing.pytest_plugin import collect_checks

        items.extend(collect_checks(session, name))


@pytest.fixture
def zoo_registry():
    """A function that puts the zoo's own plugins and the modules given to it in the place of what is installed.

    It gives their registry, which all of the zoo then uses until the test ends: `zoo_registry(my_plugin)`.
    """
    from zoo.host.registry import isolated, using

    with contextlib.ExitStack() as stack:
        yield lambda *plugins: stack.enter_context(using(isolated(*plugins)))
