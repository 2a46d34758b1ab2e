"""GGUF files in the live page's engine: logits, tokens, answers and refusals beside the zoo's own."""

import json
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.live import assert_near
from tests.helpers.talking import NUMBERS, TEMPLATE, small_file, smollm2_file

KINDS = ("F32", "F16", "Q4_0", "Q4_1", "Q8_0", "Q6_K")
TEXTS = (
    *(
        "The capital of France is Paris.",
        "它的首都是北京，人口两千万。",
        "def f(x):\n\treturn x ** 2  # ok\n",
        "👩‍🚀🦓 naïve",
    ),
    *(
        "  two  spaces \n\n  and\ttabs ",
        "12345 3.14 ٣٤ Ⅻ ½",
        "I'll don't WE'VE",
        "\u3000\u00a0\u0085x\ufeffy",
        "a" * 50,
        "",
    ),
    *(
        "<|im_start|>user\nhi<|im_end|>\n",
        "x<|im_end|>y",
        "https://a.b/c?d=1&e=2",
        "日本語テスト、한국어",
        "\r\n\r\n \r",
    ),
)
PROMPTS = ("What is the capital of France?", "Write a short poem about the sea.", "为什么天空是蓝色的？")
START = """async () => {
  const [{ modelOf, chatText }, { Talk }, { Refusal }] = await Promise.all(["gguf_model", "talk", "gguf"].map((name) => import(`/${name}.js`)));
  window.read = async (address) => {
    try {
      return (window.model = modelOf(await (await fetch(address)).arrayBuffer())).name;
    } catch (error) {
      if (error instanceof Refusal) return { refusal: error.refusal, ...error.values };
      throw error;
    }
  };
  window.logits = (parts) => {
    const cache = model.makeCache();
    return parts.map((ids) => [...model.run(ids, { cache, keep: false }).logits]);
  };
  window.answer = async (turns, settings, most, off = [], stopAt = Infinity) => {
    const talk = new Talk(model), messages = [], found = [];
    let seen = 0;
    for (const content of turns) {
      messages.push({ role: "user", content });
      const told = [], done = await talk.answer({ messages, settings, off: new Set(off), most }, (part) => told.push(part), () => told.length >= stopAt);
      messages.push({ role: "assistant", content: done.text });
      found.push({ ...done, told, ids: talk.ids.slice(talk.prompt), read: talk.ids.length });
    }
    window.talk = talk;
    return found;
  };
}"""


@pytest.fixture(scope="module")
def engine(browser, live_site):
    """A page in which a GGUF file is read: give it a path, get the page."""
    folder, address = live_site
    page = browser.new_page()
    page.set_default_timeout(240_000)  # ms
    page.goto(address)
    page.evaluate(START)

    def read(path):
        place = folder / "file.gguf"
        place.unlink(missing_ok=True)
        place.symlink_to(path)
        return page.evaluate(f"read('/file.gguf?{path.stat().st_mtime_ns}')")

    page.read = read
    yield page
    page.close()


@pytest.fixture
def small(engine, tmp_path):
    """The small model in the page and in the zoo."""
    path = small_file(tmp_path)
    engine.read(path)
    return zoo.load(path)


@pytest.mark.filterwarnings("ignore:tensors that no quantization of MLX holds")
@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_packed_matrices_are_the_zoos(engine, tmp_path, kind):
    path = small_file(tmp_path, kind)
    engine.read(path)
    loaded, ids = zoo.load(path), [5, 200, 17, 90, 33, 250, 7, 8, 9, 299]
    wanted = np.array(loaded.model(mx.array([ids]))[0])
    cuts = [0, 7, 8, 10]
    found = engine.evaluate("logits", [ids[start:stop] for start, stop in pairwise(cuts)])
    assert_near([x for part in found for x in part], wanted)


def test_matrices_are_views_of_the_files_bytes(engine, tmp_path):
    path = small_file(tmp_path)
    engine.read(path)
    found = engine.evaluate(
        """Object.values(model.weights).map((each) => each.bytes ? each.bytes.buffer.byteLength : -each.data.length)"""
    )
    assert {size for size in found if size > 0} == {path.stat().st_size}
    assert {size for size in found if size < 0} == {-NUMBERS["hidden_size"]}  # norms


def test_a_head_of_its_own_is_read(engine, tmp_path):
    path = small_file(tmp_path, "Q8_0", tie_word_embeddings=False)
    engine.read(path)
    wanted = np.array(zoo.load(path).model(mx.array([[1, 2, 3]]))[0])
    assert_near(engine.evaluate("logits", [[1, 2, 3]])[0], wanted)


def test_texts_are_cut_and_merged_as_by_the_zoo(engine, small):
    found = engine.evaluate("texts => texts.map((text) => model.tokenizer.encode(text))", list(TEXTS))
    assert found == [small.tokenizer.encode(text) for text in TEXTS]
    decoded = engine.evaluate("lists => lists.map((ids) => model.tokenizer.decode(ids))", found)
    assert decoded == [small.tokenizer.decode(ids) for ids in found]


def chat_ids(loaded, messages, **settings):
    """The tokens of the zoo's answer, without the one that ends it."""
    steps = zoo.chat(loaded, messages, **settings)
    return [
        step.token for step in steps if step.token is not None and step.token not in loaded.tokenizer.eos_ids
    ]


