"""SmolLM2-135M-Instruct, a model that chats, from its Q4_1 GGUF file: against transformers and mlx-lm on the same weights."""

import json
from pathlib import Path

import mlx_lm.utils as mlx_lm
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from tests.helpers.invoked import invoke
from tests.helpers.recordings import recorder, shown_and_printed
from zoo.generation.chat.session import ChatSession
from zoo.generation.loop.prompt import encode_messages, render_messages
from zoo.inspect.perplexity import perplexity

from .smollm2 import gguf_file, read, reference_folder
from .support import TOLERANCE, difference

TIE = 1e-3  # logits that differ by less are a tie: rounding decides it
PROSE = Path(__file__).parents[2] / "docs" / "tour" / "attention.md"

TEXTS = [
    "The capital city of China is Beijing, isn't it? 1234567 reasons.",
    "中国的首都是北京，人口很多。ひらがなとカタカナ",
    "👩‍👩‍👧 and 🚀🚀 — naïve café, ﬁ ½ ① 𝔘",
    "def f(x):\n    return x**2  # 3.14\n\n\n\tif x:\r\n        pass   \n",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|><repo_name>x<file_sep>",
    "٣٤٥ ४५६ Ⅻ עברית ועربي",
    "I'LL we'Ve don't, 1 234 567.89 kg ≈ 10³ t",
    "\x00\ufeff\u200bzero\t\t width " + "a" * 300,
    "𝠀񆄱 has bytes that the vocabulary lacks",
    "  ",
    "",
]

CHAT = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris. 🗼"},
    {"role": "user", "content": "And of 中国?"},
]

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "中国的首都是",
    "Once upon a time, there was a little girl who",
    "Water boils at a temperature of",
    "The three primary colours are",
    "import numpy as np\n\nx =",
    "In 1969, the first man on the Moon",
]

QUESTIONS = [
    "What is the capital of France?",
    "And of China?",
    "Name one river there.",
    "How long is it?",
    "What is two plus three?",
    "Add four to it.",
    "Say hello in Spanish.",
    "And in German?",
    "What colour is the sky?",
    "Why?",
    "Name an animal.",
    "What does it eat?",
    "Is it large?",
    "Name a planet.",
    "How far is it from the sun?",
    "Name a programming language.",
    "What is it used for?",
    "Who made it?",
    "Thank you.",
    "Which city did I ask about first?",
]

TOOL_TEMPLATE = """\
{% if tools %}<|im_start|>system
You can call these functions:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}A call is written as
<tool_call>
{"name": "…", "arguments": {…}}
</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ "user" if message.role == "tool" else message.role }}
{% if message.role == "tool" %}<tool_response>
{{ message.content }}
</tool_response>{% else %}{{ message.content }}{% endif %}{% for call in message.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def path():
    return gguf_file()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return reference_folder(tmp_path_factory)


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def reference(folder):
    return read(folder)


@pytest.fixture(scope="module")
def loaded(path):
    """The zoo's model of the GGUF file."""
    return zoo.load(path)


@pytest.fixture(scope="module")
def packed(folder, tmp_path_factory):
    """Folders of 8 and 4 bits in MLX's layout, by the command line, by their bits."""
    place = tmp_path_factory.mktemp("packed")
    return {bits: converted(folder, place / str(bits), "-q", str(bits)) for bits in (8, 4)}


