"""GGUF files of BERT, T5, Mamba, DeepSeek and current decoders, written as llama.cpp's converter writes them, are their folders' models."""

import json

import gguf
import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import zoo
from tests.helpers import gguf_families, gguf_files
from tests.helpers.gguf_files import difference
from zoo.checkpoint.convert import convert
from zoo.checkpoint.gguf.gguf_checkpoint import GGUFCheckpoint
from zoo.checkpoint.quantized_matrix import join
from zoo.errors import ConfigError, ZooError
from zoo.generation.strategies.embedding import embed
from zoo.host.registry import default_registry
from zoo.weights import invert, matcher

YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
YARN_4 = dict(
    rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0
)
DEEPSEEK = dict(vocab_size=200, first_k_dense_replace=1)
DECODERS = [
    ("mamba", {}),
    ("mamba", {"tie_word_embeddings": False, "use_conv_bias": True, "state_size": 8}),
    ("deepseek-v3", DEEPSEEK),
    ("deepseek-v3", DEEPSEEK | {"q_lora_rank": None, "tie_word_embeddings": False}),
    ("deepseek-v3", DEEPSEEK | {"n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.446}),
    ("deepseek-v3", DEEPSEEK | {"norm_topk_prob": False, "n_shared_experts": 2}),
    ("deepseek-v3", DEEPSEEK | {"n_shared_experts": 0, "rope_scaling": YARN}),
    ("olmo2", {}),
    ("olmo3", {"rope_scaling": YARN_4}),
    ("gemma3", {"num_hidden_layers": 6, "sliding_window_pattern": 6, "query_pre_attn_scalar": 16}),
    ("glm4", {}),
    ("glm4-moe", {"use_qk_norm": False, "attention_bias": False}),
    ("glm4-moe", {"n_shared_experts": 2, "routed_scaling_factor": 2.5}),
    ("minimax-m2", {}),
    ("granite", {}),
    ("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 4}),
    ("phi3", {}),
    ("cohere", {}),
    ("cohere2", {"num_hidden_layers": 4, "sliding_window_pattern": 4}),
    ("starcoder2", {}),
    ("ernie4.5", {}),
    ("seed-oss", {}),
    ("hunyuan-dense", {"rope_scaling": None}),
    ("gpt-neox", {"num_key_value_heads": 4}),
    ("gpt-neox", {"num_key_value_heads": 4, "rotary_pct": 1.0, "use_parallel_residual": False}),
    ("phi", {}),
    ("phi", {"partial_rotary_factor": 1.0}),
    ("bloom", {}),
]


def written(tmp_path, name, kind="F32", extra=None, **changes):
    """A folder of random weights, and the file made of it."""
    folder = gguf_files.random_folder(tmp_path / "folder", name, **changes)
    return folder, gguf_files.write(tmp_path / "model.gguf", folder, kind, extra=extra)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "changes"), DECODERS)
def test_decoders(tmp_path, name, changes):
    folder, path = written(tmp_path, name, **changes)
    loaded, original = zoo.load(path), zoo.load(folder)
    assert loaded.architecture.name == name
    assert loaded.recipe == original.recipe
    assert difference(loaded, original) <= 1e-5
    rules = loaded.architecture.gguf.weights
    found, left = invert(rules, dict(tree_flatten(loaded.model.parameters())), loaded.recipe, join)
    wanted = GGUFCheckpoint(path, registry=default_registry()).read(mx.float32).arrays
    assert not left and found.keys() == wanted.keys()
    assert all(mx.allclose(found[name], wanted[name], atol=1e-5) for name in wanted)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("both", [False, True])
def test_deepseeks_latents_in_one_matrix(tmp_path, monkeypatch, both):
    """As files before the spring of 2025 have them; some have the newer tensors beside it."""
    folder = gguf_files.random_folder(tmp_path / "folder", "deepseek-v3", **DEEPSEEK)
    monkeypatch.setitem(gguf_families.METADATA, "deepseek_v3", gguf_families.old_deepseek_metadata)
    monkeypatch.setitem(gguf_families.TENSORS, "deepseek_v3", gguf_families.old_deepseek_tensors)

    def extra(writer):
        arrays = {key: np.array(array) for key, array in mx.load(str(folder / "model.safetensors")).items()}
        config = json.loads((folder / "config.json").read_text())
        for key, array in gguf_families.deepseek_tensors(arrays, config):
            for part in ("k_b", "v_b"):
                if f"{part}_proj" in key:
                    name = f"blk.{key.split('.')[2]}.attn_{part}.weight"
                    gguf_files.add_tensor(writer, name, np.ascontiguousarray(array))

    path = gguf_files.write(tmp_path / "model.gguf", folder, extra=extra if both else None)
    loaded, original = zoo.load(path), zoo.load(folder)
    assert loaded.recipe == original.recipe
    assert difference(loaded, original) <= 1e-5


def test_deepseek_packed(tmp_path):
    numbers = DEEPSEEK | dict(qk_nope_head_dim=32, kv_lora_rank=32)
    _, path = written(tmp_path, "deepseek-v3", "Q8_0", **numbers)
    loaded = zoo.load(path)
    assert type(loaded.model.layers[1].mixer.key_up).__name__ == "QuantizedHeadLinear"
    assert loaded.model.layers[1].feedforward.experts.gate.bits == 8
    assert difference(loaded, gguf_files.dequantized(path)) <= 1e-5


def test_a_softmax_between_deepseeks_experts_is_refused_by_name(tmp_path):
    """DeepSeek-V2's."""
    folder = gguf_files.random_folder(tmp_path / "folder", "deepseek-v3", **DEEPSEEK)
    path = gguf_files.write(tmp_path / "model.gguf", folder, drop=["expert_gating_func"])
    with pytest.raises(ConfigError, match=r"model\.gguf, read as a config\.json: scoring_func 'softmax'"):
        zoo.load(path)


def test_falcon_mambas_norms_are_refused_by_name(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "mamba")
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        drop=["ssm.dt_b_c_rms"],
        extra=lambda writer: writer.add_bool("mamba.ssm.dt_b_c_rms", True),
    )
    with pytest.raises(ZooError, match=r"model\.gguf: mamba\.ssm\.dt_b_c_rms"):
        zoo.load(path)


