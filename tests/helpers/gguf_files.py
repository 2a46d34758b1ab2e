"""GGUF files written from model folders, by the gguf package, in the names and orders of llama.cpp's converter."""

import json
from itertools import islice

import gguf
import mlx.core as mx
import numpy as np

from tests.helpers import gguf_families, gguf_packers
from zoo.assemble import assemble
from zoo.checkpoint.convert import save
from zoo.checkpoint.open import make_recipe, open_model
from zoo.checkpoint.parameters import fill, match
from zoo.checkpoint.safetensors import Tensors
from zoo.host.registry import default_registry
from zoo.testing import numbers_of, randomise
from zoo.training.vocabulary import save_tokenizer, train_tokenizer
from zoo_corpora.atlas import documents

# What transformers takes for granted of some; folders need not say it, files must.
DEFAULTS = {
    "mixtral": {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2},
    "gpt_oss": {"rms_norm_eps": 1e-5},
    **{kind: {"rms_norm_eps": 1e-5} for kind in ("olmo2", "glm4_moe", "phi3", "hunyuan_v1_dense")},
    **{kind: {"rms_norm_eps": 1e-5, "rope_theta": 5e5} for kind in ("olmo3", "ernie4_5")},
    "glm4": {"rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5},
    "gemma3_text": {"rope_theta": 1e6},
    "smollm3": {"rope_theta": 2e6},
    "minimax_m2": {"rope_theta": 5e6},
    "cohere": {"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "rope_theta": 5e5},
    "cohere2": {"layer_norm_eps": 1e-5, "logit_scale": 0.0625},
    "starcoder2": {"norm_epsilon": 1e-5},
}
# transformers' model_type to the file's name of the architecture.
NAMES = {
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
    "deepseek_v3": "deepseek2",
    "olmo3": "olmo2",
    "gemma3_text": "gemma3",
    "glm4_moe": "glm4moe",
    "minimax_m2": "minimax-m2",
    "hunyuan_v1_dense": "hunyuan-dense",
    "cohere": "command-r",
    "gpt_neox": "gptneox",
    "phi": "phi2",
}
# Those whose queries and keys the converter interleaves, and those to whose norms it adds one.
PAIRED = ("llama", "mistral", "mixtral", "granite", "smollm3")
ADDED = ("gemma2", "gemma3_text")


def write(
    path, folder, kind="F32", kinds=None, extra=None, drop=(), numbered=False, cut=None, most=0, pre="gpt-2"
):
    """Write a Hugging Face folder as one file, or as several of at most `most` tensors; gives its path.

    Matrices become `kind`, those named in `kinds` theirs, the rest F32. `extra(writer)` adds metadata and tensors last;
    keys and tensors named in `drop` are left out. `numbered` experts are tensors of their own. The embedding is `cut`
    to fewer tokens. `pre` is the rule by which the tokenizer cuts words.
    """
    config = json.loads((folder / "config.json").read_text())
    config = DEFAULTS.get(config["model_type"], {}) | config
    name = NAMES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(str(path), name, split_max_tensors=most)
    for key, value in metadata(config).items():
        if key not in drop:
            add(writer, f"{name}.{key}", value)
    if (folder / "tokenizer.json").exists():
        add_tokenizer(writer, folder, config, pre)
    for tensor, array in tensors(folder, config, name):
        if tensor in drop:
            continue
        if tensor == "token_embd.weight":
            array = array[:cut]
        plain = (
            array.ndim < 2
            or tensor.endswith(".bias")
            or tensor.startswith("position")
            or "ffn_gate_inp" in tensor
            or any(word in tensor for word in gguf_families.PLAIN)
        )
        wanted = (kinds or {}).get(tensor, "F32" if plain else kind)
        if numbered and "_exps." in tensor:
            for number, one in enumerate(array):
                add_tensor(writer, tensor.replace("_exps.", f".{number}."), one, wanted)
        else:
            add_tensor(writer, tensor, array, wanted)
    if extra is not None:
        extra(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tensor(writer, name, array, kind="F32"):
    """As the converter does, in half precision where rows are no whole blocks."""
    if array.shape[-1] % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0]:
        kind = "F16"
    writer.add_tensor(name, packed(array, kind), raw_dtype=gguf.GGMLQuantizationType[kind])


def packed(array, kind):
    """The bytes of an array in one of GGUF's types."""
    if kind in gguf_packers.PACKERS:
        return gguf_packers.pack(array, kind)
    return gguf.quants.quantize(np.ascontiguousarray(array), gguf.GGMLQuantizationType[kind])


def add(writer, key, value):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def random_folder(folder, name, **changes):
    """A small model with random weights as a Hugging Face folder, some numbers of its config changed; gives its path."""
    architecture = default_registry().architecture(name)
    numbers = {**numbers_of(architecture), **changes}
    recipe = make_recipe(architecture, numbers, default_registry())
    model = assemble(recipe, default_registry())
    randomise(model)
    save(folder, model, architecture, recipe, numbers)
    return folder


def small_tokenizer(folder, size):
    """Give a folder a byte-level tokenizer of at most `size` tokens, trained now."""
    tokenizer = train_tokenizer(islice(documents("train"), 30), size)
    save_tokenizer(tokenizer, folder)


def dequantized(path):
    """The file's model with every matrix as the gguf package itself reads and unpacks it."""
    opened = open_model(path)
    arrays = {
        tensor.name: mx.array(gguf.dequantize(tensor.data, tensor.tensor_type))
        for tensor in gguf.GGUFReader(path).tensors
    }
    found, _ = match(
        opened.model, opened.checkpoint.architecture, opened.recipe, Tensors(arrays, {}, {"format": "gguf"})
    )
    fill(opened.model, found, mx.float32)
    return opened


def difference(loaded, other, length=40):
    """The largest difference of two models' logits, as a share of the range of the second's."""
    tokens = mx.array(np.random.default_rng(0).integers(0, other.recipe.embedding.vocab, (2, length)))
    found, wanted = loaded.model(tokens), other.model(tokens)
    return (mx.abs(found - wanted).max() / (wanted.max() - wanted.min())).item()


def metadata(config):
    """The keys that the converter writes for a config.json."""
    if config["model_type"] in gguf_families.METADATA:
        return gguf_families.METADATA[config["model_type"]](config)
    if config["model_type"] == "gpt2":
        return {
            "context_length": config["n_positions"],
            "embedding_length": config["n_embd"],
            "block_count": config["n_layer"],
            "feed_forward_length": 4 * config["n_embd"],
            "attention.head_count": config["n_head"],
            "attention.layer_norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
        }
    heads = config["num_attention_heads"]
    values = {
        "vocab_size": config["vocab_size"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads", heads),
        "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps", 1e-6),
        "rope.freq_base": config.get("rope_theta", 10000.0),
        "rope.dimension_count": config.get("head_dim") or config["hidden_size"] // heads,
    }
    for key, name in {
        "attention.key_length": "head_dim",
        "attention.value_length": "head_dim",
        "attention.sliding_window": "sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "expert_count": "num_local_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        **gguf_families.NUMBERS,
    }.items():
        if config.get(name) is not None:
            values[key] = config[name]
    if config.get("num_experts"):
        values["expert_count"] = config["num_experts"]
    values |= gguf_families.FURTHER.get(config["model_type"], lambda config: {})(config)
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "yarn":
        values["rope.scaling.type"] = "yarn"
        values["rope.scaling.factor"] = scaling["factor"]
        values["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
        values["rope.scaling.yarn_beta_fast"] = scaling["beta_fast"]
        values["rope.scaling.yarn_beta_slow"] = scaling["beta_slow"]
    return values


def tensors(folder, config, name):
    """The folder's tensors in float32, by the file's names and in its orders."""
    kind = config["model_type"]
    arrays = {
        key: np.array(array.astype(mx.float32))
        for key, array in mx.load(str(folder / "model.safetensors")).items()
    }
    arrays = stacked(unwoven(arrays) if kind == "gpt_oss" else arrays)
    layers = config.get("num_hidden_layers") or config.get("num_layers") or config["n_layer"]
    if kind in gguf_families.TENSORS:
        arrays = dict(gguf_families.TENSORS[kind](arrays, config))
    arch = next(arch for arch, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    names = gguf.get_tensor_name_map(arch, layers)
    for key, array in arrays.items():
        if kind in PAIRED and ".q_proj." in key:
            array = paired(array, config["num_attention_heads"])
        if kind in PAIRED and ".k_proj." in key:
            array = paired(array, config["num_key_value_heads"])
        if kind == "gpt2" and key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            array = array.T
        if kind in ADDED and key.endswith("norm.weight"):
            array = array + 1
        if kind == "qwen2_moe" and key.endswith("shared_expert_gate.weight"):
            array = array.squeeze()
        found = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert found, f"the gguf package has no name for {key}"
        yield found, np.ascontiguousarray(array)


def paired(array, heads):
    """Rows of a head in the order 0, K/2, 1, K/2 + 1, …"""
    size = array.shape[0] // heads
    order = np.arange(size).reshape(2, size // 2).T.reshape(-1)
    return array.reshape(heads, size, -1)[:, order].reshape(array.shape)


def unwoven(arrays):
    """gpt-oss's experts: gate and up, of which every other column is one, apart, and all matrices turned."""
    found = {}
    for key, array in arrays.items():
        before, mark, part = key.partition(".mlp.experts.")
        if not mark:
            found[key + ".weight" * key.endswith("sinks")] = array
            continue
        part = part.removesuffix("_bias")
        suffix = ".bias" if key.endswith("_bias") else ".weight"
        array = array if key.endswith("_bias") else array.swapaxes(-1, -2)
        name = f"{before}{mark}"
        if part == "down_proj":
            found[f"{name}down_proj{suffix}"] = array
        else:
            rows = (slice(None), slice(0, None, 2)), (slice(None), slice(1, None, 2))
            found |= {
                f"{name}{half}_proj{suffix}": array[at] for half, at in zip(("gate", "up"), rows, strict=True)
            }
    return found


def stacked(arrays):
    """Experts' matrices, numbered one by one, joined along a new first axis."""
    joined = {}
    for key in sorted(arrays):
        before, _, after = key.partition(".experts.")
        number, _, rest = after.partition(".")
        if number.isdecimal():
            # The names of the stacked ones in the gguf package's table.
            before = (
                before.replace("model.layers", "layers").replace("block_sparse_moe", "feed_forward")
                if rest[0] == "w"
                else before
            )
            joined.setdefault(f"{before}.experts.{rest}", {})[int(number)] = arrays[key]
        else:
            joined[key] = arrays[key]
    return {
        key: np.stack([value[number] for number in sorted(value)]) if isinstance(value, dict) else value
        for key, value in joined.items()
    }


def add_tokenizer(writer, folder, config, pre="gpt-2"):
    """The vocabulary of a byte-level tokenizer.json."""
    told = json.loads((folder / "tokenizer.json").read_text())
    added = {token["id"]: token for token in told["added_tokens"]}
    texts = {id: text for text, id in told["model"]["vocab"].items()}
    texts |= {id: token["content"] for id, token in added.items()}
    tokens, types = [], []
    for id in range(config["vocab_size"]):
        tokens.append(texts.get(id, f"[PAD{id}]"))
        kind = gguf.TokenType.UNUSED if id not in texts else gguf.TokenType.NORMAL
        if id in added:
            kind = gguf.TokenType.CONTROL if added[id]["special"] else gguf.TokenType.USER_DEFINED
        types.append(kind)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in told["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    for key in ("bos", "eos", "pad"):
        if config.get(f"{key}_token_id") is not None:
            writer.add_uint32(
                f"tokenizer.ggml.{ {'pad': 'padding'}.get(key, key) }_token_id", config[f"{key}_token_id"]
            )
