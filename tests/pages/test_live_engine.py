"""The live pages' engine in a browser: tokenizers, logits, values, interventions, sampling and views against the zoo's own."""

import functools
import gzip
import json
import random
import re
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import zoo
from tests.pages.conftest import DOCS
from zoo.assemble import assemble
from zoo.inspect.tokenization import pieces_of
from zoo.inspect.trace_view.build_view import build_view
from zoo.recipe import SinusoidalPositions

DECODERS = ("gpt2", "gpt2-postln", "llama", "qwen3", "mixtral")
MODELS = (*DECODERS, "bert", "transformer", "llada")
TOLERANCE = 1e-4  # of the range of the zoo's numbers; the pages promise 1e-3
PROMPT = "The capital city of China is"
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
    *(
        "[MASK] is a country [MASK].",
        "<|endoftext|>Paris<|pad|>",
        "It's we'll I'M 12 34,5",
        "Côte d'Ivoire's franc",
    ),
    *(
        "Democratic Republic of the Congo",
        "the Congolese franc,Japan",
        "\u00a0\u3000 \u0085\ufeff",
        "中华人民共和国和日本",
    ),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The engine and its models in a folder, which the docs need not have been built for, served on this machine."""
    sys.path.insert(0, str(DOCS))
    from building.live import export

    folder = tmp_path_factory.mktemp("live")
    export(folder)
    sys.path.remove(str(DOCS))
    (folder / "index.html").write_text("<!doctype html><link rel=icon href='data:,'><title>live</title>")
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line on the terminal for each."""

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def run(browser, site):
    """Run the body of an asynchronous function of `model` and `given` in the page; its arrays come back as lists."""
    page = browser.new_page()
    page.goto(site[1])
    page.evaluate(
        """async () => {
          window.engine = await import("/engine.js");
          window.models = {};
          window.plain = (x) => ArrayBuffer.isView(x) ? Array.from(x) : Array.isArray(x) ? x.map(plain)
            : x instanceof Map ? plain(Object.fromEntries(x)) : x && typeof x === "object" ? Object.fromEntries(Object.entries(x).map(([k, v]) => [k, plain(v)])) : x;
          window.start = async (name, body, given) => {
            const model = (models[name] ??= await engine.loadModel(`models/${name}`));
            const body_ = new Function("model", "given", "engine", `return (async () => {${body}})()`);
            return plain(await body_(model, given, engine));
          };
        }"""
    )
    yield lambda name, body, **given: page.evaluate(
        "([name, body, given]) => start(name, body, given)", [name, body, given]
    )
    page.close()


@functools.cache
def loaded(name):
    """A pocket, in float32."""
    return zoo.load(name)


def ids_of(name, text=PROMPT):
    return loaded(name).tokenizer.encode(text)


def inputs(name, text=PROMPT):
    """What a run is given for a text: its ids, or, of a translator, the start of a target with the text as the source."""
    ids = ids_of(name, text)
    return dict(ids=[0, 5, 300], source=ids) if name == "transformer" else dict(ids=ids, source=None)


def logits_of(name, ids, source):
    """The zoo's logits (T, V)."""
    model, tokens = loaded(name).model, mx.array([ids])
    return np.array((model(tokens) if source is None else model(mx.array([source]), tokens))[0])


def assert_near(found, wanted, where=""):
    """Numbers equal the zoo's within the tolerance of their range."""
    wanted = np.asarray(wanted, np.float64)
    found = np.asarray(found, np.float64).reshape(wanted.shape)
    span = max(np.ptp(wanted), 1e-6)
    assert np.abs(found - wanted).max() <= TOLERANCE * span, where


LOGITS = "const run = model.run(given.ids, given); return {logits: run.logits, T: run.T, V: run.V, computed: run.computed}"


