"""Folders that were valid until something in them changed: a model that runs, or one line; never anything else.

ZOO_FUZZ=5000 tries so many of them, others each time.
"""

import copy
import faulthandler
import json
import os
import resource
import shutil
import signal
import struct
import tempfile
import warnings
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import zoo
from zoo.assemble import assemble
from zoo.checkpoint.open import make_recipe
from zoo.checkpoint.parameters import export
from zoo.checkpoint.sentence_vectors import pooling_of
from zoo.checkpoint.shards import SaveOptions, write
from zoo.errors import ZooError
from zoo.host.registry import default_registry
from zoo.testing import numbers_of, randomise
from zoo.tokenizer.chat import render_chat

MORE = "ZOO_FUZZ" in os.environ
EXAMPLES = int(os.environ.get("ZOO_FUZZ", 60))
SECONDS = 300  # for one folder: far beyond what a busy machine needs
MEMORY = 2**30  # bytes that all folders together may add

SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=2048)
FAMILIES = {"llama": SIZES, "bert": SIZES, "gpt2": dict(n_embd=32, n_layer=2, vocab_size=2048)}

BESIDE = {
    "generation_config.json": '{"do_sample": true, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.1, '
    '"eos_token_id": [0, 5], "max_new_tokens": 4, "num_beams": 2, "repetition_penalty": 1.1, "bad_words_ids": [[4]]}',
    "chat_template.jinja": "{% for m in messages %}{{ m.content }}{% endfor %}",
    "modules.json": '[{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"}]',
    "sentence_bert_config.json": '{"max_seq_length": 8}',
    "1_Pooling/config.json": '{"pooling_mode_mean_tokens": true}',
}

# What a change puts in the place of a value, and under which keys it puts one where none was.
VALUES = [
    *json.loads(
        r"""[null, true, false, 0, 1, -1, 2, 3, 7, 64, 1000000000, 2147483648, 9223372036854775808, -1000000000000000000,
        0.5, -0.5, 1.5, 1e-30, 1e-320, 1e15, 1e30, 1e308, NaN, Infinity, -Infinity, "", "x", "llama", "silu", "F32",
        "BF16", "I64", "U8", "../x", "/etc/passwd", "a\u0000b", "é\n", "\ud800", [], {}, [1], [[]], [null], [-1, -1],
        [1000000000000000000], {"a": 1}, {"content": "x"}, {"rope_type": "yarn"}, {"rope_type": "dynamic"},
        {"rope_type": "llama3", "factor": 8.0}, {"rope_type": "linear", "factor": 1e30}]"""
    ),
    *(10**30, 10**400, "9" * 5000, ["x"] * 100),
]
KEYS = [
    *(
        "rope_scaling",
        "rope_parameters",
        "rope_theta",
        "head_dim",
        "sliding_window",
        "layer_types",
        "mlp_bias",
    ),
    *("attention_bias", "hidden_act", "tie_word_embeddings", "activation_function", "bos_token_id"),
    *("eos_token_id", "pad_token_id", "chat_template", "added_tokens_decoder", "tokenizer_class"),
    *("add_bos_token", "clean_up_tokenization_spaces", "extra_special_tokens", "min_length", "max_length"),
    *("suppress_tokens", "forced_bos_token_id", "no_repeat_ngram_size", "length_penalty", "early_stopping"),
]
NAMES = ["x", "model_type", "__metadata__", "lm_head.weight", ""]
TEMPLATES = [
    "{% for a in range(10**5) %}{% for b in range(10**5) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ messages.__class__ }}",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
]
OFTEN = {"config.json": 9, "tokenizer.json": 4, "tokenizer_config.json": 4, "generation_config.json": 4}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small valid folders with all that one may hold; the first has its weights in shards."""
    known, made = default_registry(), []
    pocket = known.architecture("llama").preset("pocket").folder
    for family, sizes in FAMILIES.items():
        path = tmp_path_factory.mktemp(family)
        architecture = known.architecture(family)
        numbers = {**numbers_of(architecture), **sizes}
        recipe = make_recipe(architecture, numbers, default_registry())
        model = assemble(recipe, known)
        randomise(model)
        config = {"model_type": architecture.model_types[0], **numbers}
        write(
            path, export(model, architecture, recipe), config, SaveOptions(shard=10**9 if made else 100_000)
        )
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(pocket / file, path / file)
        if family == "gpt2":  # the files that came before tokenizer.json
            told = json.loads((path / "tokenizer.json").read_text())["model"]
            (path / "tokenizer.json").unlink()
            (path / "vocab.json").write_text(json.dumps(told["vocab"], ensure_ascii=False))
            (path / "merges.txt").write_text("\n".join(map(" ".join, told["merges"])))
            (path / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
            (path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
        for file, text in BESIDE.items():
            (path / file).parent.mkdir(exist_ok=True)
            (path / file).write_text(text)
        made.append(path)
    return made


def changed(folder, draw):
    """Change one file of a folder, or two; their names, and whether the weights may be other numbers now."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    often = [path for path in files for _ in range(OFTEN.get(path.name, 1))]
    paths = draw(st.lists(st.sampled_from(often), min_size=1, max_size=2, unique=True))
    for path in paths:
        change(path, files, draw)
    return [path.name for path in paths], any(path.suffix == ".safetensors" for path in paths)


