"""What is computed from a recipe is what its running model does and holds: products, packed layers, caches."""

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from zoo.assemble import assemble
from zoo.blocks import feedforward
from zoo.blocks.model import Quantizable
from zoo.checkpoint.convert import convert
from zoo.checkpoint.parameters import quantize
from zoo.checkpoint.quantized_matrix import AFFINE_GROUPS, QuantizationSpec
from zoo.config import Config
from zoo.describe import facts_of
from zoo.describe.facts.counts import prefill_flops, with_widths
from zoo.describe.facts.memory import (
    FORMATS,
    GROUP,
    POLICIES,
    cache_bytes,
    cache_sizes,
    largest_context,
    weights_of,
)
from zoo.host.registry import default_registry
from zoo.testing import subject
from zoo_deepseek.block import HeadLinear
from zoo_gemma.block import CappedAttention
from zoo_lab.experiments import pockets

NAMES = sorted(default_registry().architectures)
POCKETS = [n for n in NAMES if default_registry().architecture(n).preset("pocket").embedded]
CONVERTED = ("bert", "deepseek-v3", "gpt-oss", "llama", "mamba", "transformer")  # the others nightly


@pytest.fixture(scope="module")
def made():
    """The small model of an architecture, made once."""
    subjects = {}

    def get(name):
        if name not in subjects:
            subjects[name] = subject(name)
        return subjects[name]

    return get


class Products:
    """The operations of the matrix products that go through layers and attention while it is open."""

    def __init__(self, monkeypatch):
        self.linear = self.scores = 0
        self.patch = monkeypatch
        self._watch(nn.Linear, "__call__", lambda layer, x: 2 * x.size * layer.weight.shape[0])
        self._watch(nn.Embedding, "as_linear", lambda layer, x: 2 * x.size * layer.weight.shape[0])
        self._watch(HeadLinear, "__call__", self._heads)
        self._watch(HeadLinear, "transposed", self._heads)
        self._watch(
            feedforward.StackedLinear,
            "__call__",
            lambda layer, x, indices, *_: 2 * indices.size * layer.weight.shape[1] * layer.weight.shape[2],
        )
        attention = mx.fast.scaled_dot_product_attention

        def watched(queries, keys, values, **options):
            each = queries.shape[0] * queries.shape[1] * queries.shape[2] * keys.shape[2]
            self.scores += 2 * each * (keys.shape[3] + values.shape[3])
            return attention(queries, keys, values, **options)

        monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", watched)
        self._watch_scores(CappedAttention)

    def _watch_scores(self, attention):
        """Of attention that is written out, without the fused kernel."""
        mix = attention.mix

        def watched(module, queries, keys, values, mask):
            each = queries.shape[0] * queries.shape[1] * queries.shape[2] * keys.shape[2]
            self.scores += 2 * each * (keys.shape[3] + values.shape[3])
            return mix(module, queries, keys, values, mask)

        self.patch.setattr(attention, "mix", watched)

    @staticmethod
    def _heads(layer, x):
        heads, outputs, inputs = layer.weight.shape
        return 2 * x.shape[0] * heads * x.shape[2] * outputs * inputs

    def _watch(self, layer, method, count):
        original = getattr(layer, method)

        def watched(module, x, *arguments, **named):
            self.linear += count(module, x, *arguments)
            return original(module, x, *arguments, **named)

        self.patch.setattr(layer, method, watched)


def unseen(recipe):
    """The operations of matrices that no layer holds: a router's that multiplies by an array."""
    specs = with_widths(recipe, recipe.dim)
    heads = ("key_up", "value_up")  # which a layer holds, packed or not
    matrices = (matrix for _, spec, width in specs for matrix in spec.matrices(width))
    return sum(m.flops for m in matrices if not m.packs and m.name not in heads)


