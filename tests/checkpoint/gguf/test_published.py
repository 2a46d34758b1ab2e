"""Kinds of GGUF files that people met, by project and number of a report, made as their writers make them.

| Reported to | What | Here |
| --- | --- | --- |
| llama.cpp 10814 | Phi-4: a sliding window of 0 | there is none |
| llama.cpp 24823 | Phi-3.5 and Phi-4-mini: rope_factors_long, rope_factors_short | LongRoPE |
| transformers 31429 | tokenizer.chat_template.tool_use | used with tools |
| transformers 32136 | Phi-3: special tokens take the line end after them | so they do |
| llama.cpp 7799 | the file of the part that reads images, alone or beside the model | refused; passed over |
| llama.cpp 3953 | an adapter | refused |
| ollama 3010, MiniCPM 250 | a pointer of Git LFS | refused |
| llama.cpp 3358 | a web page | refused |
| llama.cpp 3905 | a GGML file | refused |
| llama.cpp 3917 | a vocabulary alone | refused |
| llama.cpp 10757 | Q4_0 in the order of a processor | refused |
| textgen 6187 | a piece of a file (.gguf.part1of2) | refused |
| llama.cpp 27349 | Ollama's own conversions of Gemma | refused |
| corrected by llama.cpp's loader | <end_of_turn> is called a normal token | it ends an answer |
| llama.cpp 19769, 23563 | NVFP4 with a scale for each matrix in a tensor of its own | multiplied |
| mlx-examples 992 | what mlx-lm exports | read (tests/parity/test_gguf_tokenizers.py) |
"""

import math
import struct

import gguf
import mlx.core as mx
import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2

import zoo
from tests.helpers import gguf_files, gguf_tokenizers
from tests.helpers.gguf_files import difference
from zoo.checkpoint.convert import convert
from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer
from zoo.errors import ZooError

SHORT, LONG = [1.0] * 4 + [1.5] * 4, [1.0] * 2 + [8.0] * 6
LONGROPE = {
    "max_position_embeddings": 2048,
    "original_max_position_embeddings": 512,
    "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
}


@pytest.mark.filterwarnings("error")
def test_a_window_of_zero_is_none(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "phi3", sliding_window=None)
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        extra=lambda writer: writer.add_uint32("phi3.attention.sliding_window", 0),
    )
    loaded, original = zoo.load(path), zoo.load(folder)
    assert loaded.recipe == original.recipe
    assert difference(loaded, original) <= 1e-5


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("llama", "attention.sliding_window"),
        ("gemma2", "final_logit_softcapping"),
        ("granite", "residual_scale"),
        ("granite", "logit_scale"),
        ("deepseek-v3", "expert_weights_scale"),
    ],
)
def test_zeros_stand_for_none(tmp_path, name, key):
    """As if the key were not there; where config.json has another default, as one."""
    numbers = {"first_k_dense_replace": 1} if name == "deepseek-v3" else {}
    folder = gguf_files.random_folder(tmp_path / "folder", name, vocab_size=200, **numbers)

    def recipe(zero):
        def extra(writer):
            full = f"{writer.arch}.{key}"
            writer.add_float32(full, 0.0) if key.endswith(("scale", "capping")) else writer.add_uint32(
                full, 0
            )

        path = tmp_path / f"{zero}.gguf"
        return zoo.load(gguf_files.write(path, folder, drop=[key], extra=extra if zero else None)).recipe

    zero, absent = recipe(True), recipe(False)
    if name == "gemma2":  # whose config.json has a cap where it does not say
        assert (zero.head.name, absent.head.name) == ("logits", "capped-logits")
    else:
        assert zero == absent


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("partial", [1.0, 0.75])
def test_longrope(tmp_path, partial):
    """The factors are tensors; the magnitude is a key; Phi-4-mini turns three quarters of each head."""
    numbers = LONGROPE | ({} if partial == 1 else {"partial_rotary_factor": 0.75, "head_dim": 16})
    if partial != 1:
        rows = {"short_factor": SHORT[2:], "long_factor": LONG[2:]}
        numbers["rope_scaling"] = LONGROPE["rope_scaling"] | rows
    scaling = numbers["rope_scaling"]
    folder = gguf_files.random_folder(tmp_path / "folder", "phi3", sliding_window=None, **numbers)

    def extra(writer):
        writer.add_uint32("phi3.attention.sliding_window", 0)
        writer.add_rope_scaling_orig_ctx_len(512)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(4) / math.log(512)))
        writer.add_rope_dimension_count(int(16 * partial))
        for kind in ("long", "short"):
            factors = np.array(scaling[f"{kind}_factor"], np.float32)
            gguf_files.add_tensor(writer, f"rope_factors_{kind}.weight", factors)

    path = gguf_files.write(tmp_path / "model.gguf", folder, extra=extra, drop=["rope.dimension_count"])
    loaded, original = zoo.load(path), zoo.load(folder)
    found, wanted = (model.recipe.layers[0].mixer.rope for model in (loaded, original))
    assert found.scaling.magnitude == pytest.approx(wanted.scaling.magnitude, rel=1e-6)
    assert found.scaling.change(magnitude=1.0) == wanted.scaling.change(magnitude=1.0)
    assert found.dims == wanted.dims and found.theta == wanted.theta
    for length in (40, 530):
        assert difference(loaded, original, length) <= 1e-4
    tokens = mx.arange(530)[None] % 200
    assert not mx.allclose(loaded.model(tokens)[:, :500], loaded.model(tokens[:, :500]), atol=1e-3)


