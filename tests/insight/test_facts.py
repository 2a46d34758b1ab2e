"""Facts and comparisons, read off recipes alone."""

from zoo.insight.facts import amount, comparison, described, facts

from zoo.cli.table import table
from zoo.host.registry import default_registry


def of(name):
    return facts(described(name, default_registry())[2])


def test_equal_layers_are_told_once():
    rows = of("mistral:7b")
    assert rows["layers"] == "32" and rows["layer.mixer.window"] == "4096"


def test_layers_that_differ_are_told_by_count():
    assert of("qwen2:tiny")["layer.mixer.window"] == "– ×1, 6 ×2"


def test_layers_in_turn_are_summed():
    recipe = described("llama:pocket", default_registry())[2]
    turned = recipe.change_layers(lambda index, layer: dict(mixer=dict(window=8 if index % 2 else None)))
    assert facts(turned)["layer.mixer.window"] == "– ×2, 8 ×2 in turn"


def test_cache_bytes_are_two_a_number():
    assert of("llama:8b")["cache per token"] == "131 kB"  # 32 layers · 2 · 8 heads · 128 · 2 bytes
    assert of("gpt2")["parameters"] == "124 M"


def test_comparison_marks_what_differs_and_fills_what_is_absent():
    rows = {
        name: (values, differs) for name, values, differs in comparison({"a": of("gpt2"), "b": of("qwen3")})
    }
    assert rows["layer.mixer.rope"] == (["–", "rope"], True)
    assert rows["causality"] == (["causal", "causal"], False)
    order = [
        name for name, _, _ in comparison({"a": {"x": "1", "z": "1"}, "b": {"x": "1", "y": "2", "z": "1"}})
    ]
    assert order == ["x", "y", "z"]


def test_amounts_and_columns():
    assert [amount(n) for n in (5, 1_234, 1_049_728, 8_030_261_248)] == ["5 ", "1.23 k", "1.05 M", "8.03 G"]
    assert table([["北京", "x"], ["a", "y"]]).splitlines() == ["北京  x", "a     y"]