def ask(engine, turns, most, **settings):
    return engine.evaluate(
        "([turns, settings, most]) => answer(turns, settings, most)", [turns, settings, most]
    )


@pytest.mark.parametrize(
    ("page", "own"),
    [
        ({}, {}),
        (dict(temperature=0.8, seed=3), dict(temperature=0.8, seed=3)),
        (
            dict(temperature=1.5, topK=20, topP=0.7, seed=11),
            dict(temperature=1.5, top_k=20, top_p=0.7, seed=11),
        ),
    ],
    ids=("greedy", "temperature", "top-k and top-p"),
)
def test_an_answer_has_the_zoos_tokens(engine, small, page, own):
    wanted = chat_ids(small, [{"role": "user", "content": "Hello 12, 你好"}], max_tokens=12, **own)
    (found,) = ask(engine, ["Hello 12, 你好"], 12, **page)
    assert found["ids"] == wanted[:-1]  # the last one is not read
    assert found["text"] == small.tokenizer.decode(wanted).rstrip("\ufffd")
    assert (found["reason"], found["tokens"]) == ("length", 12)


def test_a_second_message_continues_the_conversation(engine, small):
    first, second = ask(engine, ["Hi", "And then?"], 6)
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": first["text"]},
        {"role": "user", "content": "And then?"},
    ]
    assert second["ids"] == chat_ids(small, messages, max_tokens=6)[:-1]


def test_a_head_that_is_off_adds_nothing(engine, small):
    engine.evaluate("off => answer(['Hi'], {}, 6, [off])", "layers.1.mixer.head.2")
    ids, prompt = engine.evaluate("talk.ids"), engine.evaluate("talk.prompt")
    logits = [
        engine.evaluate(f"[...model.run(talk.ids, {{off: {off}}}).logits]")
        for off in ("talk.off", "undefined")
    ]
    changed, whole = (np.array(each).reshape(len(ids), -1) for each in logits)
    assert ids[prompt:] == changed[prompt - 1 : -1].argmax(axis=1).tolist()
    assert np.abs(changed - whole).max() > 0.01 * np.ptp(whole)


def test_an_answer_is_cancelled_between_passes(engine, small):
    (found,) = engine.evaluate("answer(['Hi '.repeat(30)], {}, 50, [], 3)")
    assert found["reason"] == "cancelled" and found["text"] == "" and found["read"] == 24
    (found,) = engine.evaluate("answer(['Hi'], {}, 50, [], 40)")
    assert found["reason"] == "cancelled" and 0 < found["tokens"] < 50


def test_a_view_has_the_heads_and_the_lens_of_the_text(engine, small):
    ask(engine, ["Hi"], 6)
    view = engine.evaluate("talk.view('en')")
    ids = engine.evaluate("talk.ids")
    trace = zoo.trace(small, ids, max_tokens=1)
    assert [piece["id"] for piece in view["tracks"][0]["pieces"]] == ids
    for number, layer in enumerate(view["layers"]):
        for head, own in enumerate(layer["patterns"][0]["heads"]):
            wanted = np.array(trace[f"layers.{number}.mixer.pattern"])[head]
            assert np.abs(np.array(own["weights"]) - wanted).max() < 1e-3
    for depth, other in zip(
        engine.evaluate("position => talk.lens(position)", len(ids) - 1), trace.lens(5), strict=True
    ):
        assert depth["address"] == other.address
        assert_near(depth["probabilities"], np.array(other.probabilities)[-1])


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (dict(name="qwen3"), dict(refusal="architecture", architecture="qwen3")),
        (dict(kind="Q5_0"), dict(refusal="kind", kind="Q5_0", known="F32, F16, Q4_0, Q4_1, Q8_0, Q6_K")),
        (dict(template="{{ messages }}"), dict(refusal="template")),
        (dict(pre="gpt-2"), dict(refusal="tokenizer", model="gpt2, gpt-2")),
        (
            dict(keys=[("llama.rope.scaling.factor", 2.0)]),
            dict(refusal="key", key="llama.rope.scaling.factor"),
        ),
        (
            dict(keys=[("tokenizer.ggml.add_bos_token", True)]),
            dict(refusal="key", key="tokenizer.ggml.add_bos_token"),
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_the_page_cannot_follow_is_refused_by_name(engine, tmp_path, changes, wanted):
    found = engine.read(small_file(tmp_path, **changes))
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(engine, tmp_path, share):
    path, whole = tmp_path / "short.gguf", small_file(tmp_path).read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert engine.read(path) == {"refusal": "truncated"}
    path.write_bytes(b"not a model at all")
    assert engine.read(path) == {"refusal": "not_gguf"}


def test_smollm2_answers_with_the_zoos_tokens(engine):
    path = smollm2_file()
    assert engine.read(path) == "Smollm2 135M 8k Lc100K Mix1 Ep2"
    loaded = zoo.load(path)
    assert loaded.tokenizer.chat_template == TEMPLATE
    found = engine.evaluate("texts => texts.map((text) => model.tokenizer.encode(text))", list(TEXTS))
    assert found == [loaded.tokenizer.encode(text) for text in TEXTS]
    for prompt in PROMPTS:
        wanted = chat_ids(loaded, [{"role": "user", "content": prompt}], max_tokens=32)
        (found,) = ask(engine, [prompt], 32)
        assert found["ids"] == wanted[: len(found["ids"])] and found["tokens"] == len(wanted), json.dumps(
            prompt
        )