@pytest.mark.parametrize("name", NAMES)
def test_one_more_token_takes_the_operations_that_the_recipe_says(name, made, monkeypatch):
    tested = made(name)
    model, recipe, tokens = tested.model, tested.recipe, tested.tokens[:1, :20]
    if facts_of(recipe).get("flops.decode") is None:
        assert tested.architecture.causality == "full" or tested.architecture.task in (
            "fill-mask",
            "classify",
        )
        return  # it writes no text token by token
    cache = model.make_cache()
    if tested.architecture.task == "translate":
        memory = model.encode(tokens)
        for position in range(20):
            products = Products(monkeypatch)
            model.decode(tokens[:, position : position + 1], memory, cache)
            monkeypatch.undo()
    else:
        model(tokens[:, :19], cache)
        products = Products(monkeypatch)
        model(tokens[:, 19:], cache)
        monkeypatch.undo()
    counted = products.linear + products.scores + rotated_scores(recipe, 20)
    assert counted == recipe.flops(recipe.dim, 20) - unseen(recipe)


def rotated_scores(recipe, keys):
    """Latent attention's products of rotated parts, which it computes apart from attention."""
    mixers = (part for _, part in recipe.walk() if part.name == "latent-attention")
    return sum(2 * part.heads * part.rope_dim * keys for part in mixers)


@pytest.mark.parametrize("name", NAMES)
def test_reading_a_text_takes_the_matrix_products_that_the_recipe_says(name, made, monkeypatch):
    tested = made(name)
    recipe, tokens = tested.recipe, tested.tokens[:1, :12]
    products = Products(monkeypatch)
    if tested.architecture.task == "translate":
        memory = tested.model.encode(tokens)
        before = products.linear
        tested.model.decode(tokens[:, :1], memory, tested.model.make_cache())
        # Besides the first target token's own products, keys and values of the source are made.
        own = recipe.flops(recipe.dim, 0) - unseen(recipe)
        counted = before + products.linear - before - own
    else:
        tested.model(tokens)
        counted = products.linear
    expected = 12 * (recipe.flops(recipe.dim, 0, True) - unseen(recipe))
    assert counted == expected


def test_a_prompts_average_is_the_sum_over_its_tokens(made):
    for name in ("llama", "mistral", "gpt-oss", "gemma2"):  # full, windows, both in turn
        recipe = made(name).recipe
        head = recipe.head.flops(recipe.dim, 1)
        every = sum(recipe.flops(recipe.dim, n, True) - head for n in range(1, 24)) + head
        assert prefill_flops(recipe, 23) == round(every / 23)


@pytest.mark.parametrize("name", NAMES)
def test_matrices_are_the_layers_that_can_be_packed(name, made):
    tested = made(name)
    rows: dict[int, int] = {}
    for path, layer in tested.model.named_modules():
        if isinstance(layer, Quantizable):
            kind = "router" if path.endswith("router.scores") else "row"
            inputs = (kind, layer.weight.shape[-1])
            rows[inputs] = rows.get(inputs, 0) + layer.weight.size
    weights = weights_of(tested.recipe)
    told = weights.to_json()
    told = {("row", inputs): numbers for inputs, numbers in told["rows"]} | {
        ("router", inputs): numbers for inputs, numbers in told["router_rows"]
    }
    assert told == rows
    everything = sum(array.size for _, array in tree_flatten(tested.model.parameters()))
    assert sum(rows.values()) + weights.whole == everything


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n if n in CONVERTED else pytest.param(n, marks=pytest.mark.nightly) for n in POCKETS]
)
def test_bytes_are_those_of_a_converted_checkpoint(name, tmp_path):
    registry = default_registry()
    architecture = registry.architecture(name)
    config = architecture.preset("pocket").config
    weights = weights_of(architecture.recipe(Config(config)))
    formats = FORMATS if name in ("llama", "deepseek-v3") else ("4",)
    for format in formats:
        whole = format in ("float32", "bfloat16")
        how = dict(dtype=format) if whole else dict(dtype="float16", quantize=format)
        out = tmp_path / format
        converted = convert(name, out, **how)
        model = zoo.load(out, dtype=how["dtype"]).model
        assert weights.bytes(format) == sum(array.nbytes for _, array in tree_flatten(model.parameters()))
        assert converted.bytes == weights.bytes(format)


