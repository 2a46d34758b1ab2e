"""The live pages' engine in a browser: tokenizers, logits, values, caches, interventions and variants against the zoo's own."""

import random
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import zoo
from tests.helpers.live import (
    DECODERS,
    LOGITS,
    MODELS,
    PROMPT,
    assert_near,
    ids_of,
    inputs,
    loaded,
    logits_of,
)
from zoo.assemble import assemble
from zoo.inspect.tokenization import pieces_of
from zoo.recipe import SinusoidalPositions

TEXTS = (
    *(
        PROMPT,
        "中国的首都是",
        "China",
        "中",
        " ",
        "a",
        "One\n\nof  the\tcountries \n",
        "naïve café — 東京 🦓",
        "x" * 40,
    ),
    *("[MASK] is a country [MASK].", "<|endoftext|>Paris<|pad|>", "It's we'll I'M 12 34,5"),
    *("Côte d'Ivoire's franc", "Democratic Republic of the Congo", "the Congolese franc,Japan"),
    *("\u00a0\u3000 \u0085\ufeff", "中华人民共和国和日本"),
)


def test_a_text_that_is_too_long_is_not_tokenized(live_run):
    texts = ["x" * 200_000, "中" * 200_000, " " * 200_000, "word " * 40, "word word"]
    found = live_run(
        "llama", "return given.texts.map((text) => model.tokenizer.encode(text, 30))", texts=texts
    )
    assert found == [None, None, None, None, ids_of("llama", "word word")]


@pytest.mark.parametrize("name", MODELS)
def test_a_tokenizer_gives_the_ids_and_texts_of_the_zoos(live_run, name):
    draw, alphabet = random.Random(0), "aZé中国首都 \n\t'.,19🦓-日本ſ"
    drawn = ["".join(draw.choices(alphabet, k=draw.randrange(1, 24))) for _ in range(200)]
    words = [
        draw.choice(loaded(name).tokenizer.decode([draw.randrange(5, 2048)]) or "x") + " [MASK]"
        for _ in range(20)
    ]
    texts = [*TEXTS, *drawn, *words]
    tokenizer = loaded(name).tokenizer
    found = live_run(name, "return given.texts.map((text) => model.tokenizer.encode(text))", texts=texts)
    assert found == [tokenizer.encode(text) for text in texts]
    decoded = live_run(name, "return given.ids.map((ids) => model.tokenizer.decode(ids))", ids=found)
    assert decoded == [tokenizer.decode(ids) for ids in found]
    every = list(range(tokenizer.vocab_size))
    pieces = live_run(name, "return given.ids.map((id) => model.tokenizer.describe(id))", ids=every)
    fields = ("id", "token", "text", "special")
    wanted = [
        {key: getattr(p, key) for key in fields} | {"bytes": p.bytes.hex(), "origin": "prompt"}
        for p in pieces_of(tokenizer, every)
    ]
    assert pieces == wanted


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", (PROMPT, "中国的首都是", "a", "[MASK]<|endoftext|> in Asia.", "longest"))
def test_logits_equal_the_zoos(live_run, name, text):
    given = inputs(name, PROMPT if text == "longest" else text)
    if text == "longest":
        context = loaded(name).recipe.context or 128
        given["ids"] = (given["ids"] * context)[:context]
        given["source"] = given["source"] and (given["source"] * context)[:context]
    found = live_run(name, LOGITS, **given)
    wanted = logits_of(name, **given)
    assert (found["T"], found["V"]) == wanted.shape
    assert_near(found["logits"], wanted)


def test_a_text_longer_than_the_context_is_refused_in_one_line(live_run):
    with pytest.raises(Exception, match="65 tokens are more than the context of 64"):
        live_run("gpt2", LOGITS, ids=[5] * 65)
    with pytest.raises(Exception, match="there is no token to read"):
        live_run("gpt2", LOGITS, ids=[])


VALUES = """
const run = model.run(given.ids, given), values = new Map([...(run.source?.values ?? []), ...run.values]);
return {order: [...values.keys()], values, lens: run.lens(5)}"""


@pytest.mark.parametrize("name", MODELS)
def test_values_and_their_order_are_those_of_a_trace(live_run, name):
    loading, given = loaded(name), inputs(name)
    if name == "llada":
        given["ids"] += [loading.tokenizer.id("[MASK]")]
    settings = {} if name == "bert" else {"max_tokens": 1}
    if name == "transformer":
        given["ids"] = [0]
    text = given["source"] or given["ids"]
    trace = zoo.trace(loading, text[:-1] if name == "llada" else text, **settings)
    found = live_run(name, VALUES, **given)
    assert found["order"] == list(trace)
    for address in trace:
        value = np.array(found["values"][address]["data"]).reshape(found["values"][address]["shape"])
        wanted = trace[address]
        if address.endswith("head"):  # generation computes the logits of the last token alone
            value = value[-len(wanted) :]
        if address.endswith(("indices", "router.weights", "experts")):  # chosen experts are in no order
            value, wanted = (np.sort(each, axis=1) for each in (value, wanted))
        assert value.shape == wanted.shape, address
        assert_near(value, wanted, address)
    for depth, other in zip(found["lens"], trace.lens(5), strict=True):
        assert (depth["address"], depth["track"]) == (other.address, other.track)
        assert_near(depth["probabilities"], other.probabilities)
        assert_near(depth["entropy_bits"], np.abs(other.entropy_bits))
        sure = np.array(other.probabilities)[:, 0] - np.array(other.probabilities)[:, 1] > 1e-4
        assert (np.array(depth["tokens"])[sure, 0] == np.array(other.tokens)[sure, 0]).all()