def test_one_list_of_factors_alone_is_refused_by_name(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "phi3", sliding_window=None)
    row = np.ones(8, np.float32)
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        extra=lambda writer: gguf_files.add_tensor(writer, "rope_factors_long.weight", row),
    )
    with pytest.raises(
        ZooError, match=r"rope_factors_short\.weight and rope_factors_long\.weight it has rope_factors_long"
    ):
        zoo.load(path)


@pytest.mark.filterwarnings("error")
def test_biases_of_queries_keys_and_values_alone(tmp_path):
    """Qwen's weights under LLaMA's name: no bias follows the attention."""
    numbers = {"attention_bias": True, "attention_out_bias": False}
    folder = gguf_files.random_folder(tmp_path / "folder", "llama", **numbers)
    loaded, original = zoo.load(gguf_files.write(tmp_path / "model.gguf", folder)), zoo.load(folder)
    mixer = loaded.recipe.layers[0].mixer
    assert (mixer.bias, mixer.output_bias) == (True, False) and loaded.recipe == original.recipe
    assert difference(loaded, original) <= 1e-5
    qwen = gguf_files.random_folder(tmp_path / "qwen", "qwen2", use_sliding_window=False)
    (qwen / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert difference(loaded, zoo.load(qwen)) <= 1e-5


@pytest.mark.filterwarnings("error")
def test_templates_by_name(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "llama", vocab_size=300)
    gguf_files.small_tokenizer(folder, 300)
    templates = {"default": "D", "tool_use": "T", "rag": "R"}
    named = [{"name": name, "template": text} for name, text in templates.items()]
    path = gguf_files.write(
        tmp_path / "model.gguf", folder, extra=lambda writer: writer.add_chat_template(named)
    )
    convert(path, tmp_path / "out")
    for source in (path, tmp_path / "out"):
        tokenizer = zoo.load(source).tokenizer
        assert tokenizer.chat_templates == templates
        assert (tokenizer.chat_template, tokenizer.for_tools().chat_template) == ("D", "T")


@pytest.mark.filterwarnings("error")
def test_special_tokens_of_phi_3_take_the_white_space_after_them(tmp_path):
    """All but three; those of a sentencepiece model of another family do not."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(gguf_tokenizers.train_pieces(tmp_path, ["Hello"]).read_bytes())
    pieces = {piece.piece: (piece.score, piece.type) for piece in proto.pieces}
    pieces |= dict.fromkeys(("<|endoftext|>", "<|user|>", "<|end|>", "<|assistant|>"), (-1000.0, 3))
    keys = {
        "model": "llama",
        "tokens": list(pieces),
        "scores": [score for score, _ in pieces.values()],
        "token_type": [kind for _, kind in pieces.values()],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": False,
    }
    text, same = "<|user|>\nHello<|end|>\n<|assistant|>\n", "<|user|>Hello<|end|><|assistant|>"
    phi = load_gguf_tokenizer(
        gguf_tokenizers.write(tmp_path / "phi.gguf", keys | {"general.architecture": "phi3"}), 2000
    )
    assert phi.encode(text) == phi.encode(same)
    assert phi.encode("<|endoftext|>\n<|user|>") != phi.encode("<|endoftext|><|user|>")
    llama = load_gguf_tokenizer(gguf_tokenizers.write(tmp_path / "llama.gguf", keys), 2000)
    assert llama.encode(text) != llama.encode(same)


@pytest.mark.filterwarnings("error")
def test_the_end_of_a_turn_is_special_where_a_file_calls_it_normal(tmp_path):
    """As the first files of Gemma 3's quantization-aware training do: it is matched whole, not shown, and ends an answer."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(gguf_tokenizers.train_pieces(tmp_path, ["Hello"]).read_bytes())
    keys = {
        "model": "llama",
        "tokens": [*(piece.piece for piece in proto.pieces), "<end_of_turn>"],
        "scores": [*(piece.score for piece in proto.pieces), -1000.0],
        "token_type": [*(piece.type for piece in proto.pieces), 1],
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    tokenizer = load_gguf_tokenizer(gguf_tokenizers.write(tmp_path / "a.gguf", keys), 2000)
    end = len(proto.pieces)
    assert tokenizer.encode("Hello<end_of_turn>")[-1] == end
    assert end in tokenizer.eos_ids and tokenizer.decode([end]) == ""


def test_berts_normalizer_is_as_the_file_says(tmp_path):
    """`tokenizer.ggml.normalizer`, whatever the vocabulary has."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁Café", "▁café", "▁cafe"]
    keys = {
        "general.architecture": "bert",
        "model": "bert",
        "tokens": tokens,
        "token_type": [3] * 4 + [1] * 3,
    }
    keys |= {"unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3}

    def ids(**flags):
        values = {f"normalizer.{name}": value for name, value in flags.items()}
        more = {f"tokenizer.ggml.{name}": value for name, value in values.items()}
        header = gguf_tokenizers.write(tmp_path / "a.gguf", keys | more)
        return load_gguf_tokenizer(header, 10).encode("Café", special_tokens=False)

    assert ids() == ids(lowercase=False) == [4]
    assert ids(lowercase=True, strip_accents=False) == [5]
    assert ids(lowercase=True) == ids(lowercase=True, strip_accents=True) == [6]


@pytest.mark.parametrize(("name", "tensor"), [("llama", "blk.1.ffn_up"), ("mixtral", "blk.1.ffn_up_exps")])
def test_the_scales_of_nvfp4_matrices_multiply_them(tmp_path, name, tensor):
    """One number for a matrix, one for each expert's; those of inputs are for programs that compute in NVFP4."""
    numbers = {"vocab_size": 200} | ({} if name == "llama" else {"sliding_window": None})
    folder = gguf_files.random_folder(tmp_path / "folder", name, **numbers)
    recipe = zoo.load(folder).recipe
    part = recipe.layers[1].feedforward
    outer = (part.hidden,) if name == "llama" else (part.experts.count, part.experts.hidden)
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (*outer, recipe.dim // 64, 36), np.uint8)
    blocks[..., :4] = random.integers(48, 64, blocks[..., :4].shape)  # scales of about one
    raw = blocks.reshape(*outer, -1)
    factors = random.uniform(0.001, 0.01, outer[:-1] or 1).astype(np.float32)
    kind = gguf.GGMLQuantizationType.NVFP4

    def extra(writer):
        writer.add_tensor(f"{tensor}.weight", raw, raw_dtype=kind)
        writer.add_tensor(f"{tensor}.scale", factors)
        writer.add_tensor(f"{tensor}.input_scale", factors)

    path = gguf_files.write(tmp_path / "model.gguf", folder, drop=[f"{tensor}.weight"], extra=extra)
    with pytest.warns(UserWarning, match="1 of NVFP4"):
        model = zoo.load(path, dtype="float32").model
    found = model.layers[1].feedforward
    found = (found if name == "llama" else found.experts).up.weight
    wanted = gguf.dequantize(raw, kind) * factors.reshape(-1, *[1] * len(outer))
    assert np.allclose(np.array(found), wanted.reshape(found.shape), rtol=1e-6)


def header_of(path, **keys):
    return gguf_tokenizers.write(path, {f"general.{key}": value for key, value in keys.items()}).path


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("a.gguf", b"<!doctype html><html>", "a web page in the place of the file"),
        ("a.gguf", b"tjgg\3\0\0\0", "a GGML file, the format before GGUF"),
        (
            "a.gguf",
            {"architecture": "clip", "type": "mmproj"},
            "reads images; name the file of its language model",
        ),
        ("a.gguf", {"architecture": "clip"}, "reads images; name the file of its language model"),
        ("a.gguf", {"architecture": "llama", "type": "adapter"}, "an adapter, which is not read from GGUF"),
        ("a.gguf", {"architecture": "llama", "type": "imatrix"}, "an importance matrix"),
        ("a.gguf", {"architecture": "llama"}, "a file without weights"),
    ],
)
def test_what_is_no_model_is_refused_by_what_it_is(tmp_path, name, content, words):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        header_of(path, **content)
    with pytest.raises(ZooError) as caught:
        zoo.load(path)
    assert str(caught.value).startswith(str(path)) and words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_piece_of_a_file_is_refused_by_that(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "llama", vocab_size=200)
    path = gguf_files.write(tmp_path / "model.gguf", folder)
    piece = tmp_path / "model.gguf.part1of2"
    piece.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ZooError, match=r"part1of2: a piece of a file; join all pieces"):
        zoo.load(piece)