def own_rule(path, packing):
    """The head whole, what goes down in eight bits, all else as asked."""
    if path == "head.output":
        return None
    return QuantizationSpec(8, 64) if path.endswith(".down") else packing


@pytest.mark.parametrize("format", ["4", "mxfp4", "bfloat16"])
def test_an_architecture_may_have_a_rule_of_its_own_for_what_is_packed(format):
    registry = default_registry()
    architecture = registry.architecture("mixtral")
    recipe = architecture.recipe(Config(architecture.preset("pocket").config))
    model = assemble(recipe, registry)
    model.set_dtype(mx.bfloat16)
    if format != "bfloat16":
        mode, group = ("affine", 64) if format == "4" else ("mxfp4", 32)
        quantize(model, QuantizationSpec(4, group, mode), [own_rule])
    found = facts_of(recipe, quantize=format, quantizes=own_rule)
    held = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    assert found.value("weights.chosen") == held == found.numbers["weights"]["bytes"][format]
    plain = facts_of(recipe, quantize=format).value("weights.chosen")
    assert (plain == held) == (format == "bfloat16")


def test_groups_of_affine_packings_are_those_that_mlx_has():
    assert GROUP in AFFINE_GROUPS
    numbers = mx.random.normal((4, 256)).astype(mx.float16)
    for bits, policy in ((8, "8-bit"), (4, "4-bit")):
        packed = mx.quantize(numbers, group_size=GROUP, bits=bits)
        assert sum(array.nbytes for array in packed) == POLICIES[policy] * numbers.size


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt-oss", "gemma2", "deepseek-v3", "mamba", "lstm"])
def test_cache_bytes_are_what_the_caches_hold(name, made):
    tested = made(name)
    kept = cache_sizes(tested.recipe)
    for length in (3, 20):
        cache = tested.model.make_cache()
        tested.model(tested.tokens[:1, :length], cache)
        for position in range(2):  # a window is cut when a step follows
            tested.model(tested.tokens[:1, position : position + 1], cache)
        numbers = sum(one.held for one in cache)
        states = sum(one.state_numbers for one in kept)
        assert cache_bytes(kept, length + 2) == 2 * (numbers - states) + 4 * states


def test_what_fits_is_the_longest_that_fits(made):
    kept = cache_sizes(made("gemma2").recipe)
    longest = largest_context(kept, 1_000_000, None)
    assert cache_bytes(kept, longest) <= 1_000_000 < cache_bytes(kept, longest + 1)
    assert largest_context(kept, 1_000_000, 16) == 16
    assert largest_context(kept, cache_bytes(kept, 1) - 1, None) == 0
    assert largest_context(cache_sizes(made("mamba").recipe), 10**9, None) is None


@pytest.mark.parametrize("name", ["mamba", "gru", "lstm"])
def test_a_state_has_the_bytes_of_its_arrays_in_the_sheet_and_in_the_lab(name):
    loaded = zoo.load(name, dtype="float32")
    caches = loaded.model.make_cache()
    mx.eval(loaded.model(mx.array([[1, 2, 3]]), cache=caches))
    held = sum(array.nbytes for cache in caches for array in cache.state)
    assert held == facts_of(loaded.recipe).value("cache.state")
    assert pockets.memory(loaded.recipe) == {"cache": 0, "state": held / 1e3}


def test_mambas_state_is_float32_in_a_model_of_half_precision():
    model = zoo.load("mamba", dtype="float16").model
    caches = model.make_cache()
    mx.eval(model(mx.array([[1, 2, 3]]), cache=caches))
    largest = max(caches[0].state, key=lambda array: array.size)
    assert model.embedding.tokens.weight.dtype == mx.float16 and largest.dtype == mx.float32
