"""Folders that were valid until something in them changed: a model that runs, or one line; never anything else.

ZOO_FUZZ=5000 tries more of them, in an order of its own each time.
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zoo
from zoo.assemble import assemble
from zoo.chat import render_chat
from zoo.checkpoint.save import write
from zoo.checkpoint.weights import export
from zoo.errors import ZooError
from zoo.loading import make_recipe
from zoo.registry import registry
from zoo.sentences import pooling_of
from zoo.testing import numbers_of, randomise

EXAMPLES = int(os.environ.get("ZOO_FUZZ", 150))
SECONDS = 20  # for one folder, on a slow machine; a template alone may take 5
MEMORY = 2**30  # bytes that all folders together may add

VALUES = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 10**9, 10**18, 10**30, 10**400, -(10**18), 2**31, 2**63),
    *(0.5, -0.5, 1.5, 1e-30, 1e-320, 1e30, 1e308, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "x",
        "llama",
        "silu",
        "F32",
        "BF16",
        "I64",
        "U8",
        "../x",
        "/etc/passwd",
        "a\0b",
        "é\n",
        "\ud800",
        "9" * 5000,
    ),
    *(
        [],
        {},
        [1],
        [[]],
        {"a": 1},
        [None],
        ["x"] * 100,
        [-1, -1],
        [10**18],
        {"content": "x"},
        {"rope_type": "yarn"},
    ),
    *(
        {"rope_type": "llama3", "factor": 8.0},
        {"rope_type": "linear", "factor": 1e30},
        {"rope_type": "dynamic"},
    ),
]
TEXTS = [
    "{% for a in range(10**9) %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ messages.__class__ }}",
    "{{ [[[[1]]]] }}",
]


SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=2048)
FAMILIES = {"llama": SIZES, "bert": SIZES, "gpt2": dict(n_embd=32, n_layer=2, vocab_size=2048)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small valid folders with all that one may hold; the first has its weights in shards."""
    known, made = registry(), []
    pocket = known.architecture("llama").preset("pocket").folder
    for family, sizes in FAMILIES.items():
        path = tmp_path_factory.mktemp(family)
        architecture = known.architecture(family)
        numbers = {**numbers_of(architecture), **sizes}
        recipe = make_recipe(architecture, numbers)
        model = assemble(recipe, known)
        randomise(model)
        config = {"model_type": architecture.model_types[0], **numbers}
        write(path, export(model, architecture, recipe), config, shard=10**9 if made else 100_000)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(pocket / file, path / file)
        if family == "gpt2":  # the files that came before tokenizer.json
            told = json.loads((path / "tokenizer.json").read_text())["model"]
            (path / "vocab.json").write_text(json.dumps(told["vocab"], ensure_ascii=False))
            (path / "merges.txt").write_text("\n".join(map(" ".join, told["merges"])))
            (path / "tokenizer.json").unlink()
            (path / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
            (path / "tokenizer_config.json").write_text("{}")
        for file, text in BESIDE.items():
            (path / file).parent.mkdir(exist_ok=True)
            (path / file).write_text(text)
        made.append(path)
    return made


BESIDE = {
    "generation_config.json": '{"do_sample": true, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.1, '
    '"eos_token_id": [0, 5], "max_new_tokens": 4, "num_beams": 2, "repetition_penalty": 1.1, "bad_words_ids": [[4]]}',
    "chat_template.jinja": "{% for m in messages %}{{ m.content }}{% endfor %}",
    "modules.json": '[{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"}]',
    "sentence_bert_config.json": '{"max_seq_length": 8}',
    "1_Pooling/config.json": '{"pooling_mode_mean_tokens": true}',
}


OFTEN = {"config.json": 9, "tokenizer.json": 4, "tokenizer_config.json": 4, "generation_config.json": 4}

# One change of one file. `draw(strategy)` decides what the change is.


def change_bytes(path, draw):
    data = bytearray(path.read_bytes())
    # Most of a file is its weights, which mean nothing to a reader: half of the changes are near its beginning.
    place = draw(st.integers(0, len(data)) | st.integers(0, min(len(data), 400)))
    how = draw(st.sampled_from(["flip", "insert", "remove", "cut", "repeat"]))
    if how == "flip":
        data[place : place + 1] = bytes(
            [data[place] ^ draw(st.integers(1, 255))] if place < len(data) else []
        )
    elif how == "insert":
        data[place:place] = draw(st.binary(min_size=1, max_size=9))
    elif how == "remove":
        del data[place : place + draw(st.integers(1, 99))]
    elif how == "cut":
        del data[place:]
    else:
        data += data[place:]
    return bytes(data)


def containers(value):
    """Every object and list within a JSON value that is not empty, itself included."""
    found = []
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict | list) and one:
            found.append(one)
            stack += one.values() if isinstance(one, dict) else one
    return found


def changed_value(value, draw):
    """JSON text of a value that differs in one place."""
    value = copy.deepcopy(value)
    found = containers(value)
    if not found:
        return json.dumps(draw(st.sampled_from(VALUES)))
    # The outermost ones matter most, and a vocabulary has thousands of entries.
    place = draw(st.sampled_from(found[:20]) if draw(st.booleans()) else st.just(value))
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    key = draw(st.sampled_from(keys[:60]))
    how = draw(st.sampled_from(["replace"] * 4 + ["remove", "rename", "twice", "add", "swap"]))
    if how == "replace":
        place[key] = draw(st.sampled_from(VALUES))
    elif how == "remove":
        del place[key]
    elif how == "rename" and isinstance(place, dict):
        place[draw(st.sampled_from(["x", "model_type", "__metadata__", "lm_head.weight", ""]))] = place.pop(
            key
        )
    elif how == "add" and isinstance(place, dict):
        place[draw(st.sampled_from(KEYS))] = draw(st.sampled_from(VALUES))
    elif how == "swap":
        other = draw(st.sampled_from(keys[:60]))
        place[key], place[other] = place[other], place[key]
    text = json.dumps(value)
    if how == "twice" and isinstance(value, dict):
        text = f"{text[:-1]}, {json.dumps(str(key))}: {json.dumps(draw(st.sampled_from(VALUES)))}}}"
    return text