def test_a_type_that_was_taken_away_is_refused_by_what_it_was(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "llama", vocab_size=200)
    path = gguf_files.write(tmp_path / "model.gguf", folder)
    data, name = path.read_bytes(), b"blk.0.attn_norm.weight"
    at = data.index(name) + len(name) + 4 + 8  # behind the number of axes and the one axis
    path.write_bytes(data[:at] + struct.pack("<I", 31) + data[at + 4 :])
    with pytest.raises(
        ZooError, match=r"attn_norm\.weight is of the unknown type 31, a Q4_0 in the order of a processor"
    ):
        zoo.load(path)


def test_ollamas_own_conversions_are_refused_by_a_key_of_theirs(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "gemma3", vocab_size=200)
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        extra=lambda writer: writer.add_float32("gemma3.rope.global.freq_base", 1e6),
    )
    with pytest.raises(
        ZooError, match=r"rope\.global\.freq_base is of Ollama's own conversion; use a file of llama\.cpp"
    ):
        zoo.load(path)


@pytest.mark.filterwarnings("error")
def test_the_part_that_reads_images_is_passed_over_in_a_folder(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "llama", vocab_size=200)
    (tmp_path / "files").mkdir()
    header_of(tmp_path / "files/mmproj-model-f16.gguf", architecture="clip", type="mmproj")
    path = gguf_files.write(tmp_path / "files/model-Q8_0.gguf", folder)
    assert zoo.load(tmp_path / "files").folder == path