def change(path, files, draw):
    """Change one file, in a way that its kind allows."""
    kinds = [other_bytes, None]
    kinds += {".json": [other_json] * 6, ".safetensors": [other_header] * 3}.get(path.suffix, [])
    kinds += [other_template] * 2 if path.suffix == ".jinja" else []
    kind = draw(st.sampled_from(kinds))
    if kind is None:
        exchange(path, draw(st.sampled_from(files)), draw)
    else:
        data = kind(path.read_bytes(), draw)
        path.unlink()  # it is the same file as that of the folder which this is a copy of
        path.write_bytes(data)


def exchange(path, other, draw):
    """Something else in the place of a file: nothing, another file, a link, a folder, a pipe."""
    how = draw(st.sampled_from(["remove", "copy", "link", "link out", "folder", "pipe", "empty"]))
    data = other.read_bytes() if other.is_file() and not other.is_symlink() else b""
    path.unlink()
    if how == "copy":
        path.write_bytes(data)
    elif how == "link":
        path.symlink_to(os.path.relpath(other, path.parent))
    elif how == "link out":
        path.symlink_to(draw(st.sampled_from(["/etc/passwd", "../../x", "/dev/zero", "/proc/self/mem", "."])))
    elif how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "empty":
        path.touch()


def other_bytes(data, draw):
    data = bytearray(data)
    # Most of a file is numbers, of which any will do: half of the changes are near its beginning.
    place = draw(st.integers(0, len(data)) | st.integers(0, min(len(data), 400)))
    how = draw(st.sampled_from(["flip", "insert", "remove", "cut", "repeat"]))
    if how == "flip" and place < len(data):
        data[place] ^= draw(st.integers(1, 255))
    elif how == "insert":
        data[place:place] = draw(st.binary(min_size=1, max_size=9))
    elif how == "remove":
        del data[place : place + draw(st.integers(1, 99))]
    elif how == "cut":
        del data[place:]
    else:
        data += data[place:]
    return bytes(data)


def other_template(data, draw):
    return draw(st.sampled_from(TEMPLATES)).encode()


def other_header(data, draw):
    """A safetensors file whose header tells otherwise of its tensors; the length in front is the new header's."""
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = other_json(data[8:end], draw)
    return struct.pack("<Q", len(header)) + header + data[end:]


