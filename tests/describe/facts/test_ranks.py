"""A model on several ranks, on paper: bytes and operations add up, transfers are those of its division, times those of links."""

from functools import cache

import pytest

from tests.helpers.known_texts import is_known
from zoo.describe import Cluster, Link, describe
from zoo.describe.diagram import diagram_of
from zoo.describe.facts.counts import decode_flops
from zoo.describe.facts.ranks import rank_facts, ranked
from zoo.describe.facts.transfers import GATHER, SEND, SUM, Transfer
from zoo.errors import RecipeError, ZooError
from zoo.host.registry import default_registry

GB, MICRO = 1e9, 1e-6


@cache
def recipe(name):
    return describe(name, default_registry()).recipe


def on(name, ranks, parallel="tensor", quantize="bfloat16", context=128, **machine):
    return ranked(recipe(name), Cluster(ranks, parallel, **machine), context, quantize)


def counts(found, reading=False):
    kinds = [each.kind for each in found.transfers(reading)]
    return {kind: kinds.count(kind) for kind in (SUM, GATHER, SEND)}


def sizes(found):
    return [(one.weights, one.cache) for one in found.held]


@pytest.mark.parametrize(("name", "ranks"), [("llama:8b", 2), ("smollm2:135m", 3)])
@pytest.mark.parametrize("parallel", ["tensor", "pipeline"])
def test_weights_cache_and_operations_of_the_ranks_add_up(name, ranks, parallel):
    whole, found = on(name, 1), on(name, ranks, parallel)
    norms = recipe(name).dim * (
        2 * len(recipe(name).layers) + 1
    )  # whole on every rank, or on the last layer's
    more = sum(one.weights for one in found.held) - whole.held[0].weights
    assert 0 <= more <= 2 * (ranks - 1) * norms
    assert sum(one.cache for one in found.held) == whole.held[0].cache
    assert sum(decode_flops(one, 128) for one in found.recipes) == decode_flops(recipe(name), 128)


def test_whole_experts_weigh_as_much_as_their_hidden_units():
    by_units, by_experts = (on("mixtral:8x7b", 2, way) for way in ("tensor", "experts"))
    assert sizes(by_units) == sizes(by_experts) and by_units.transfers() == by_experts.transfers()
    assert (
        next(f.value for f in rank_facts(by_experts, "bfloat16") if f.name == "ranks.parallel") == "experts"
    )


def test_a_layer_divided_by_tensors_has_a_sum_for_each_part():
    found, layers = on("llama:8b", 4), 32
    assert counts(found) == {SUM: 2 * layers + 1, GATHER: 1, SEND: 0}  # and one for the embedding
    dim, vocab = 4096, 128256
    each = 2 * 3 / 4 * dim * 2  # of a ring's sum of `dim` numbers of two bytes, what a rank sends
    assert found.sent() == (pytest.approx((2 * layers + 1) * each + 3 * vocab / 4 * 2),) * 4


def test_a_pipeline_sends_at_each_border_and_sums_at_its_ends():
    found = on("llama:8b", 3, "pipeline")
    assert counts(found) == {SUM: 2, GATHER: 1, SEND: 2}
    first, second, third = found.sent()
    assert first == second == third + 4096 * 2  # the last stage has no next one


def test_a_head_of_its_own_kind_gathers_by_the_table_that_it_is_tied_to():
    assert counts(on("gemma2:2b", 2))[GATHER] == 1  # its logits are capped


def test_what_is_no_part_of_a_mixture_stays_one_sum():
    mixtral = recipe("mixtral:8x7b")
    assert counts(on("mixtral:8x7b", 2))[SUM] == 2 * len(mixtral.layers) + 1


def test_an_encoder_decoder_reads_by_its_encoder_and_writes_by_its_decoder():
    found = on("opus-mt-en-de", 2)
    assert counts(found, reading=True) == {SUM: 2 * 6 + 1, GATHER: 0, SEND: 0}
    assert counts(found) == {SUM: 3 * 6 + 1, GATHER: 1, SEND: 0}  # cross-attention is a part, too


@pytest.mark.parametrize(
    ("kind", "steps", "sent"), [(SUM, 6, 2 * 3 / 4 * 400), (GATHER, 3, 3 * 400), (SEND, 1, 400)]
)
def test_a_ring_of_four(kind, steps, sent):
    transfer = Transfer(kind, numbers=100, width=4)
    assert transfer.steps(4) == steps and transfer.sent(4, tokens=1) == sent
    assert transfer.sent(4, tokens=5) == 5 * sent


def test_decode_takes_the_reading_of_the_weights_and_the_steps_of_the_link():
    link = Link(bandwidth=5 * GB, latency=100 * MICRO)
    found = on("llama:8b", 2, link=link, memory=800 * GB)
    table = 128256 * 4096  # a token reads one row of the embedding's
    held = recipe("llama:8b").parameters(4096)
    memory = found.held[0].weights * (held - table) / held + found.held[0].cache
    seconds = found.decode()
    assert seconds.memory == pytest.approx(memory / (800 * GB), rel=1e-3)
    assert seconds.latency == pytest.approx((65 * 2 + 1) * 100 * MICRO)
    assert seconds.bandwidth == pytest.approx(found.sent()[0] / (5 * GB))
    assert seconds.bound == "link latency" and seconds.total > seconds.memory + seconds.latency


