"""How parts of a model are divided among ranks."""

import re
from dataclasses import dataclass, replace

import pytest

from zoo.errors import RecipeError
from zoo.recipe import (
    Attention,
    Cut,
    Decoder,
    Embedding,
    Experts,
    GatedMLP,
    Head,
    JointRMSNorm,
    Layer,
    MoE,
    RMSNorm,
    Router,
    Share,
    divided,
    repeat,
)
from zoo.recipe.pipeline import division_of
from zoo.testing.subjects import subject
from zoo_translation.recipes import RelativeBias


def model(mixer, dim=48, vocab=101, **parts):
    norm = RMSNorm()
    layer = Layer(mixer=mixer, mixer_norm=norm, feedforward=GatedMLP(hidden=48), feedforward_norm=norm)
    return Decoder(Embedding(vocab, dim), repeat(layer, 2), norm, Head(), **parts)


def test_each_rank_has_equally_many_heads_and_the_keys_that_they_read():
    attention = Attention(heads=9, kv_heads=3, head_dim=8)
    parts = [divided(attention, 72, Share(rank, 3)) for rank in range(3)]
    assert {part.spec for part in parts} == {Attention(heads=3, kv_heads=1, head_dim=8)}
    assert [part.cuts["query.weight"].ranges for part in parts] == [((0, 24),), ((24, 48),), ((48, 72),)]
    assert [part.cuts["key.weight"].ranges for part in parts] == [((0, 8),), ((8, 16),), ((16, 24),)]


def test_ranks_beyond_the_keys_repeat_them():
    attention = Attention(heads=8, kv_heads=2, head_dim=4)
    kept = [divided(attention, 32, Share(rank, 4)).cuts["key.weight"].ranges for rank in range(4)]
    assert kept == [((0, 4),), ((0, 4),), ((4, 8),), ((4, 8),)]


UNEVEN = {
    "heads": (Attention(heads=9, kv_heads=3, head_dim=8), "mixer.heads: 9", 2),
    "groups": (Attention(heads=6, kv_heads=3, head_dim=8), "mixer.kv_heads: 3", 2),
    "fewer groups than ranks": (Attention(heads=12, kv_heads=4, head_dim=8), "mixer.kv_heads: 4", 6),
    "hidden units": (Attention(heads=10, head_dim=8), "feedforward.hidden: 48", 5),
}


@pytest.mark.parametrize(("mixer", "field", "ranks"), UNEVEN.values(), ids=UNEVEN)
def test_what_does_not_divide_evenly_is_named_with_the_ways_that_work(mixer, field, ranks):
    recipe, share = model(mixer), Share(0, ranks)
    message = f"layers.0.{field} does not divide evenly among {ranks} ranks; use another number of ranks, "
    with pytest.raises(RecipeError, match=f"^{re.escape(message)}`parallel` pipeline, or data for"):
        divided(recipe, 48, share)
    whole = recipe.change(layers=recipe.layers * 3)
    assert division_of(whole, "auto", share).absent, "it is divided in stages"


def test_packed_matrices_are_divided_by_whole_groups():
    mlp, heads = GatedMLP(hidden=96), Attention(heads=8, head_dim=16)
    assert divided(mlp, 32, Share(2, 3, group=32)).spec.hidden == 32
    with pytest.raises(
        RecipeError, match=r"hidden: 96, in whole groups of 32 for packed matrices,.* 2 ranks"
    ):
        divided(mlp, 32, Share(0, 2, group=32))
    assert [divided(heads, 128, Share(rank, 2, group=64)).spec.heads for rank in (0, 1)] == [4, 4]
    with pytest.raises(RecipeError, match="heads: 8, in whole groups of 4 for packed matrices,"):
        divided(heads, 128, Share(0, 4, group=64))


