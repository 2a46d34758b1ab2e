"""Plugins in isolation: one that fails is set aside and named, and names are never taken silently."""

import sys
import textwrap

import pytest

from zoo import plugins as loader
from zoo.errors import ConfigError, PluginError, SourceError
from zoo.registry import Registry

GOOD = """
from zoo.architecture import Architecture, hookimpl
@hookimpl
def zoo_architectures():
    yield Architecture(name="{name}", summary="s", recipe=lambda config: None, weights=(), model_types=("{name}",))
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install distributions on the path, each with one plugin; gives the function that loads all of them."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    modules = []

    def add(distribution, module, code):
        (site / f"{module}.py").write_text(textwrap.dedent(code))
        modules.append(module)
        info = site / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[zoo]\n{module} = {module}\n")

    yield add
    for module in modules:
        sys.modules.pop(module, None)


def loaded(environ=None):
    return {plugin.name: plugin for plugin in loader.load_plugins(environ or {})}


BROKEN = {
    "raises on import": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "syntax error": ("def", "SyntaxError"),
    "missing module": ("import not_there_at_all", "not_there_at_all"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "wrong type": (
        "from zoo.architecture import hookimpl\n@hookimpl\ndef zoo_architectures():\n    return 7",
        "zoo_architectures gave int",
    ),
    "wrong record": (
        "from zoo.architecture import hookimpl\n@hookimpl\ndef zoo_architectures():\n    yield 'llama'",
        "'llama'",
    ),
    "half way": (GOOD.format(name="half") + "    raise ValueError('then this')", "ValueError: then this"),
    "misspelled hook": (
        "from zoo.architecture import hookimpl\n@hookimpl\ndef zoo_architecture():\n    return []",
        "zoo_architecture; did you mean zoo_architectures?",
    ),
    "bad task": (GOOD.format(name="odd").replace("weights=()", "weights=(), task='dance'"), "dance"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_set_aside_with_its_own_words(install, kind):
    code, words = BROKEN[kind]
    install("zoo-bad", "bad_plugin", code)
    found = loaded()
    assert found["bad_plugin"].state == "broken"
    assert words in found["bad_plugin"].error
    assert "\n" not in found["bad_plugin"].error
    assert found["bad_plugin"].gives == []
    assert found["llama"].state == "loaded"
    assert "llama" in Registry(found.values()).architectures


def test_strict_raises(install):
    install("zoo-bad", "bad_plugin", "raise RuntimeError('no luck')")
    with pytest.raises(PluginError, match=r"bad_plugin.*no luck"):
        loaded({"ZOO_STRICT": "1"})


def test_a_newer_contract_is_incompatible(install):
    install("zoo-new", "new_plugin", GOOD.format(name="newer").replace("weights=()", "weights=(), api=99"))
    plugin = loaded()["new_plugin"]
    assert plugin.state == "incompatible" and "99" in plugin.error and plugin.gives == []


def test_allow_and_block_lists(install):
    install("zoo-good", "good_plugin", GOOD.format(name="good"))
    assert {
        p.name for p in loaded({"ZOO_PLUGINS": "llama, good_plugin"}).values() if p.state == "loaded"
    } == {
        "llama",
        "good_plugin",
    }
    blocked = loaded({"ZOO_BLOCK": "good_plugin"})
    assert blocked["good_plugin"].state == "blocked" and blocked["llama"].state == "loaded"


def test_a_third_partys_architecture_is_listed_and_resolved(install):
    install("zoo-good", "good_plugin", GOOD.format(name="good"))
    known = Registry(loaded().values())
    assert known.architecture("good") is known.architecture("zoo-good::good")
    assert known.resolve({"model_type": "good"}).name == "good"
    with pytest.raises(ConfigError, match="other"):
        known.resolve({"model_type": "other"})


def test_between_two_third_parties_neither_wins(install):
    install("zoo-one", "one_plugin", GOOD.format(name="same"))
    install("zoo-two", "two_plugin", GOOD.format(name="same"))
    known = Registry(loaded().values())
    with pytest.raises(PluginError, match=r"zoo-one::same or zoo-two::same"):
        known.architecture("same")
    with pytest.raises(PluginError, match="several"):
        known.resolve({"model_type": "same"})
    assert {"zoo-one::same", "zoo-two::same"} <= set(known.architectures)
    assert known.plugin_of(known.architecture("zoo-two::same")).distribution == "zoo-two"


def test_a_third_party_keeps_its_name_when_the_zoo_has_it_too(install):
    install("zoo-mine", "mine_plugin", GOOD.format(name="llama"))
    known = Registry(loaded().values())
    with pytest.warns(UserWarning, match="zoo-mine"):
        assert known.plugin_of(known.architecture("llama")).distribution == "zoo-mine"
    assert known.plugin_of(known.architecture("mlx-zoo::llama")).ours


def test_zoo_resolve_is_asked_first(install):
    install(
        "zoo-good",
        "good_plugin",
        GOOD.format(name="good")
        + "\n@hookimpl\ndef zoo_resolve(config):\n    return 'good' if config.get('mark') else None",
    )
    known = Registry(loaded().values())
    assert known.resolve({"model_type": "llama", "mark": 1}).name == "good"
    assert known.resolve({"model_type": "llama"}).name == "llama"


def test_an_unknown_name_suggests_near_ones():
    known = Registry(loaded().values())
    with pytest.raises(SourceError, match="llama"):
        known.architecture("lama")


def test_commands_of_a_broken_plugin_do_not_stop_the_others(install, command, tmp_path):
    install("zoo-bad", "bad_plugin", "raise RuntimeError('no luck')")
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    listed = command("plugins", environment=environment)
    assert listed.returncode == 0
    line = next(line for line in listed.stdout.splitlines() if line.startswith("bad_plugin"))
    assert "zoo-bad 1.2" in line and "broken" in line and "no luck" in line
    assert command("list", environment=environment).returncode == 0


def test_every_hooks_example_runs():
    import doctest

    from zoo import hookspecs

    results = doctest.testmod(hookspecs)
    assert results.attempted >= 10 and results.failed == 0
