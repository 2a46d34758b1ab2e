"""The pages about plugins say what is so: made from the code where they can be, their examples run."""

import ast
import doctest
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest

import zoo_llama
from zoo.architecture import Architecture, Block, Command, Preset, Rename, hookimpl
from zoo.host import hookspecs
from zoo.host.plugins import HOOKS
from zoo.host.registry import default_registry, isolated
from zoo.inspect.tracing.probe import Recorder, hooked
from zoo.testing import check_architecture

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "plugins").glob("*.md"))


@pytest.fixture
def tool(plugin_pages):
    return plugin_pages


@pytest.mark.parametrize("name", ["hooks.md", "parts.md", "reference.md", "catalogue.md"])
def test_a_page_made_from_the_code_is_current(tool, name):
    written = (ROOT / "docs" / "plugins" / name).read_text(encoding="utf-8")
    assert written == tool.PAGES[name](), "run: python tools/plugin_pages.py"


def test_the_families_to_start_from_are_there(tool):
    first = tool.CATALOGUE_HEAD.partition("## Blocks")[0]
    named = set(re.findall(r"`([a-z][\w.-]*)`", first))
    assert len(named) > 20 and named <= set(default_registry().architectures)


def test_all_that_is_promised_is_there_and_told_on_the_reference_page(tool):
    page = (ROOT / "docs" / "plugins" / "reference.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (zoo[\w.]*)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(tool.PROMISED)
    for module, section in sections.items():
        found = importlib.import_module(module)
        for name in tool.promised(module):
            assert hasattr(found, name) and re.search(rf"`{name}\b", section), f"{module}.{name}"
    for entry in (
        "Model.change_layers(change:",
        "Cache.select(rows:",
        "Tokenizer.encode(text:",
        "Rule.forward(source:",
    ):
        assert f"`{entry}" in page


def test_the_promise_names_every_module_of_the_reference(tool):
    promise = (ROOT / "docs" / "plugins" / "upgrading.md").read_text(encoding="utf-8")
    assert "(reference.md)" in promise
    for module in tool.PROMISED:
        home = "zoo.blocks" if module.startswith("zoo.blocks") else module
        known = {
            "zoo": "`zoo.load`",
            "zoo.config": "`Config`",
            "zoo.generation": "`zoo.Step`",
            "zoo.tokenizer": "tokenizer",
        }
        assert known.get(home, f"`{home}") in promise, module


@pytest.mark.parametrize("name", ["hooks.md", "parts.md"])
def test_a_type_of_several_is_shown_with_its_bars(name):
    from markdown_it import MarkdownIt

    page = (ROOT / "docs" / "plugins" / name).read_text(encoding="utf-8")
    shown = MarkdownIt().enable("table").render(page)
    assert "<td><code>str | None</code></td>" in shown or "<td><code>int | None</code></td>" in shown
    assert "#124" not in shown


def test_every_hook_is_documented_with_an_example_that_runs():
    page = ROOT / "docs" / "plugins" / "hooks.md"
    text = page.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (zoo_\w+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(HOOKS)
    for hook, section in sections.items():
        code = section.partition("```pycon\n")[2].partition("```")[0]
        assert f"def {hook}(" in code and "@hookimpl" in code
        test = doctest.DocTestParser().get_doctest(code, {}, hook, str(page), 0)
        assert test.examples and doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_user_in_the_zoo_itself(hook):
    users = [
        plugin for plugin in default_registry().plugins if plugin.first_party and plugin.records.get(hook)
    ]
    assert users, f"nothing in the zoo uses {hook}"
    assert callable(getattr(hookspecs, hook))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_the_zoos(page):

    text = page.read_text(encoding="utf-8")
    shown = set(re.findall(r"(?:^\s*\$ |`|; )zoo ([a-z][a-z-]*)", text, re.MULTILINE))
    assert shown <= set(default_registry().table(Command)) | {"hello"}, page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_pages_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).is_file(), target


PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_pages_python_is_python(page):
    for code in PYTHON.findall(page.read_text(encoding="utf-8")):
        ast.parse(code)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["blocks.md", "debugging.md", "publishing.md", "tracing.md"])
def test_a_pages_python_runs(name, monkeypatch):
    page = ROOT / "docs" / "plugins" / name
    known = {"__file__": str(page), "__name__": "page"}
    blocks = PYTHON.findall(page.read_text(encoding="utf-8"))
    for code in blocks:
        exec(code, known)
    assert blocks
    if name == "tracing.md":
        gate_is_seen_from_inside(known, monkeypatch)
    if name == "blocks.md":
        gate = known["Gate"](hidden=3)
        assert gate.parameters(4) == 24 and gate.block() == "feedforward/gate"
        with pytest.raises(known["RecipeError"], match="leak"):
            known["Gate"](hidden=3, leak=-1.0)
        holds_the_suite(known, monkeypatch)


def gate_is_seen_from_inside(page, monkeypatch):
    """The page's gate and probe, by the page's hook."""
    module = ModuleType("page")
    vars(module).update(page)
    monkeypatch.setitem(sys.modules, "page", module)
    page["GateModule"].__module__ = page["GateProbe"].__module__ = "page"

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.gated = page["GateModule"](SimpleNamespace(hidden=6), dim=4)

        def __call__(self, x):
            return self.gated(x)

    model, recorder = Model(), Recorder()
    with hooked(model, recorder, isolated(SimpleNamespace(zoo_probes=page["zoo_probes"]))):
        model(mx.ones((1, 3, 4)))
    values = recorder.passes[0].values
    assert set(values) == {"gated", "gated.gate", "gated.opening", "gated.up"}
    assert values["gated.opening"].shape == (1, 3, 6)


def holds_the_suite(page, monkeypatch):
    """The page's attention, in LLaMA's layers."""
    module = ModuleType("page")
    vars(module).update(page)
    monkeypatch.setitem(sys.modules, "page", module)

    class Plugin:
        @hookimpl
        def zoo_blocks(self):
            yield Block(page["TemperedAttention"], "page:TemperedAttentionModule")

        @hookimpl
        def zoo_architectures(self):
            own = Rename("temperature.{i}", "layers.{i}.mixer.temperature")
            yield Architecture(
                "tempered",
                "",
                recipe,
                (own, *zoo_llama.WEIGHTS),
                presets=(Preset("tiny", config=zoo_llama.TINY),),
            )

    def recipe(config):
        return zoo_llama.llama(config).change_layers(
            lambda index, layer: dict(
                mixer=page["TemperedAttention"](layer.mixer.heads, rope=layer.mixer.rope)
            )
        )

    check_architecture("tempered", registry=isolated(Plugin()))
