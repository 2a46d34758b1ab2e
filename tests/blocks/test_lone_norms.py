"""Attention that normalises its queries and not its keys, or the other way round: run, described and compared."""

from types import SimpleNamespace

import pytest

from tests.helpers.page_layers import DIM, NORM, decoder
from zoo.architecture import Architecture, Preset, Rename, hookimpl
from zoo.assemble import build
from zoo.describe import facts_of
from zoo.describe.diagram import diagram_of
from zoo.describe.diagram.terminal import to_text
from zoo.describe.differences import differences
from zoo.describe.facts.sheet import short
from zoo.host.registry import default_registry, isolated
from zoo.recipe import MLP, Attention, JointRMSNorm, Layer, RoPE
from zoo.testing import check_architecture

NORMS = {"query_norm": "queries", "key_norm": "keys"}


def recipe(**norms):
    return decoder(*[Layer(Attention(4, 2, rope=RoPE(), **norms), MLP(20), NORM, NORM)] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMS)
def test_one_norm_alone_holds_the_suite(name):
    lone = Architecture(
        name="lone",
        summary="a decoder with one norm",
        recipe=lambda config: recipe(**{name: NORM}),
        weights=(Rename("*", "*"),),
        presets=(Preset("tiny", config={}),),
    )
    known = isolated(SimpleNamespace(zoo_architectures=hookimpl(lambda: [lone])))
    assert {"cached_decode_equals_full_forward", "saved_and_loaded_is_identical"} <= {
        result.name for result in check_architecture("lone", registry=known) if result.passed
    }


@pytest.mark.parametrize("name", NORMS)
def test_one_norm_alone_is_described(name):
    registry, alone = default_registry(), recipe(**{name: NORM})
    module = build(alone.layers[0].mixer, DIM, registry=registry)
    assert [part for part in NORMS if part in module] == [name]
    sheet = facts_of(alone, registry=registry)
    assert sheet[f"decoder.{name}"].value == "RMSNorm" and sheet.get("decoder.head_norm") is None
    assert f"RMSNorm on each {name.removesuffix('_norm')}" in " ".join(line.text for line in short(sheet))
    other = next(part for part in NORMS if part != name)
    assert differences(recipe(), alone) == [f"RMSNorm on {NORMS[name]}."]
    assert differences(recipe(query_norm=NORM, key_norm=NORM), alone) == [f"No norm on {NORMS[other]}."]
    assert differences(recipe(), recipe(query_norm=NORM, key_norm=NORM)) == [
        "RMSNorm on each query and key head."
    ]
    joint = recipe(**{name: JointRMSNorm(heads=4 if name == "query_norm" else 2)})
    assert differences(recipe(), joint) == [f"RMSNorm over all heads on {NORMS[name]}."]
    drawn, plain = (
        to_text([diagram_of(one, "lone", registry)]).count("RMSNorm") for one in (alone, recipe())
    )
    assert drawn == plain + 1