CACHED = """
const cache = model.makeCache(), runs = given.parts.map((ids) => model.run(ids, {...given, cache}));
return runs.map((run) => ({logits: run.logits, computed: run.computed, start: run.start}))"""


@pytest.mark.parametrize("name", (*DECODERS, "transformer"))
def test_decoding_with_a_cache_equals_a_whole_pass_and_computes_less(live_run, name):
    given = inputs(name)
    ids = given["ids"] = (given["ids"] + [300, 301, 302, 7])[:8]
    whole = live_run(name, LOGITS, **given)
    cuts = [0, 3, *range(4, len(ids) + 1)]
    parts = [ids[start:stop] for start, stop in pairwise(cuts)]
    runs = live_run(name, CACHED, parts=parts, source=given["source"])
    assert_near([x for each in runs for x in each["logits"]], whole["logits"])
    assert [each["start"] for each in runs] == cuts[:-1]
    assert [each["computed"]["positions"] for each in runs] == [len(part) for part in parts]
    source = given["source"] or ids[:3]
    held = (
        zoo.trace(loaded(name), source, max_tokens=1).passes[-1].cached_numbers
    )  # of three tokens, or a target's first
    each = held if given["source"] else held // 3
    assert [own["computed"]["cached"] for own in runs] == [each * stop for stop in cuts[1:]]


@pytest.mark.parametrize("name", ("gpt2", "llama", "mixtral", "bert"))
def test_multiplications_are_those_of_the_recipes_matrices(live_run, name):
    recipe, ids = loaded(name).recipe, ids_of(name)
    uses = 0
    for path, spec in recipe.walk():
        dim = recipe.embedding.dim
        for matrix in spec.matrices(dim):
            experts = spec.block().startswith("experts/")
            count = recipe.layers[0].feedforward.router.top_k if experts else matrix.uses
            uses += count * matrix.inputs * matrix.outputs
        uses += dim * recipe.vocab if path == "head" else 0  # tied: by the embedding's table
    assert live_run(name, LOGITS, ids=ids)["computed"]["multiplications"] == len(ids) * uses


OFF = "return model.run(given.ids, {...given, off: new Set(given.off)}).logits"


@pytest.mark.parametrize("name", MODELS)
def test_switching_off_equals_an_intervention_with_zero(live_run, name):
    given = inputs(name)
    side = "decoder." if name == "transformer" else ""
    cases = [
        [f"{side}layers.1.mixer.head.2"],
        [f"{side}layers.0.mixer"],
        [f"{side}layers.1.feedforward", f"{side}layers.1.mixer.head.0"],
    ]
    if name == "mixtral":
        cases += [["layers.1.feedforward.router.expert.3", "layers.2.feedforward.router.expert.0"]]
    if name == "transformer":
        cases += [
            ["decoder.layers.1.cross.head.1"],
            ["encoder.layers.0.mixer.head.3"],
            ["encoder.layers.1.feedforward"],
        ]
    for off in cases:
        with zoo.intervene(loaded(name), dict.fromkeys(off, 0)):
            wanted = logits_of(name, **given)
        assert np.abs(wanted - logits_of(name, **given)).max() > 1e-3, off
        assert_near(live_run(name, OFF, **given, off=off), wanted, off)


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_that_is_off_passes_its_input_on(live_run, name):
    given = inputs(name)
    side = "decoder." if name == "transformer" else ""
    before = []
    keep = {f"{side}layers.0": lambda x: before.append(x) or x, f"{side}layers.1": lambda x: before[-1]}
    with zoo.intervene(loaded(name), keep):
        wanted = logits_of(name, **given)
    assert_near(live_run(name, OFF, **given, off=[f"{side}layers.1"]), wanted)


VARIANTS = "return Object.fromEntries(model.variants().map((v) => [v.id, model.run(given.ids, {...given, recipe: v.recipe}).logits]))"


@pytest.mark.parametrize("name", MODELS)
def test_variants_equal_the_zoos_model_of_that_recipe_with_the_same_weights(live_run, name):
    given, found = inputs(name), None
    found = live_run(name, VARIANTS, **given)
    assert found
    for variant, logits in found.items():
        model = changed_model(name, variant)
        if model is None:
            continue
        tokens = mx.array([given["ids"]])
        wanted = model(tokens) if given["source"] is None else model(mx.array([given["source"]]), tokens)
        assert np.abs(np.array(wanted[0]) - logits_of(name, **given)).max() > 1e-2, variant
        assert_near(logits, wanted[0], variant)


def changed_model(name, variant):
    """The zoo's model of a variant's recipe; None where its recipes cannot say it."""
    what, kind = variant.split(":")
    recipe = loaded(name).recipe

    def change(tower):
        if what == "placement":
            return tower.change(norm=None).change_layers(placement=kind)
        positions = SinusoidalPositions() if kind == "sinusoidal" else None
        rope = zoo.load("llama").recipe.layers[0].mixer.rope if kind == "rotary" else None
        return tower.change(embedding=dict(positions=positions)).change_layers(mixer=dict(rope=rope))

    if name == "bert" and kind in ("none", "rotary"):
        return None  # its embedding has positions always
    if name == "transformer":
        recipe = recipe.change(encoder=change(recipe.encoder), decoder=change(recipe.decoder))
    else:
        recipe = change(recipe)
    model = assemble(recipe, loaded(name).registry)
    there = {path for path, _ in tree_flatten(model.parameters())}
    model.load_weights(
        [(path, array) for path, array in tree_flatten(loaded(name).model.parameters()) if path in there]
    )
    return model
