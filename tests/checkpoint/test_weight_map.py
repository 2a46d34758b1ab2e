"""The map from a checkpoint's names to parameters has every parameter, read off rules of all kinds."""

import pytest
from mlx.utils import tree_flatten

from zoo.architecture import Architecture, Ignore, Rename, Split
from zoo.checkpoint.parameters import export
from zoo.checkpoint.weight_map import RuleEntry, weight_names, weight_rules
from zoo.host.registry import default_registry
from zoo.testing import subject
from zoo.weights import Rule


def plain(name):
    return ".".join("{i}" if step.isdigit() else step for step in name.split("."))


@pytest.mark.parametrize("name", sorted(default_registry().architectures))
def test_every_parameter_and_every_tensor_is_in_it(name):
    made = subject(name)
    layouts = weight_names(made.architecture, made.recipe, made.registry)
    parameters = {plain(path) for path, _ in tree_flatten(made.model.parameters())}
    for layout, pairs in layouts.items():
        assert {path for pair in pairs for path in pair.parameters} == parameters
        tensors = {plain(n) for n in export(made.model, made.architecture, made.recipe, layout)}
        assert {tensor for pair in pairs for tensor in pair.tensors} == tensors


def test_fused_and_split_tensors_are_one_pair():
    made = subject("deepseek-v3")
    pairs = {
        pair.tensors: pair.parameters
        for pair in weight_names(made.architecture, made.recipe, made.registry)["hf"]
    }
    heads = pairs[("model.layers.{i}.self_attn.kv_b_proj.weight",)]
    assert heads == ("layers.{i}.mixer.key_up.weight", "layers.{i}.mixer.value_up.weight")


def test_the_rules_of_a_family_are_listed_once_each_with_their_patterns():
    rename, split = Rename("a.*", "b.*"), Split("qkv.{i}", ("q.{i}", "k.{i}"), transpose=True)
    listed = weight_rules(Architecture("x", "", len, (rename, split, Ignore("c"), rename)))
    assert listed == {
        "hf": [
            RuleEntry("Rename", "a.*", ("b.*",)),
            RuleEntry("Split(transpose=True)", "qkv.{i}", ("q.{i}", "k.{i}")),
            RuleEntry("Ignore", "c", ()),
        ]
    }


def rules_in(rule):
    """The rules that a rule holds; itself where it holds none."""
    values = (value for value in vars(rule).values() if isinstance(value, tuple))
    return [one for value in values for one in value if isinstance(one, Rule)] or [rule]


@pytest.mark.parametrize("name", sorted(default_registry().architectures))
def test_the_rules_of_every_architecture_can_be_listed(name):
    architecture = default_registry().architecture(name)
    listed = weight_rules(architecture)
    rules = [one for rule in dict.fromkeys(architecture.weights) for one in rules_in(rule)]
    assert len(listed["hf"]) == len(rules)
    assert ("gguf" in listed) == (architecture.gguf is not None)


def test_a_rule_that_holds_others_is_listed_as_these():
    listed = weight_rules(default_registry().architecture("qwen3-next"))["hf"]
    inside = [entry for entry in listed if entry.rule.startswith("OfBlock(spec=GatedDeltaNet): ")]
    assert "[model.]layers.{i}.linear_attn.in_proj_ba.*" in {entry.source for entry in inside}
    assert all(entry.targets for entry in inside)
    for architecture in default_registry().architectures.values():
        for entries in weight_rules(architecture).values():
            assert all(len(entry.rule) < 200 for entry in entries), architecture.name