KEYS = [
    *(
        "rope_scaling",
        "rope_parameters",
        "rope_theta",
        "head_dim",
        "sliding_window",
        "layer_types",
        "quantization",
    ),
    *(
        "quantization_config",
        "attention_bias",
        "mlp_bias",
        "tie_word_embeddings",
        "hidden_act",
        "activation_function",
    ),
    *(
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "chat_template",
        "added_tokens_decoder",
        "tokenizer_class",
    ),
    *(
        "add_bos_token",
        "clean_up_tokenization_spaces",
        "extra_special_tokens",
        "min_length",
        "suppress_tokens",
    ),
    *(
        "forced_bos_token_id",
        "no_repeat_ngram_size",
        "length_penalty",
        "early_stopping",
        "max_length",
        "pooling_mode",
    ),
]


def change_json(path, draw):
    return changed_value(json.loads(path.read_text()), draw).encode("utf-8", "surrogatepass")


def change_header(path, draw):
    """A safetensors file whose header tells of its tensors otherwise; the length in front is that of the new header."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    text = changed_value(json.loads(data[8 : 8 + length]), draw).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def change_text(path, draw):
    return draw(st.sampled_from(TEXTS)).encode()


def changed(folder, draw):
    """Change one file of a folder, or two; their names, and whether the weights may be other numbers now."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    often = [path for path in files for _ in range(OFTEN.get(path.name, 1))]
    paths = draw(st.lists(st.sampled_from(often), min_size=1, max_size=2, unique=True))
    return [path.name for path in paths], any([change(path, files, draw) for path in paths])


def change(path, files, draw):
    """Change one file; whether the weights may be other numbers now."""
    kinds = [change_bytes, exchange]
    if path.suffix == ".json":
        kinds += [change_json] * 6
    if path.suffix == ".safetensors":
        kinds += [change_header] * 3
    if path.suffix == ".jinja":
        kinds += [change_text]
    kind = draw(st.sampled_from(kinds))
    if kind is exchange:
        exchange(path, files, draw)
    else:
        data = kind(path, draw)
        path.unlink()  # the file is shared with the folder that this one is a copy of
        path.write_bytes(data)
    return path.suffix == ".safetensors"


def exchange(path, files, draw):
    """Something else in the place of a file: nothing, another file, a link, a folder, a pipe."""
    other = draw(st.sampled_from(files))
    how = draw(st.sampled_from(["remove", "copy", "link", "link out", "folder", "pipe", "empty"]))
    data = other.read_bytes() if other.is_file() else b""
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


def used(folder, templated):
    """Load a folder and do all that can be done with it; the logits."""
    loaded = zoo.load(folder)
    pooling_of(folder)
    tokens = mx.array([[1, 2, 3]])
    logits = loaded.model(*[tokens] * (2 if loaded.architecture.task == "translate" else 1))
    logits = logits[0] if isinstance(logits, tuple) else logits
    mx.eval(logits)
    if loaded.tokenizer is not None:
        ids = loaded.tokenizer.encode("The capital, 中国 \n of\t2 <|endoftext|>")
        loaded.tokenizer.decode([*ids, 10**6])
        text = loaded.tokenizer.detokenizer()
        "".join([*map(text.add, ids), text.finish()])
        if templated and loaded.tokenizer.chat_template:
            render_chat(
                loaded.tokenizer.chat_template,
                [{"role": "user", "content": "x"}],
                special_tokens=loaded.tokenizer.special_tokens,
            )
    if loaded.architecture.task != "encode":
        list(zoo.stream(loaded, [1, 2, 3], max_tokens=2))
    if loaded.architecture.task != "translate" and loaded.tokenizer is not None:
        zoo.embed(loaded, ["a b c"])
    return logits


@pytest.fixture
def alarm():
    """Ends a test's step by an error after `SECONDS`, and faulthandler the process where Python cannot."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"no end after {SECONDS} s", pytrace=True))
    yield lambda seconds: (
        signal.setitimer(signal.ITIMER_REAL, seconds),
        faulthandler.dump_traceback_later(3 * seconds, exit=True)
        if seconds
        else faulthandler.cancel_dump_traceback_later(),
    )
    signal.signal(signal.SIGALRM, before)


def test_a_folder_with_a_change_is_right_or_refused(folders, alarm):
    for folder in folders:
        with warnings.catch_warnings(action="ignore"):
            assert mx.all(mx.isfinite(used(folder, True))), "the folder was wrong before any change"

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize="ZOO_FUZZ" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=True,
    )
    @given(st.data())
    def holds(data):
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings(action="ignore"):
            folder = Path(place) / "model"
            shutil.copytree(data.draw(st.sampled_from(folders)), folder, copy_function=os.link)
            names, numbers = changed(folder, data.draw)
            alarm(SECONDS)
            try:
                logits = used(
                    folder, any("chat" in name or name == "tokenizer_config.json" for name in names)
                )
            except ZooError as error:
                message = str(error)
                assert message and "\n" not in message and len(message) < 2000, message[:3000]
            else:
                assert numbers or mx.all(mx.isfinite(logits)), "logits are not finite"
            finally:
                alarm(0)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    holds()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert after - before < MEMORY, f"{(after - before) / 1e6:.0f} MB more at its peak"
