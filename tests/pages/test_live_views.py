"""The live pages in a browser beside the zoo: sampling, masks, translations, views of whole runs, and what a page loads."""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from building import live

import zoo
from tests.helpers.live import MODELS, PROMPT, ids_of, loaded
from zoo.inspect.trace_view.build_view import build_view
from zoo.inspect.trace_view.page import data_of

DOCS = Path(__file__).parents[2] / "docs"
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

pytestmark = pytest.mark.nightly  # one of many like it: every run opens pages and runs the engine elsewhere


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_sample_has_the_stages_and_the_token_of_the_zoos_sampler(live_run, settings):
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
            found = live_run(
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


def test_draws_are_in_proportion_to_the_probabilities_of_what_is_left(live_run):
    body = "return given.seeds.map((seed) => engine.sample(Float32Array.from([0, 1, 2, 3]), {temperature: 1, topK: 3, seed}).token)"
    drawn = live_run("llama", body, seeds=list(range(4000)))
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    wanted = np.exp([-np.inf, 1, 2, 3]) / np.exp([1, 2, 3]).sum()
    assert shares[0] == 0
    assert np.abs(shares - wanted).max() < 0.03


def test_masks_are_filled_with_the_zoos_candidates(live_run):
    text = "The capital of China is [MASK], in [MASK]."
    steps = list(zoo.stream(loaded("bert"), text, top_k=4))
    found = live_run(
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
def test_passes_of_unmasking_are_the_zoos(live_run, prompt, tokens, steps):
    ids, mask = ids_of("llada", prompt), loaded("llada").tokenizer.id("[MASK]")
    view = build_view(zoo.trace(loaded("llada"), prompt, max_tokens=tokens, steps=steps))
    counts = [len(one.kept) for one in view.unmasking]
    found = live_run("llada", UNMASK, ids=[*ids, *[mask] * tokens], counts=counts)
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
def test_a_translation_is_the_zoos(live_run, text):
    wanted = "".join(step.text for step in zoo.stream(loaded("transformer"), text, max_tokens=20, beams=1))
    assert live_run("transformer", TRANSLATE, source=ids_of("transformer", text)) == wanted != ""


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
def test_a_view_is_the_one_that_the_zoo_builds(live_run, name, language):
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
    found = json.loads(json.dumps(live_run(name, VIEW, **given)))
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
    elif ".operands." in path and isinstance(wanted, list):  # rounded to digits of the largest number
        assert np.shape(found) == np.shape(wanted), path
        assert np.allclose(found, wanted, rtol=0, atol=2e-3 * np.abs(wanted).max()), path
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
def test_what_a_page_loads_for_one_model_is_small(live_site, live_run, browser, name):
    page, loads = browser.new_page(), []
    page.on("request", lambda request: loads.append(request.url))
    page.goto(live_site[1])
    page.evaluate(
        "(name) => import('/engine.js').then(({loadModel}) => loadModel(`models/${name}`)).then(() => 0)",
        name,
    )
    scripts = [live_site[0] / url.rpartition("/")[2] for url in loads if url.endswith(".js")]
    page.close()
    assert all(url.startswith((live_site[1], "data:")) for url in loads), loads
    assert not re.search(
        r"^ *//", "".join(script.read_text() for script in scripts), re.MULTILINE
    )  # as served
    names = {script.name for script in scripts}
    assert ("experts.js" in names, "cross.js" in names) == (name == "mixtral", name == "transformer")
    assert ("masks.js" in names) == (name in ("bert", "llada"))
    assert (
        sum(len(gzip.compress(script.read_bytes())) for script in scripts) < 15_600
    )  # of 25,000 with the page's own


def test_a_model_that_does_not_load_is_told_in_one_line(live_site, live_run):
    with pytest.raises(Exception, match=r"models/none/(model|tokenizer).json: 404 File not found"):
        live_run("none", "return 0")
    weights = live_site[0] / "models" / "cut" / "weights.safetensors"
    weights.parent.mkdir()
    for other in (live_site[0] / "models" / "llama").iterdir():
        (weights.parent / other.name).write_bytes(other.read_bytes())
    weights.write_bytes(weights.read_bytes()[:-2])
    with pytest.raises(Exception, match=r"cut/weights.safetensors: ended after \d+ of \d+ bytes"):
        live_run("cut", "return 0")


def test_progress_ends_with_all_bytes_and_models_name_what_they_are(live_site, live_run):
    body = """const told = [], {loadModel} = engine;
    await loadModel("models/llama", {progress: (done, total) => told.push([done, total])});
    return {told, kind: model.kind, context: model.context}"""
    found = live_run("llama", body)
    size = (live_site[0] / "models" / "llama" / "weights.safetensors").stat().st_size
    assert found["told"][-1] == [size, size]
    assert found["told"] == sorted(found["told"])
    assert (found["kind"], found["context"]) == ("decoder", 128)
    kinds = {name: live_run(name, "return model.kind") for name in ("bert", "transformer", "llada")}
    assert kinds == {"bert": "encoder", "transformer": "encoder-decoder", "llada": "diffusion"}


ENGINE = ("engine", "model", "blocks", "experts", "cross", "masks", "tensor", "tokenizer", "sampler", "view")


@pytest.mark.parametrize("name", ENGINE)
def test_a_script_of_the_engine_is_short_and_names_no_model(name):
    text = (DOCS / "_static" / "live" / f"{name}.js").read_text()
    assert len(text.splitlines()) < 200
    assert not re.search("|".join(MODELS), re.sub(r"^ *//.*", "", text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("field", "value", "told"),
    (
        ("window", 8, "llama: the page runs no model with window 8"),
        ("block", "mixer/other", "layers.0.mixer: the page has no block mixer/other"),
    ),
)
def test_a_recipe_with_what_the_page_does_not_do_is_refused_by_name(live_site, live_run, field, value, told):
    folder = live_site[0] / "models" / f"other-{field}"
    folder.mkdir()
    for other in (live_site[0] / "models" / "llama").iterdir():
        (folder / other.name).write_bytes(other.read_bytes())
    about = json.loads((folder / "model.json").read_text())
    about["recipe"]["layers"][0]["layer"]["mixer"][field] = value
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(Exception, match=told):
        live_run(folder.name, "return model.run([5, 6]).T")


@pytest.mark.parametrize(
    ("language", "format", "error"),
    (("zh", "html", None), ("en", "linkcheck", None), ("en", "html", OSError())),
)
def test_models_are_written_once_by_a_whole_build_of_the_english_site(
    monkeypatch, tmp_path, language, format, error
):
    written = []
    monkeypatch.setattr(live, "export", written.append)
    app = SimpleNamespace(
        outdir=tmp_path, builder=SimpleNamespace(format=format), config=SimpleNamespace(zoo_language=language)
    )
    live.write(app, error)
    assert written == []
    app.builder.format, app.config.zoo_language = "html", "en"
    live.write(app, None)
    assert written == [tmp_path / "_static" / "live"]


def test_a_tokenizer_of_another_kind_is_not_exported():
    file = json.loads((loaded("llama").folder / "tokenizer.json").read_text("utf-8"))
    with pytest.raises(ValueError, match="byte-level BPE, with nothing before or after it"):
        live.tokenizer(file | {"normalizer": {"type": "NFC"}})
    file["pre_tokenizer"]["pretokenizers"][0] = {"type": "Digits"}
    with pytest.raises(ValueError, match="has no Digits"):
        live.tokenizer(file)
