"""The code behind a recipe: where it is, what it inherits, what a plugin's function uses."""

import functools

import pytest

from zoo.blocks.attention import Attention
from zoo.describe import describe
from zoo.describe.source_code import ROOT, block_classes, block_parts, recipe_code, source_of
from zoo.host.registry import default_registry


def test_a_source_says_where_it_is():
    source = source_of(Attention)
    assert (source.name, source.file) == ("zoo.blocks.attention:Attention", "zoo/blocks/attention.py")
    lines = (ROOT / source.file).read_text().splitlines()
    assert lines[source.line - 1].startswith("class Attention(")
    assert source.text.splitlines()[0] == lines[source.line - 1]
    assert source.bases == ("zoo.blocks.attention:MultiHeadAttention",)


def test_what_has_no_file_has_no_source():
    assert source_of(len) is None
    assert source_of(int) is None


def test_html_is_escaped_and_coloured(tmp_path, monkeypatch):
    path = tmp_path / "made_up_module.py"
    path.write_text('def smaller(a, b):\n    """Less & less."""\n    return a < b  # <b>\n')
    monkeypatch.syspath_prepend(tmp_path)
    import made_up_module

    source = source_of(made_up_module.smaller)
    assert source.file == "made_up_module.py"
    html = source.html
    assert "a &lt; b" in html and "Less &amp; less" in html and "<b>" not in html
    assert '<span class="k">def </span><span class="f">smaller</span>' in html


@pytest.mark.parametrize("name", default_registry().architectures)
def test_every_block_of_a_recipe_has_a_class(name):
    registry = default_registry()
    recipe = describe(name, registry).recipe
    classes = block_classes(recipe, registry)
    assert set(classes) == {spec.block() for _, spec in recipe.walk()}
    assert all(source_of(one) is not None for one in classes.values())


def test_parts_are_those_that_a_block_holds():
    parts = block_parts(describe("mixtral", default_registry()).recipe)
    assert parts["feedforward/moe"] == ("router/softmax", "experts/gated-mlp")
    assert "norm/rmsnorm" not in parts


def test_a_recipe_function_is_followed_through_plugins():
    registry = default_registry()
    mixtral = [one.__name__ for one in recipe_code(registry.architecture("mixtral").recipe)]
    assert mixtral[0] == "mixtral" and "moe" in mixtral and "llama" in mixtral
    assert "repeat" not in mixtral  # the vocabulary that all share


def test_a_function_may_be_wrapped():
    llama = registry_function("llama")
    assert recipe_code(functools.partial(llama, rope=None)) == recipe_code(llama)


def registry_function(name):
    return default_registry().architecture(name).recipe