def test_a_part_of_a_subclass_that_says_nothing_stays_whole():
    @dataclass(frozen=True)
    class Other(Attention):
        name = "other-attention"

    @dataclass(frozen=True)
    class Alike(Other):
        name = "alike-attention"
        divided = Attention.divided

    assert divided(Other(heads=4), 32, Share(0, 2)).cuts == {}
    assert divided(Other(heads=4), 32, Share(0, 2)).spec == Other(heads=4)
    assert divided(Alike(heads=4), 32, Share(0, 2)).spec == Alike(heads=2, kv_heads=2, head_dim=8)


def test_a_norm_of_all_heads_is_divided_with_them():
    norms = dict(query_norm=JointRMSNorm(heads=4), key_norm=JointRMSNorm(heads=2))
    attention = Attention(heads=4, kv_heads=2, head_dim=8, **norms)
    for ranks, own in ((2, (2, 1)), (4, (1, 1))):
        part = divided(attention, 32, Share(ranks - 1, ranks))
        assert (part.spec.query_norm.heads, part.spec.key_norm.heads) == own
        assert part.spec.query_norm.whole == 4
        assert part.spec.key_norm.whole == ranks  # of four ranks two have each head of the keys
        assert part.cuts["query_norm.weight"].ranges[0][1] == 32


def test_a_bias_of_scores_is_divided_as_the_heads_of_its_layers():
    t5 = subject("t5").recipe
    for rank in (0, 1):
        part = divided(t5, t5.dim, Share(rank, 2))
        assert part.spec.encoder.relative.heads == part.spec.encoder.layers[0].mixer.heads
        assert part.cuts["encoder.relative.weight"].ranges == (part.heads["encoder.layers.0.mixer"],)


@dataclass(frozen=True)
class WholeAttention(Attention):
    """Attention that does not say how it is divided."""

    name = "whole-attention"


@dataclass(frozen=True)
class WholeBias(RelativeBias):
    """A bias that does not say how it is divided."""

    name = "whole-bias"


def test_a_bias_of_scores_is_whole_where_attention_is_and_refused_where_they_would_differ():
    whole = model(WholeAttention(heads=4, head_dim=12), relative=RelativeBias(heads=4))
    assert divided(whole, 48, Share(0, 2)).spec.relative == whole.relative
    mixed = [whole.layers[0], whole.layers[0].change(mixer=Attention(heads=4, head_dim=12))]
    with pytest.raises(RecipeError, match=r"relative: the heads of the mixers .* are not divided alike"):
        divided(replace(whole, layers=tuple(mixed)), 48, Share(0, 2))
    with pytest.raises(RecipeError, match="relative: position/whole-bias does not say how it is divided"):
        divided(model(Attention(heads=4, head_dim=12), relative=WholeBias(heads=4)), 48, Share(0, 2))


def test_whole_experts_are_numbered_as_the_router_does():
    mixture = MoE(Router(6, top_k=2), Experts(6, hidden=10, bias=True))
    parts = [divided(mixture, 8, Share(rank, 2, whole_experts=True)) for rank in (0, 1)]
    assert [(part.spec.experts.first, part.spec.experts.count) for part in parts] == [(0, 3), (3, 3)]
    assert [part.spec.router.experts for part in parts] == [6, 6]
    assert parts[1].cuts["experts.down.bias"] == Cut(0, ((3, 6),)) and not parts[1].once
    assert sum(part.spec.flops(8, 1) - part.spec.router.flops(8, 1) for part in parts) == (
        mixture.flops(8, 1) - mixture.router.flops(8, 1)
    )


def test_a_model_without_experts_is_not_divided_by_them():
    with pytest.raises(RecipeError, match="the model has no experts that are divided among ranks"):
        division_of(model(Attention(heads=4, head_dim=12)), "experts", Share(0, 2))
    with pytest.raises(RecipeError, match=r"experts\.count: 3 does not divide evenly among 2 ranks"):
        divided(MoE(Router(3, 1), Experts(3, hidden=8)), 8, Share(0, 2, whole_experts=True))