def other_json(data, draw):
    """The JSON of a value that differs in one place."""
    value = copy.deepcopy(json.loads(data))
    # The outermost object matters most, and a vocabulary has thousands of entries.
    places = [value, *containers(value)[:20]]
    place = draw(st.sampled_from(places) | st.just(value))
    keys = (list(place) if isinstance(place, dict) else list(range(len(place))))[:60]
    if not keys:
        return json.dumps(draw(st.sampled_from(VALUES))).encode()
    key, other = draw(st.sampled_from(keys)), draw(st.sampled_from(VALUES))
    how = draw(st.sampled_from([*["replace"] * 4, "remove", "rename", "add", "swap", "twice"]))
    if how == "remove":
        del place[key]
    elif how == "rename" and isinstance(place, dict):
        place[draw(st.sampled_from(NAMES))] = place.pop(key)
    elif how == "add" and isinstance(place, dict):
        place[draw(st.sampled_from(KEYS))] = other
    elif how == "swap":
        second = draw(st.sampled_from(keys))
        place[key], place[second] = place[second], place[key]
    elif how == "twice" and place is value and isinstance(value, dict):
        return f"{json.dumps(value)[:-1]}, {json.dumps(key)}: {json.dumps(other)}}}".encode()
    else:
        place[key] = other
    return json.dumps(value).encode()


def containers(value):
    """The objects and lists within a JSON value that are not empty."""
    found = []
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list) and inner:
            found += [inner, *containers(inner)]
    return found


def used(folder, templated):
    """Load a folder, do all that can be done with it, and give its logits."""
    loaded = zoo.load(folder)
    tokens = mx.array([[1, 2, 3]])
    logits = loaded.model(*[tokens] * (2 if loaded.architecture.task == "translate" else 1))
    logits = logits[0] if isinstance(logits, tuple) else logits
    mx.eval(logits)
    if loaded.architecture.task in ("generate", "denoise", "translate"):
        list(zoo.stream(loaded, [1, 2, 3], max_tokens=2))
    pooling_of(folder)
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        return logits
    ids = tokenizer.encode("The capital, 中国 \n of\t2 <|endoftext|>")
    tokenizer.decode([*ids, 10**6])
    text = tokenizer.detokenizer()
    "".join([*map(text.add, ids), text.finish()])
    if loaded.architecture.task != "translate":
        zoo.embed(loaded, ["a b c"])
    if templated and tokenizer.chat_template:
        said = [{"role": "user", "content": "x"}]
        render_chat(tokenizer.chat_template, said, special_tokens=tokenizer.special_tokens)
    return logits


@pytest.fixture
def alarm():
    """Ends what takes longer than some seconds by an error, and the process where Python cannot end it."""

    def late(*_):
        pytest.fail(f"no end after {SECONDS} s")

    def start(seconds):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        faulthandler.dump_traceback_later(4 * seconds, exit=True)

    before = signal.signal(signal.SIGALRM, late)
    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_a_folder_with_a_change_is_right_or_refused(folders, alarm):
    for folder in folders:
        with warnings.catch_warnings(action="ignore"):
            assert mx.all(mx.isfinite(used(folder, templated=False))), (
                "the folder was wrong before any change"
            )

    @settings(
        max_examples=EXAMPLES,
        deadline=None,  # a clock's: `alarm` has one that a busy machine keeps
        derandomize=not MORE,
        phases=[
            Phase.generate,
            *([Phase.shrink] if MORE else []),
        ],  # what hangs would hang for each smaller example
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def holds(data):
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings(action="ignore"):
            folder = Path(place) / "model"
            shutil.copytree(data.draw(st.sampled_from(folders)), folder, copy_function=os.link)
            names, numbers = changed(folder, data.draw)
            alarm(SECONDS)
            try:
                logits = used(folder, any("chat" in name or "tokenizer_config" in name for name in names))
            except ZooError as error:
                message = str(error)
                assert message and "\n" not in message and len(message) <= 2000
            else:
                assert numbers or mx.all(mx.isfinite(logits)), "logits that are not finite"

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    holds()
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert more < MEMORY, f"{more / 1e6:.0f} MB more at the peak"
