"""The page about checkpoints: its code runs, in order, and what it defines works."""

import re
import sys
from pathlib import Path
from types import ModuleType

import mlx.core as mx
import pytest

from zoo.architecture import Architecture, Preset, hookimpl
from zoo.assemble import build
from zoo.cache import PaddingCache
from zoo.config import Config
from zoo.host.registry import default_registry, isolated
from zoo.recipe import Attention
from zoo.testing import check_architecture, same
from zoo_llama import TINY, WEIGHTS, llama

PAGE = Path(__file__).parents[2] / "docs" / "plugins" / "checkpoints.md"


@pytest.fixture(scope="module")
def page():
    known = {"__name__": "my_plugin.block"}
    for code in re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        exec(code, known)
    return known


@pytest.fixture
def known(page, monkeypatch):
    """A registry with the page's blocks, its modules where its records say they are."""
    module = ModuleType("my_plugin.block")
    vars(module).update(page)
    monkeypatch.setitem(sys.modules, "my_plugin", ModuleType("my_plugin"))
    monkeypatch.setitem(sys.modules, "my_plugin.block", module)
    scaled = TINY | dict(rope_scaling=dict(rope_type="stepped", factor=8.0))

    class Page:
        @hookimpl
        def zoo_blocks(self):
            yield from page["zoo_blocks"]()

        @hookimpl
        def zoo_architectures(self):
            def recipe(config):
                return llama(config, page["RoPE"].of(config, kinds={"stepped": page["stepped"]}))

            presets = (Preset("tiny", config=scaled),)
            yield Architecture(name="stepped", summary="", recipe=recipe, weights=WEIGHTS, presets=presets)

    return isolated(Page())


@pytest.mark.slow
def test_a_model_with_the_pages_scaling_holds_the_suite(known):
    check_architecture("stepped", registry=known)


def test_the_pages_recipe_leaves_its_keys_out(page):
    config = Config(dict(hidden_dropout=0.1, router_aux_loss_coef=0.1, mystery=1))
    page["family"](config)
    assert config.unread() == ["mystery"]


def test_the_pages_attention_sharpens_later_queries(page):
    spec, x = Attention(heads=2), mx.random.normal((1, 3, 16))
    sharpened, plain = page["SharpenedAttention"](spec, dim=16), build(spec, 16, registry=default_registry())
    plain.update(sharpened.parameters())
    same(sharpened(x), plain(x), "near the beginning")
    late = PaddingCache()
    late.length = 8192
    assert mx.abs(sharpened(x, None, late) - plain(x, None, late)).max().item() > 0
    assert sharpened._sharper.shape == (1, 3, 1)
    assert mx.allclose(sharpened._sharper, 1 + 0.1 * mx.log(mx.array(2.0))).item()
