"""How parts of a model are divided among ranks."""

from dataclasses import dataclass, replace

import pytest

from zoo.errors import RecipeError
from zoo.recipe import (
    Attention,
    AttentionPart,
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
    layer = Layer(mixer=mixer, mixer_norm=norm, feedforward=GatedMLP(hidden=50), feedforward_norm=norm)
    return Decoder(Embedding(vocab, dim), repeat(layer, 2), norm, Head(), **parts)


def test_numbers_of_heads_may_be_uneven():
    """By groups or by heads, whichever leaves fewer weights to the rank with most of them."""
    attention = Attention(heads=9, kv_heads=3, head_dim=8)
    halves = [divided(attention, 72, Share(rank, 2)) for rank in (0, 1)]
    assert [half.spec for half in halves] == [
        AttentionPart(heads=4, kv_heads=2, head_dim=8, group=3, first=0),
        AttentionPart(heads=5, kv_heads=2, head_dim=8, group=3, first=1),
    ]
    assert [half.cuts["query.weight"].ranges for half in halves] == [((0, 32),), ((32, 72),)]
    assert [half.cuts["key.weight"].ranges for half in halves] == [((0, 16),), ((8, 24),)]
    groups = Attention(heads=32, kv_heads=8, head_dim=8)
    heads = [divided(groups, 256, Share(rank, 3)).spec for rank in range(3)]
    assert heads == [Attention(heads=4 * count, kv_heads=count, head_dim=8) for count in (2, 3, 3)]


def test_ranks_take_turns_with_the_larger_shares_of_layers():
    """Of ranks that have 4 and 5 heads of a layer, the other has 5 of the next. Even layers do not change that."""
    uneven = model(Attention(heads=9, kv_heads=3, head_dim=8), dim=72, vocab=100)
    even = uneven.layers[0].change(mixer=Attention(heads=8, head_dim=8))
    stack = uneven.change(layers=(uneven.layers[0], even, uneven.layers[0], even, *uneven.layers))
    parts = [divided(stack, 72, Share(rank, 2)) for rank in (0, 1)]
    assert [[layer.mixer.heads for layer in part.spec.layers] for part in parts] == [
        [4, 4, 5, 4, 4, 5],
        [5, 4, 4, 4, 5, 4],
    ]
    assert parts[0].spec.parameters(72) == parts[1].spec.parameters(72)
    queries = [[part.cuts[f"layers.{layer}.mixer.query.weight"] for layer in (0, 1, 2)] for part in parts]
    assert queries[0] == [Cut(-2, ((0, 32),)), Cut(-2, ((0, 32),)), Cut(-2, ((32, 72),))]
    assert queries[1] == [Cut(-2, ((32, 72),)), Cut(-2, ((32, 64),)), Cut(-2, ((0, 32),))]


@pytest.mark.parametrize("count, shares", [(4, [1, 1, 2]), (5, [1, 2, 2])])
def test_three_ranks_have_equally_many_heads_of_three_layers(count, shares):
    """Each has the odd share once, be it the largest or the smallest. The hidden units are rotated with the heads."""
    one = model(Attention(heads=count, head_dim=12))
    layers = one.change_layers(feedforward=GatedMLP(hidden=48)).layers * 3
    parts = [divided(one.change(layers=layers), 48, Share(rank, 3)).spec for rank in range(3)]
    heads = [[layer.mixer.heads for layer in part.layers] for part in parts]
    assert [sum(one[:3]) for one in heads] == [sum(one[3:]) for one in heads] == [count] * 3
    assert all(sorted(layer) == shares for layer in zip(*heads, strict=True))


@dataclass(frozen=True)
class FirstKeys(Attention):
    """Attention that gives its keys to later layers, or takes theirs."""

    name = "first-keys"
    divided = Attention.divided
    takes_keys: bool = False

    @property
    def gives(self):
        return () if self.takes_keys else ("keys",)

    @property
    def takes(self):
        return ("keys",) if self.takes_keys else ()


def test_layers_that_share_what_is_divided_by_heads_take_no_turns():
    """A layer needs the keys of its own heads from another, and one bias of scores is for the heads of all layers."""
    mixer = FirstKeys(heads=5, head_dim=8)
    giving = model(mixer, dim=40)
    both = giving.change(
        layers=(giving.layers[0], giving.layers[1].change(mixer=mixer.change(takes_keys=True)))
    )
    biased = model(Attention(heads=5, head_dim=8), dim=40, relative=RelativeBias(heads=5))
    for recipe in (both, biased):
        assert [layer.mixer.heads for layer in divided(recipe, 40, Share(0, 2)).spec.layers] == [2, 2]
    assert [layer.mixer.heads for layer in divided(giving, 40, Share(0, 2)).spec.layers] == [2, 3]


@pytest.mark.parametrize("wrong", [dict(kv_heads=3), dict(heads=2, kv_heads=1), dict(first=3)])
def test_heads_of_a_rank_are_in_some_groups(wrong):
    with pytest.raises(RecipeError, match=r"kv_heads: \d, but \d heads after \d are in \d groups of 3"):
        AttentionPart(**dict(heads=4, kv_heads=2, head_dim=8, group=3, first=1) | wrong)


def test_ranks_beyond_the_keys_repeat_them():
    attention = Attention(heads=8, kv_heads=2, head_dim=4)
    kept = [divided(attention, 32, Share(rank, 4)).cuts["key.weight"].ranges for rank in range(4)]
    assert kept == [((0, 4),), ((0, 4),), ((4, 8),), ((4, 8),)]


@pytest.mark.parametrize("ranks", [3, 5])
def test_heads_that_cannot_be_divided_are_named(ranks):
    with pytest.raises(RecipeError, match=r"^layers\.0\.mixer\.(kv_)?heads: .* among \d ranks; use fewer"):
        recipe = model(Attention(heads=4, kv_heads=2, head_dim=12))
        divided(recipe, 48, Share(0, ranks))


def test_packed_matrices_are_divided_by_whole_groups():
    mlp = GatedMLP(hidden=96)
    assert [divided(mlp, 32, Share(rank, 2, group=32)).spec.hidden for rank in (0, 1)] == [32, 64]
    with pytest.raises(
        RecipeError, match=r"hidden: 96, in whole groups of 32 for packed matrices,.* 4 ranks"
    ):
        divided(mlp, 32, Share(0, 4, group=32))
    heads = Attention(heads=8, head_dim=16)
    cut = [divided(heads, 128, Share(rank, 2, group=64)).spec.heads for rank in (0, 1)]
    assert cut == [4, 4]
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
    uneven = model(Attention(heads=6, kv_heads=3, head_dim=8), relative=RelativeBias(heads=6))
    parts = [divided(uneven, 48, Share(rank, 2)).spec for rank in (0, 1)]
    assert [(part.relative.heads, part.layers[0].mixer.heads) for part in parts] == [(3, 3), (3, 3)]


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


def test_whole_experts_may_be_uneven_and_are_numbered_as_the_router_does():
    mixture = MoE(Router(5, top_k=2), Experts(5, hidden=10, bias=True))
    parts = [divided(mixture, 8, Share(rank, 2, whole_experts=True)) for rank in (0, 1)]
    assert [(part.spec.experts.first, part.spec.experts.count) for part in parts] == [(0, 2), (2, 3)]
    assert [part.spec.router.experts for part in parts] == [5, 5]
    assert parts[1].cuts["experts.down.bias"] == Cut(0, ((2, 5),)) and not parts[1].once
    assert sum(part.spec.flops(8, 1) - part.spec.router.flops(8, 1) for part in parts) == (
        mixture.flops(8, 1) - mixture.router.flops(8, 1)
    )


def test_a_model_without_experts_is_not_divided_by_them():
    with pytest.raises(RecipeError, match="the model has no experts that are divided among ranks"):
        division_of(model(Attention(heads=4, head_dim=12)), "experts", Share(0, 2))
    with pytest.raises(RecipeError, match=r"experts\.count: 3 cannot be divided among 4 ranks"):
        divided(MoE(Router(3, 1), Experts(3, hidden=8)), 8, Share(0, 4, whole_experts=True))