@pytest.mark.parametrize("name", MODELS)
def test_a_tokenizer_gives_the_ids_and_texts_of_the_zoos(run, name):
    draw, alphabet = random.Random(0), "aZé中国首都 \n\t'.,19🦓-日本ſ"
    drawn = ["".join(draw.choices(alphabet, k=draw.randrange(1, 24))) for _ in range(200)]
    words = [
        draw.choice(loaded(name).tokenizer.decode([draw.randrange(5, 2048)]) or "x") + " [MASK]"
        for _ in range(20)
    ]
    texts = [*TEXTS, *drawn, *words]
    tokenizer = loaded(name).tokenizer
    found = run(name, "return given.texts.map((text) => model.tokenizer.encode(text))", texts=texts)
    assert found == [tokenizer.encode(text) for text in texts]
    decoded = run(name, "return given.ids.map((ids) => model.tokenizer.decode(ids))", ids=found)
    assert decoded == [tokenizer.decode(ids) for ids in found]
    every = list(range(tokenizer.vocab_size))
    pieces = run(name, "return given.ids.map((id) => model.tokenizer.describe(id))", ids=every)
    fields = ("id", "token", "text", "special")
    wanted = [
        {key: getattr(p, key) for key in fields} | {"bytes": p.bytes.hex(), "origin": "prompt"}
        for p in pieces_of(tokenizer, every)
    ]
    assert pieces == wanted


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", (PROMPT, "中国的首都是", "a", "[MASK]<|endoftext|> in Asia.", "longest"))
def test_logits_equal_the_zoos(run, name, text):
    given = inputs(name, PROMPT if text == "longest" else text)
    if text == "longest":
        context = loaded(name).recipe.context or 128
        given["ids"] = (given["ids"] * context)[:context]
        given["source"] = given["source"] and (given["source"] * context)[:context]
    found = run(name, LOGITS, **given)
    wanted = logits_of(name, **given)
    assert (found["T"], found["V"]) == wanted.shape
    assert_near(found["logits"], wanted)


def test_a_text_longer_than_the_context_is_refused_in_one_line(run):
    with pytest.raises(Exception, match="65 tokens are more than the context of 64"):
        run("gpt2", LOGITS, ids=[5] * 65)
    with pytest.raises(Exception, match="there is no token to read"):
        run("gpt2", LOGITS, ids=[])


VALUES = """
const run = model.run(given.ids, given), values = new Map([...(run.source?.values ?? []), ...run.values]);
return {order: [...values.keys()], values, lens: run.lens(5)}"""


@pytest.mark.parametrize("name", MODELS)
def test_values_and_their_order_are_those_of_a_trace(run, name):
    loading, given = loaded(name), inputs(name)
    if name == "llada":
        given["ids"] += [loading.tokenizer.id("[MASK]")]
    settings = {} if name == "bert" else {"max_tokens": 1}
    if name == "transformer":
        given["ids"] = [0]
    text = given["source"] or given["ids"]
    trace = zoo.trace(loading, text[:-1] if name == "llada" else text, **settings)
    found = run(name, VALUES, **given)
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
def test_decoding_with_a_cache_equals_a_whole_pass_and_computes_less(run, name):
    given = inputs(name)
    ids = given["ids"] = (given["ids"] + [300, 301, 302, 7])[:8]
    whole = run(name, LOGITS, **given)
    cuts = [0, 3, *range(4, len(ids) + 1)]
    parts = [ids[start:stop] for start, stop in pairwise(cuts)]
    runs = run(name, CACHED, parts=parts, source=given["source"])
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
def test_multiplications_are_those_of_the_recipes_matrices(run, name):
    recipe, ids = loaded(name).recipe, ids_of(name)
    uses = 0
    for path, spec in recipe.walk():
        dim = recipe.embedding.dim
        for matrix in spec.matrices(dim):
            experts = spec.block().startswith("experts/")
            count = recipe.layers[0].feedforward.router.top_k if experts else matrix.uses
            uses += count * matrix.inputs * matrix.outputs
        uses += dim * recipe.vocab if path == "head" else 0  # tied: by the embedding's table
    assert run(name, LOGITS, ids=ids)["computed"]["multiplications"] == len(ids) * uses


OFF = "return model.run(given.ids, {...given, off: new Set(given.off)}).logits"


@pytest.mark.parametrize("name", MODELS)
def test_switching_off_equals_an_intervention_with_zero(run, name):
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
        assert_near(run(name, OFF, **given, off=off), wanted, off)


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_that_is_off_passes_its_input_on(run, name):
    given = inputs(name)
    side = "decoder." if name == "transformer" else ""
    before = []
    keep = {f"{side}layers.0": lambda x: before.append(x) or x, f"{side}layers.1": lambda x: before[-1]}
    with zoo.intervene(loaded(name), keep):
        wanted = logits_of(name, **given)
    assert_near(run(name, OFF, **given, off=[f"{side}layers.1"]), wanted)