def test_mamba_answers_from_a_file(tmp_path):
    folder = default_registry().architecture("mamba").preset("pocket").folder
    path = gguf_files.write(tmp_path / "model.gguf", folder, "Q8_0")
    loaded = zoo.load(path)
    text = "".join(step.text for step in zoo.stream(loaded, "The capital city of China is", max_tokens=8))
    assert text.startswith(" Beijing")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize(
    "changes",
    [
        {"feed_forward_proj": "relu", "tie_word_embeddings": True},
        {
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "num_layers": 3,
            "num_decoder_layers": 2,
        },
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": True},
    ],
)
def test_t5(tmp_path, changes, kind):
    numbers = dict(decoder_start_token_id=0, vocab_size=128, **changes)
    folder, path = written(tmp_path, "t5", kind, **numbers)
    loaded, original = zoo.load(path), zoo.load(folder)
    assert loaded.architecture.name == "t5"
    assert loaded.recipe == original.recipe
    random = np.random.default_rng(0)
    source, target = (mx.array(random.integers(0, 128, (2, length))) for length in (40, 9))
    wanted = (gguf_files.dequantized(path) if kind == "Q8_0" else original).model(source, target)
    found = loaded.model(source, target)
    assert mx.abs(found - wanted).max() <= 1e-5 * (wanted.max() - wanted.min())