def test_stages_work_one_after_the_other_and_ranks_that_share_layers_at_once():
    how = dict(link=Link(5 * GB, 0.0), memory=800 * GB, compute=30e12)
    alone = on("llama:8b", 1, memory=800 * GB, compute=30e12)
    for one in (lambda found: found.decode().memory, lambda found: found.prefill().arithmetic):
        assert one(on("llama:8b", 2, **how)) == pytest.approx(one(alone) / 2, rel=0.01)
        assert one(on("llama:8b", 2, "pipeline", **how)) == pytest.approx(one(alone), rel=0.01)


def test_the_latency_of_prefill_counts_once_a_chunk():
    how = dict(link=Link(5 * GB, 100 * MICRO), compute=30e12, context=1000)
    whole, chunks = on("llama:8b", 2, **how), on("llama:8b", 2, chunk=500, **how)
    gather = 100 * MICRO  # of the last token's logits
    assert chunks.prefill().latency - gather == pytest.approx(2 * (whole.prefill().latency - gather))
    assert chunks.prefill().bandwidth == pytest.approx(whole.prefill().bandwidth)


@pytest.mark.parametrize("parallel", ["tensor", "pipeline"])
def test_no_way_to_divide_shortens_the_overhead_of_a_pass(parallel):
    how = dict(link=Link(5 * GB, 100 * MICRO), memory=800 * GB, compute=30e12, context=1000, chunk=500)
    plain, found = (on("llama:8b", 2, parallel, overhead=seconds, **how) for seconds in (0.0, 3e-3))
    assert found.decode().total == pytest.approx(plain.decode().total + 3e-3)
    assert found.prefill().total == pytest.approx(plain.prefill().total + 2 * 3e-3)  # of two passes


def test_a_small_prompt_is_bound_by_memory_and_a_long_one_by_arithmetic():
    short, long = (on("llama:8b", 1, memory=800 * GB, compute=30e12, context=n).prefill() for n in (4, 2000))
    assert short.bound == "memory bandwidth" and long.bound == "arithmetic"


def test_speeds_are_facts_only_where_the_machine_is_known():
    registry = default_registry()
    found = describe("llama:8b", registry)

    def names(**machine):
        sheet = found.sheet(registry, cluster=Cluster(1, **machine))
        return {name for name in ("ranks.decode", "ranks.prefill") if name in sheet}

    assert names() == set()
    assert names(memory=800 * GB) == {"ranks.decode"}
    assert names(compute=30e12) == {"ranks.prefill"}


@pytest.mark.parametrize("parallel", ["tensor", "pipeline"])
@pytest.mark.parametrize(
    "name", ["llama:8b", "deepseek-v3", "mamba:2.8b", "opus-mt-en-de", "llada:8b", "bert:base"]
)
def test_facts_have_units_and_chinese_words_and_each_rank_a_diagram(name, parallel):
    registry = default_registry()
    cluster = Cluster(2, parallel, Link(5 * GB, 100 * MICRO), 800 * GB, 30e12)
    facts = [
        fact
        for fact in describe(name, registry).sheet(registry, quantize="4", cluster=cluster)
        if fact.name.startswith("ranks.")
    ]
    assert {"ranks.weights", "ranks.sent.prefill", "ranks.prefill"} <= {fact.name for fact in facts}
    for fact in facts:
        assert is_known(fact.label) and is_known(fact.text), fact
    for one in on(name, 2, parallel).recipes:
        assert diagram_of(one, name, registry).summary is not None


def test_ranks_with_equal_values_share_a_text():
    registry = default_registry()
    tensor, pipeline = (
        describe("llama:8b", registry).sheet(registry, 4096, cluster=Cluster(count, parallel))
        for count, parallel in ((4, "tensor"), (3, "pipeline"))
    )
    assert tensor["ranks.weights"].text == "4.02 GB on each" and len(tensor["ranks.weights"].value) == 4
    assert pipeline["ranks.sent.decode"].text == "201 kB on ranks 0 to 1, 193 kB on rank 2"
    assert pipeline["ranks.weights"].text.count(" on rank ") == 3
    assert pipeline["ranks.weights"].unit == "bytes"


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(RecipeError, match=r"layers\.0\.mixer\.heads: 9 does not divide .* 2 ranks"):
        on("smollm2:135m", 2)
    with pytest.raises(RecipeError, match=r"layers: 32 cannot be divided among 33 ranks"):
        on("llama:8b", 33, "pipeline")
    for wrong, name in (
        (dict(ranks=0), "ranks"),
        (dict(ranks=2, memory=1.0), "memory"),  # without a link
        (dict(ranks=1, compute=float("nan")), "compute"),
        (dict(ranks=2, link=Link(-1.0, 0.0)), "link"),
        (dict(ranks=2, overhead=-1e-3), "overhead"),
    ):
        with pytest.raises(ZooError, match=f"`{name}`"):
            Cluster(**wrong)