VARIANTS = "return Object.fromEntries(model.variants().map((v) => [v.id, model.run(given.ids, {...given, recipe: v.recipe}).logits]))"


@pytest.mark.parametrize("name", MODELS)
def test_variants_equal_the_zoos_model_of_that_recipe_with_the_same_weights(run, name):
    given, found = inputs(name), None
    found = run(name, VARIANTS, **given)
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


SAMPLE = """
const run = model.run(given.ids), row = run.logits.subarray((run.T - 1) * run.V);
return engine.sample(row, given.settings)"""
SETTINGS = (
    {},
    dict(temperature=1.0),
    dict(temperature=1.7, top_k=40),
    dict(temperature=2.5, top_k=300, top_p=0.9, min_p=0.02),
    dict(temperature=3.0, min_p=0.001),
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_sample_has_the_stages_and_the_token_of_the_zoos_sampler(run, settings):
    given = {
        {"top_k": "topK", "top_p": "topP", "min_p": "minP"}.get(key, key): value
        for key, value in settings.items()
    }
    ids = ids_of("llama", "One of the countries of")
    for seed in (0, 7, 2**40 + 3):
        trace = zoo.trace(
            loaded("llama"), ids, max_tokens=3, **settings, **({"seed": seed} if settings else {})
        )
        for step, wanted in enumerate(trace.choices(2048)):
            found = run(
                "llama",
                SAMPLE,
                ids=[*ids, *trace.tokens[:step]],
                settings={**given, "seed": seed, "step": step},
            )
            assert (found["token"], found["rank"]) == (wanted.token, wanted.rank)
            assert found["entropy_bits"] == pytest.approx(wanted.entropy_bits, abs=1e-4)
            assert found["logsumexp"] == pytest.approx(wanted.logsumexp, abs=1e-4)
            stages = [(stage["name"], stage["setting"], stage["kept"]) for stage in found["stages"]]
            assert stages == [
                (stage.name, pytest.approx(stage.setting), stage.kept) for stage in wanted.stages
            ]
            for own, stage in zip(found["stages"], wanted.stages, strict=True):
                of = dict(zip(wanted.shown, stage.probabilities, strict=True))
                assert own["probabilities"] == pytest.approx([of[id] for id in found["shown"]], abs=1e-4)


def test_draws_are_in_proportion_to_the_probabilities_of_what_is_left(run):
    body = "return given.seeds.map((seed) => engine.sample(Float32Array.from([0, 1, 2, 3]), {temperature: 1, topK: 3, seed}).token)"
    drawn = run("llama", body, seeds=list(range(4000)))
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    wanted = np.exp([-np.inf, 1, 2, 3]) / np.exp([1, 2, 3]).sum()
    assert shares[0] == 0
    assert np.abs(shares - wanted).max() < 0.03


def test_masks_are_filled_with_the_zoos_candidates(run):
    text = "The capital of China is [MASK], in [MASK]."
    steps = list(zoo.stream(loaded("bert"), text, top_k=4))
    found = run(
        "bert", "const run = model.run(given.ids); return engine.fillMasks(run, 4)", ids=ids_of("bert", text)
    )
    pairs = [
        (number, id, p)
        for number, each in enumerate(found, 1)
        for id, p in zip(each["tokens"], each["probabilities"], strict=True)
    ]
    wanted = [(s.candidate["mask"], s.candidate["token"], s.candidate["probability"]) for s in steps]
    assert [pair[:2] for pair in pairs] == [pair[:2] for pair in wanted]
    assert [pair[2] for pair in pairs] == pytest.approx([pair[2] for pair in wanted], abs=1e-5)


UNMASK = """
const found = [];
let ids = given.ids;
for (const count of given.counts) {
  const run = model.run(ids), pass = engine.unmask(run, count);
  found.push(pass);
  ids = pass.next;
}
return found"""


@pytest.mark.parametrize("prompt", ("The currency of Japan is the", "中国的首都是"))
@pytest.mark.parametrize(("tokens", "steps"), ((6, 6), (7, 3)))
def test_passes_of_unmasking_are_the_zoos(run, prompt, tokens, steps):
    ids, mask = ids_of("llada", prompt), loaded("llada").tokenizer.id("[MASK]")
    view = build_view(zoo.trace(loaded("llada"), prompt, max_tokens=tokens, steps=steps))
    counts = [len(one.kept) for one in view.unmasking]
    found = run("llada", UNMASK, ids=[*ids, *[mask] * tokens], counts=counts)
    for own, wanted in zip(found, view.unmasking, strict=True):
        assert (own["ids"], own["kept"]) == (list(wanted.ids), list(wanted.kept))
        for hidden, other in zip(own["predictions"], wanted.predictions, strict=True):
            assert (hidden["position"], hidden["chosen"]) == (other.position, other.chosen)
            assert hidden["probabilities"] == pytest.approx(other.probabilities, abs=1e-4)


TRANSLATE = """
const source = model.encode(given.source), cache = model.makeCache(), written = [];
let ids = [model.special.start];
while (written.length < 20) {
  const run = model.run(ids, {source, cache}), {token} = engine.sample(run.logits);
  if (model.special.eos.includes(token)) break;
  written.push(token);
  ids = [token];
}
return model.tokenizer.decode(written)"""


@pytest.mark.parametrize("text", ("China is in Asia.", "日本的首都是东京。"))
def test_a_translation_is_the_zoos(run, text):
    wanted = "".join(step.text for step in zoo.stream(loaded("transformer"), text, max_tokens=20, beams=1))
    assert run("transformer", TRANSLATE, source=ids_of("transformer", text)) == wanted != ""


# The runs of a trace, and its view: a prompt, then the tokens that were chosen one by one.
VIEW = """
const runs = [], choices = [], unmasking = [];
let masks = [], prompt = given.ids.length;
if (model.kind === "encoder") {
  runs.push(model.run(given.ids));
  masks = engine.fillMasks(runs[0]);
} else if (model.kind === "diffusion") {
  let ids = given.ids;
  for (let step = 0; step < given.count; step++) {
    runs.push(model.run(ids));
    unmasking.push(engine.unmask(runs.at(-1), 1));
    ids = unmasking.at(-1).next;
  }
} else {
  const cache = model.makeCache(), source = given.source && model.encode(given.source);
  let ids = given.ids;
  for (let step = 0; step < given.count; step++) {
    const run = model.run(ids, {cache, source});
    runs.push(run);
    choices.push(engine.sample(run.logits.subarray((run.T - 1) * run.V)));
    ids = [choices.at(-1).token];
  }
}
return engine.view(model, runs, {prompt, choices, masks, unmasking, language: given.language})"""


@pytest.mark.parametrize("language", ("en", "zh"))
@pytest.mark.parametrize("name", MODELS)
def test_a_view_is_the_one_that_the_zoo_builds(run, name, language):
    from zoo.inspect.trace_view.page import data_of

    loading, text = loaded(name), "The capital of China is [MASK]." if name == "bert" else PROMPT
    ids = ids_of(name, text)
    given = dict(ids=ids, count=3, language=language)
    if name == "llada":
        given["ids"] = [*ids, *[loading.tokenizer.id("[MASK]")] * 3]
    if name == "transformer":
        given |= dict(ids=[loading.recipe.start], source=ids)
    wanted = data_of(
        build_view(zoo.trace(loading, text, **({} if name == "bert" else {"max_tokens": 3}))),
        (),
        language,
        whole=True,
    )
    found = json.loads(json.dumps(run(name, VIEW, **given)))
    for key in ("notes", "finish_reason"):
        found.pop(key, None), wanted.pop(key, None)
    if name == "bert":  # its candidates are in `masks`
        found.pop("text"), wanted.pop("text")
        found.pop("settings"), wanted.pop("settings")
    for one in found["unmasking"]:
        del one["next"]
    for each in (found, wanted):
        for summary in each["after"]:
            if summary["address"].endswith("head"):  # the zoo computes the logits of the last token alone
                del summary["shape"], summary["norm"], summary["strip"], summary["track"]
        for layer in each["layers"]:
            for summary in layer["stages"]:
                if summary["name"].endswith((".indices", ".weights", ".experts")):  # in no order
                    del summary["strip"]
    found["vocabulary"] = {int(id): text for id, text in found["vocabulary"].items()}
    wanted["vocabulary"] = {int(id): text for id, text in wanted["vocabulary"].items()}
    assert_alike(found, wanted, "view")


def assert_alike(found, wanted, path):
    """Equal, and numbers within what rounding to three digits makes of numbers that are nearly equal."""
    if isinstance(wanted, dict):
        assert set(found) == set(wanted), path
        for key in wanted:
            assert_alike(found[key], wanted[key], f"{path}.{key}")
    elif isinstance(wanted, list) and not path.endswith((".tokens", ".candidates", ".shown", ".attends_to")):
        assert len(found) == len(wanted), path
        for index, (own, other) in enumerate(zip(found, wanted, strict=True)):
            assert_alike(own, other, f"{path}.{index}")
    elif isinstance(wanted, list):  # the order of tokens that are equally likely is no one's
        assert np.mean(np.array(found).flatten() == np.array(wanted).flatten()) > 0.9, path
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=0.02, abs=2e-3), path
    else:
        assert found == wanted, path