def test_a_second_bias_of_t5_and_a_copy_of_its_table_are_left_out(tmp_path):
    """As the first release has them."""

    def extra(writer):
        table = np.array(mx.load(str(tmp_path / "folder/model.safetensors"))["shared.weight"])
        gguf_files.add_tensor(writer, "output.weight", table)
        gguf_files.add_tensor(writer, "dec.blk.0.cross_attn_rel_b.weight", np.zeros((32, 4), np.float32))

    numbers = dict(decoder_start_token_id=0, vocab_size=128, feed_forward_proj="relu")
    folder, path = written(tmp_path, "t5", extra=extra, **numbers)
    assert zoo.load(path).recipe == zoo.load(folder).recipe


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("types", [1, 2])
def test_bert(tmp_path, types):
    # A GGUF file of this family does not name the activation, which is BERT's own.
    numbers = dict(type_vocab_size=types, layer_norm_eps=1e-5, hidden_act="gelu")
    folder, path = written(tmp_path, "bert", **numbers)
    loaded, original = zoo.load(path), zoo.load(folder)
    assert loaded.architecture.name == "bert" and loaded.recipe.head is None
    assert loaded.recipe == original.recipe.change(head=None)
    tokens = mx.array(np.random.default_rng(0).integers(0, 100, (2, 20)))
    mask = mx.array([[1] * 20, [1] * 12 + [0] * 8])
    found, wanted = loaded.model.encode(tokens, mask), original.model.encode(tokens, mask)
    assert mx.abs(found - wanted)[1, :12].max() <= 1e-5 * (wanted.max() - wanted.min())
    assert mx.abs(found - wanted)[0].max() <= 1e-5 * (wanted.max() - wanted.min())


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("bert", {"attn_qkv", "output_norm", "cls", "cls.output"}),  # of models that are made of BERT
        ("t5", set()),
        ("mamba", set()),
        *((name, set()) for name in ("olmo2", "gemma3", "minimax-m2", "granite")),
        *((name, {"attn_rot_embd"}) for name in ("smollm3", "starcoder2")),
        ("deepseek2", {"attn_k", "attn_v", "attn_rot_embd"}),
    ],
)
def test_every_tensor_that_a_converter_can_write_is_taken(name, others):
    """By a rule, but for those of other models that share the architecture's name."""
    told = next(
        a.gguf for a in default_registry().architectures.values() if a.gguf and a.gguf.architecture == name
    )
    rules = [matcher(rule.source) for rule in told.weights]
    arch = next(arch for arch, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    for tensor in gguf.MODEL_TENSORS[arch]:
        plain = gguf.TENSOR_NAMES[tensor]
        spelled = [plain.format(bid=0) + suffix for suffix in (".weight", ".bias", "")]
        taken = any(rule.fullmatch(one) for rule in rules for one in spelled)
        assert taken or plain.rpartition("{bid}.")[2] in others, plain


@pytest.mark.parametrize(
    ("pooling", "mode"), [(None, "mean"), (0, "mean"), (1, "mean"), (2, "first"), (3, "last")]
)
def test_sentence_vectors_are_pooled_as_the_file_says(tmp_path, pooling, mode):
    folder = gguf_files.random_folder(tmp_path / "folder", "bert", vocab_size=100)
    told = [] if pooling is None else [pooling]
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        drop=["pooling_type"],
        extra=lambda writer: [writer.add_uint32("bert.pooling_type", one) for one in told],
    )
    loaded = zoo.load(path)
    texts = [[1, 2, 3, 4], [5, 6, 7]]
    found, wanted = embed(loaded, texts), embed(loaded, texts, pooling=mode)
    assert mx.array_equal(found, wanted)
    others = {"mean", "first", "last"} - {mode}
    assert not any(mx.allclose(found, embed(loaded, texts, pooling=other)) for other in others)
    convert(path, tmp_path / "out")
    assert mx.allclose(embed(zoo.load(tmp_path / "out"), texts), wanted, atol=1e-5)


def test_a_ranking_head_is_refused(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "bert", vocab_size=100)
    extra = lambda writer: writer.add_uint32("bert.pooling_type", 4)  # noqa: E731
    path = gguf_files.write(tmp_path / "model.gguf", folder, drop=["pooling_type"], extra=extra)
    with pytest.raises(ConfigError, match="pooling_type 4 is not implemented"):
        embed(zoo.load(path), [[1, 2]])
