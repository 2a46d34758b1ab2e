"""Weight rules are refused where they are made, by a line that names the rule."""

import mlx.core as mx
import pytest

from zoo.architecture import Architecture, Ignore, OutputHead, Rename, Split, Stack, Transpose
from zoo.checkpoint.parameters import join
from zoo.errors import PluginError
from zoo.host.registry import default_registry
from zoo.weights import apply, invert

QKV = ("x.{i}.query", "x.{i}.key", "x.{i}.value")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Rename("a.{i}.*", "b.{j}.*"), "{i} stands in its source and not in its target"),
        (lambda: Rename("a.*", "b.{i}.*"), "{i} stands in its target and not in its source"),
        (lambda: Transpose("a.{i}.*", "b.{i}.weight"), "* stands in its source and not in its target"),
        (lambda: OutputHead("lm_head.weight", "head.*"), "* stands in its target"),
        (lambda: Rename("a.{i.*", "b.*"), "has a stray {"),
        (lambda: Rename("a]", "b"), "has a stray ]"),
        (lambda: Rename("a.*.*", "b.*"), "has two *"),
        (lambda: Rename("a.{0}", "b.{0}"), "has the placeholder {0}"),
        (lambda: Rename("a.{rest}.*", "b.{rest}.*"), "has the placeholder {rest}"),
        (
            lambda: Rename("[model]a", "b"),
            "[model]: a prefix that may be left out is plain and ends with a dot",
        ),
        (lambda: Rename("[]a", "b"), "[]: a prefix"),
        (lambda: Rename("[{i}.]a", "b"), "[{i}.]: a prefix"),
        (lambda: Rename("[model.]a", "[model.]b"), "is a parameter's path, of which nothing is left out"),
        (lambda: Rename("", "b"), "'' is no pattern"),
        (lambda: Rename("a", None), "None is no pattern"),
        (lambda: Ignore(3), "3 is no pattern"),
        (lambda: Split("a.{i}", ("x.{i}",)), "two patterns or more"),
        (lambda: Split("a.{i}", list(QKV)), "targets are a tuple"),
        (lambda: Split("a.{i}", (QKV[0], QKV[0])), "no two alike"),
        (lambda: Split("a.{i}", "x.{i}"), "targets are a tuple"),
        (lambda: Split("a.{i}", (*QKV, "x.{j}")), "{i} stands in its source"),
        (lambda: Split("a.{i}", QKV, axis=-1), "axis a whole number from 0"),
        (lambda: Split("a.{i}", QKV, transpose="yes"), "transpose is True or False"),
        (lambda: Stack("a.{i}.up", "b.{i}.up"), "its source has no {e}"),
        (lambda: Stack("a.{e}.{i}", "b.{e}.{i}"), "{e} stands in its target and not in its source"),
        (lambda: Stack("a.{e}.{i}", "b"), "{i} stands in its source"),
    ],
)
def test_what_is_no_rule_is_refused_by_name(make, words):
    with pytest.raises(PluginError) as raised:
        make()
    assert words in str(raised.value)
    kind = ("Rename", "Transpose", "OutputHead", "Split", "Stack", "Ignore")
    assert str(raised.value).startswith(tuple(f"weight rule {name}(" for name in kind))


def test_what_is_one_is_taken():
    Rename("[model.]layers.{i}.{p}_proj.*", "layers.{i}.{p}.*")
    Rename("*", "network.*")
    Split("[model.]h.{i}.qkv.*", tuple(f"{part}.*" for part in QKV), transpose=True, axis=1)
    Stack("layers.{i}.experts.{e}.{p}.weight", "layers.{i}.experts.{p}.weight")
    Ignore("[model.]rotary.{i}.inv_freq")
    Rename("blk.0.a.{x}", "first.{x}")


@pytest.mark.parametrize(
    ("rule", "tensors"),
    [
        (Rename("a.{i}.*", "b.{i}.*"), ["a.0.x", "a.1.x"]),
        (Split("a.{i}", ("b.{i}", "c.{i}")), ["a.0", "a.1"]),
        (Stack("a.{e}", "b"), ["a.0", "a.1"]),
        (Ignore("a.*"), []),
    ],
)
def test_a_rule_that_a_base_and_its_variant_both_list_works_as_one(rule, tensors):
    twice = Architecture("twice", "", len, (rule, Ignore("other"), rule))
    arrays = {name: mx.arange(6).reshape(2, 3) for name in tensors}
    parameters, left = apply(twice.weights, arrays, None, join)
    assert not left and parameters.keys() == apply((rule,), arrays, None, join)[0].keys()
    back, lost = invert(twice.weights, parameters, None, join)
    assert not lost and back.keys() == arrays.keys()


def test_of_two_rules_for_one_tensor_the_first_takes_it():
    changed = Architecture("changed", "", len, (Rename("a.*", "b.*"), Rename("a.*", "c.*")))
    assert list(apply(changed.weights, {"a.x": mx.zeros(1)}, None, join)[0]) == ["b.x"]


def test_a_plugin_with_such_a_rule_is_broken_by_that_line(site, command):
    site.add(
        "zoo-wrong",
        "wrong_plugin",
        'from zoo.architecture import Rename\nRULE = Rename("a.{i}.*", "b.{j}.*")\n',
    )
    done = command("plugins", "--json", environment=site.environment)
    import json

    (found,) = (p for p in json.loads(done.stdout) if p["name"] == "wrong_plugin")
    assert found["state"] == "broken"
    assert found["error"].startswith("weight rule Rename(source='a.{i}.*', target='b.{j}.*'): {i} stands in")


def test_every_rule_of_the_zoos_own_stands():
    assert [
        plugin.error
        for plugin in default_registry().plugins
        if plugin.first_party and plugin.state != "loaded"
    ] == []