@pytest.mark.parametrize("name", MODELS)
def test_what_a_page_loads_for_one_model_is_small(site, run, browser, name):
    page, loads = browser.new_page(), []
    page.on("request", lambda request: loads.append(request.url))
    page.goto(site[1])
    page.evaluate(
        "(name) => import('/engine.js').then(({loadModel}) => loadModel(`models/${name}`)).then(() => 0)",
        name,
    )
    scripts = [site[0] / url.rpartition("/")[2] for url in loads if url.endswith(".js")]
    page.close()
    assert all(url.startswith((site[1], "data:")) for url in loads), loads
    names = {script.name for script in scripts}
    assert ("experts.js" in names, "cross.js" in names) == (name == "mixtral", name == "transformer")
    assert ("masks.js" in names) == (name in ("bert", "llada"))
    assert (
        sum(len(gzip.compress(script.read_bytes())) for script in scripts) < 15_500
    )  # of 25,000 with the page's own


def test_a_model_that_does_not_load_is_told_in_one_line(site, run):
    with pytest.raises(Exception, match=r"models/none/(model|tokenizer).json: 404 File not found"):
        run("none", "return 0")
    weights = site[0] / "models" / "cut" / "weights.safetensors"
    weights.parent.mkdir()
    for other in (site[0] / "models" / "llama").iterdir():
        (weights.parent / other.name).write_bytes(other.read_bytes())
    weights.write_bytes(weights.read_bytes()[:-2])
    with pytest.raises(Exception, match=r"cut/weights.safetensors: ended after \d+ of \d+ bytes"):
        run("cut", "return 0")