def command(*arguments, folder="."):
    """What `zoo …` prints."""
    done = invoke(folder, [str(one) for one in arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout


def converted(source, out, *options):
    """The folder that `zoo convert` wrote."""
    assert f"{out}: 134,515,008 parameters" in command("convert", source, out, *options)
    return out


def logits_of(model, ids):
    """transformers' logits (1, T, V)."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits


def lost(reference, ids):
    """How much less likely transformers finds each of the ids but the first than the likeliest there, in logits (T - 1,)."""
    rows = logits_of(reference, ids)[0, :-1]
    return rows.max(-1).values - rows[range(len(rows)), ids[1:]]


def is_greedy(reference, ids, new):
    """Assert that transformers, too, finds each of the `new` tokens the likeliest after `ids`, or one that ties with it."""
    far = lost(reference, [*ids, *new])[len(ids) - 1 :]
    assert far.max() <= TIE, (
        f"token {int(far.argmax())} of {len(new)} is {float(far.max()):.3g} from the best"
    )


def answered(loaded, messages, **settings):
    """The steps of a greedy answer."""
    return list(zoo.chat(loaded, messages, temperature=0.0, **settings))


def text_of(steps):
    return "".join(step.text for step in steps)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_their_text(path, loaded, tokenizer, text):
    ids = loaded.tokenizer.encode(text)
    assert ids == tokenizer.encode(text)
    assert loaded.tokenizer.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids)


@pytest.mark.parametrize("messages", [CHAT, CHAT[1:], CHAT[1:2]])
def test_the_chat_template(loaded, tokenizer, messages):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert render_messages(loaded, messages) == text
    assert encode_messages(loaded, messages) == tokenizer.encode(text)


def test_logits(loaded, folder, reference, tokenizer):
    floats = zoo.load(folder)
    for text in [*TEXTS[:4], PROSE.read_text(encoding="utf-8")[:600]]:
        ids = tokenizer.encode(text)
        expected = logits_of(reference, ids)
        for one in (loaded, floats):
            assert difference(one.model(mx.array([ids])), expected) <= TOLERANCE, text


def test_the_greedy_text_is_that_of_transformers(loaded, reference, tokenizer):
    ids = encode_messages(loaded, CHAT[1:2])
    found = zoo.generate(loaded, ids, temperature=0.0, max_tokens=24)
    expected = reference.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=24)[0, len(ids) :]
    assert found.tokens == expected.tolist()
    assert (
        found.text
        == tokenizer.decode(expected, skip_special_tokens=True)
        == "The capital of France is Paris."
    )


@pytest.mark.parametrize("turns", [6, pytest.param(len(QUESTIONS), marks=pytest.mark.nightly)])
def test_a_turn_of_a_chat_computes_what_is_new(loaded, reference, monkeypatch, turns):
    read, backbone = [], type(loaded.model).backbone

    def noting(model, tokens, *arguments, **more):
        read.extend(tokens[0].tolist() if tokens.shape[1] > 1 else [])
        return backbone(model, tokens, *arguments, **more)

    monkeypatch.setattr(type(loaded.model), "backbone", noting)
    settings = {"temperature": 0.0, "max_tokens": 8}
    session = ChatSession(loaded, settings=settings, prompt_cache=zoo.PromptCache(loaded))
    ids, answers = [], []
    for question in QUESTIONS[:turns]:
        read.clear()
        steps = list(session.answer(question))
        prompt = steps[0].prompt
        assert prompt.cached_tokens >= len(ids) - 1  # the last token of an answer may not have been run
        ids = [*ids[: prompt.cached_tokens], *read]
        assert len(ids) == prompt.tokens
        answers += range(len(ids), len(ids) + len(steps))
        ids += [step.token for step in steps]
    text = render_messages(loaded, session.conversation.messages[:-1])
    assert len(session.conversation.messages) == 2 * turns
    assert loaded.tokenizer.decode(ids, skip_special_tokens=False).startswith(text)
    assert lost(reference, ids)[[at - 1 for at in answers]].max() <= TIE  # in one pass, with nothing cached


def test_a_tool_is_called_and_its_result_answered(loaded, monkeypatch):
    def temperature(city: str) -> str:
        """The temperature in a city."""
        return {"Oslo": "12 degrees"}[city]

    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    call = {"name": {"const": "temperature"}, "arguments": city | {"additionalProperties": False}}
    schema = {"type": "object", "properties": call, "required": list(call), "additionalProperties": False}
    grammar = f'start: "<tool_call>\\n" call "\\n</tool_call>"\ncall: %json {json.dumps(schema)}'
    monkeypatch.setattr(loaded.tokenizer, "chat_template", TOOL_TEMPLATE)
    messages = [{"role": "user", "content": "How warm is it in Oslo?"}]
    steps = answered(loaded, messages, tools=[temperature], grammar=grammar)
    (asked,) = [call for step in steps for call in step.tool_calls]
    assert (asked.name, asked.arguments, text_of(steps)) == ("temperature", {"city": "Oslo"}, "")
    messages += [
        {"role": "assistant", "content": "", "tool_calls": [asked.to_json()]},
        {"role": "tool", "tool_call_id": asked.id, "content": temperature(**asked.arguments)},
    ]
    steps = answered(loaded, messages, tools=[temperature], max_tokens=32)
    assert "Oslo is 12 degrees" in text_of(steps) and not any(step.tool_calls for step in steps)


def test_json_by_a_schema(loaded):
    kinds = ["capital", "port", "town"]
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "population": {"type": "integer", "minimum": 1, "maximum": 99_999_999},
            "kinds": {"type": "array", "items": {"enum": kinds}, "minItems": 1, "maxItems": 2},
        },
        "required": ["city", "population", "kinds"],
        "additionalProperties": False,
    }
    steps = answered(loaded, [{"role": "user", "content": "Describe Paris as JSON."}], json_schema=schema)
    found = json.loads(text_of(steps))
    assert list(found) == ["city", "population", "kinds"] and steps[-1].finish_reason == "stop"
    assert found["city"] == "Paris"
    assert type(found["population"]) is int and 1 <= found["population"] <= 99_999_999
    assert 1 <= len(found["kinds"]) <= 2 and set(found["kinds"]) <= set(kinds)


@pytest.mark.parametrize("drafts", ["prompt_lookup", "draft_model"])
def test_drafts_change_nothing(loaded, packed, reference, drafts):
    text = "Repeat this: one fish, two fish, red fish, blue fish, old fish, new fish."
    ids = encode_messages(loaded, [{"role": "user", "content": text}])
    how = {"prompt_lookup": 4} if drafts == "prompt_lookup" else {"draft_model": zoo.load(packed[8])}
    *steps, last = zoo.stream(loaded, ids, temperature=0.0, max_tokens=20, **how)
    assert last.drafted.accepted > 0
    is_greedy(reference, ids, [step.token for step in (*steps, last)])


def test_eight_prompts_side_by_side_are_as_alone(loaded, reference):
    together = zoo.batch(loaded, PROMPTS, temperature=0.0, max_tokens=12)
    assert len({answer.text for answer in together}) == len(PROMPTS)
    for prompt, answer in zip(PROMPTS, together, strict=True):
        is_greedy(reference, loaded.tokenizer.encode(prompt), answer.tokens)
    alone = [zoo.generate(loaded, prompt, temperature=0.0, max_tokens=12).tokens for prompt in PROMPTS[:3]]
    assert alone == [answer.tokens for answer in together[:3]]


@pytest.mark.parametrize("bits", [8, 4])
def test_what_is_quantized_means_the_same_to_mlx_lm(packed, tokenizer, bits):
    model, _ = mlx_lm.load_model(packed[bits])
    ids = mx.array([tokenizer.encode(PROMPTS[0])])
    expected = model(ids).astype(mx.float32)
    far = mx.abs(zoo.load(packed[bits]).model(ids) - expected).max() / (expected.max() - expected.min())
    assert far.item() <= TOLERANCE


def test_the_gguf_file_in_both_layouts(path, loaded, reference, tokenizer, tmp_path):
    ids = tokenizer.encode(PROMPTS[0])
    expected = logits_of(reference, ids)
    mlx = converted(path, tmp_path / "mlx", "--dtype", "float32")
    theirs, _ = mlx_lm.load_model(mlx)
    hf = converted(path, tmp_path / "hf", "--layout", "hf", "--dtype", "float32")
    again = AutoModelForCausalLM.from_pretrained(hf).eval()
    for found in (zoo.load(mlx).model, theirs, zoo.load(hf).model):
        assert difference(found(mx.array([ids])), expected) <= TOLERANCE
    assert float((logits_of(again, ids) - expected).abs().max()) <= TIE
    for place in (mlx, hf):
        assert AutoTokenizer.from_pretrained(place).encode(PROMPTS[0]) == ids


def test_perplexity_by_bits(path, folder, packed):
    text = PROSE.read_text(encoding="utf-8")
    gguf, floats, eight, four = (
        perplexity(zoo.load(source), text, limit=250).nats_per_token
        for source in (path, folder, packed[8], packed[4])
    )
    assert gguf == pytest.approx(floats, abs=1e-4)
    assert 2.5 < floats < 4
    assert abs(eight - floats) < 0.02  # nats: rounding, either way
    assert floats + 0.1 < four < floats + 0.8


def test_the_command_line_shows_what_the_model_does(path, tmp_path):
    prompt = ("The capital of France is", "--raw", "--max-tokens", "2", "--json")
    seen = json.loads(command("trace", path, *prompt))
    assert seen["text"] == " Paris." and len(seen["layers"]) == 30
    paris, last = (
        seen["decisions"][0]["token"],
        [lens for lens in seen["lens"] if len(lens["tokens"]) > 4][-1],
    )
    assert last["tokens"][4][0] == paris and last["probabilities"][4][0] > 0.5
    shown = command("tokenize", path, "The 中国 1234")
    assert "504" in shown and "49,152" in shown
    shown = command("compare", path, "llama:8b")
    assert "8 key/value heads instead of 3" in shown and "30" in shown
    (tmp_path / "text.txt").write_text(PROSE.read_text(encoding="utf-8")[:1500], encoding="utf-8")
    (found,) = json.loads(command("perplexity", path, tmp_path / "text.txt", "--json"))["models"]
    assert 1 < found["bits_per_byte"] < 2
    short = ("--only", "decode", "--runs", "1", "--prompt", "16", "--new", "4")
    found = json.loads(command("bench", path, *short, "--json"))
    assert found["engines"]["zoo"]["decode_rate"] > 0


def test_the_readmes_recording_is_what_the_commands_print(path, tmp_path, monkeypatch):
    (tmp_path / "smollm2.gguf").symlink_to(path)
    with recorder(monkeypatch) as recording:
        shown, printed = shown_and_printed(recording, "real_model.svg", tmp_path)
    assert shown == printed, "run: python tools/recording.py real_model.svg"
    assert "The capital of France is Paris." in shown