def test_progress_ends_with_all_bytes_and_models_name_what_they_are(site, run):
    body = """const told = [], {loadModel} = engine;
    await loadModel("models/llama", {progress: (done, total) => told.push([done, total])});
    return {told, kind: model.kind, context: model.context, prompts: model.prompts}"""
    found = run("llama", body)
    size = (site[0] / "models" / "llama" / "weights.safetensors").stat().st_size
    assert found["told"][-1] == [size, size]
    assert found["told"] == sorted(found["told"])
    assert (found["kind"], found["context"]) == ("decoder", 128)
    kinds = {name: run(name, "return model.kind") for name in ("bert", "transformer", "llada")}
    assert kinds == {"bert": "encoder", "transformer": "encoder-decoder", "llada": "diffusion"}


def test_scripts_name_no_model():
    for script in (DOCS / "_static" / "live").glob("*.js"):
        if script.name in (
            "tensor.js",
            "tokenizer.js",
            "blocks.js",
            "experts.js",
            "cross.js",
            "masks.js",
            "model.js",
            "sampler.js",
            "view.js",
            "engine.js",
        ):
            code = re.sub(r"//.*", "", script.read_text())
            assert not re.search("|".join(MODELS), code), script.name
            assert len(script.read_text().splitlines()) < 400


@pytest.mark.parametrize(
    ("field", "value", "told"),
    (
        ("window", 8, "llama: the page runs no model with window 8"),
        ("block", "mixer/other", "layers.0.mixer: the page has no block mixer/other"),
    ),
)
def test_a_recipe_with_what_the_page_does_not_do_is_refused_by_name(site, run, field, value, told):
    folder = site[0] / "models" / f"other-{field}"
    folder.mkdir()
    for other in (site[0] / "models" / "llama").iterdir():
        (folder / other.name).write_bytes(other.read_bytes())
    about = json.loads((folder / "model.json").read_text())
    about["recipe"]["layers"][0]["layer"]["mixer"][field] = value
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(Exception, match=told):
        run(folder.name, "return model.run([5, 6]).T")
