"""Every key that llama.cpp has for an architecture is read, refused by name, called unknown, or known to change nothing."""

import warnings

import pytest
from gguf import constants

import zoo
from tests.checkpoint.gguf.test_families import DECODERS
from tests.helpers import gguf_files
from tests.helpers.parameters import ordinary
from zoo.checkpoint.gguf import config as gguf_config
from zoo.checkpoint.gguf.header import Header, read_header
from zoo.checkpoint.open import make_recipe
from zoo.config import Config
from zoo.errors import ZooError
from zoo.host.registry import default_registry

REGISTRY = default_registry()
QWEN = {"use_sliding_window": False}
FAMILIES = dict(reversed(DECODERS)) | {
    **{name: {} for name in ("llama", "mistral", "gpt2", "gemma2", "qwen3")},
    "qwen2": QWEN,
    "qwen2-moe": QWEN | {"mlp_only_layers": []},
    "t5": {"decoder_start_token_id": 0},
}
# The groups of keys that begin with the architecture's name.
GROUPS = ("LLM", "Attention", "Rope", "SSM", "KDA", "WKV", "PosNet", "ConvNext", "Classifier", "ShortConv")


def names_in(group):
    """The keys in a class of the gguf package, without the architecture before them."""
    for value in vars(group).values():
        if isinstance(value, type):
            yield from names_in(value)
        elif isinstance(value, str) and value.startswith("{arch}."):
            yield value.removeprefix("{arch}.")


KEYS = sorted(
    {key for group in GROUPS for key in names_in(getattr(constants.Keys, group, type("none", (), {})))}
)

ALL = "of all families"
# Keys that may have any value without a word, and the families in which they may.
SILENT = {
    "vocab_size": (ALL, "the table's rows count"),
    "tensor_data_layout": (ALL, "no program reads it"),
    "rope.scaling.finetuned": (ALL, "how a model was trained"),
    "attention.value_length": (ALL, "the tensors' shapes say it where no key_length stands"),
    "pooling_type": (ALL, "it makes vectors of hidden states, and no logits"),
    "rope.scaling.original_context_length": (ALL, "of YaRN alone"),
    "rope.scaling.yarn_beta_fast": (ALL, "of YaRN alone"),
    "rope.scaling.yarn_beta_slow": (ALL, "of YaRN alone"),
    "rope.scaling.yarn_log_multiplier": (ALL, "of YaRN alone"),
    "feed_forward_length": (
        ("minimax-m2", "mamba", "qwen2-moe", "bloom"),
        "of layers without experts, of none, or always 4 x dim",
    ),
    "context_length": (("mamba", "t5"), "they have no positions that end"),
    "attention.head_count_kv": (
        ("deepseek-v3", "bloom", "gpt-neox"),
        "keys and values come from a latent vector, or have as many heads as queries",
    ),
    "attention.head_count": (("mamba",), "it has no attention"),
    "attention.key_length": (("deepseek-v3",), "key_length_mla stands beside it"),
    "attention.layer_norm_epsilon": (("t5",), "its norms have the other key"),
    "attention.layer_norm_rms_epsilon": (
        ("starcoder2", "cohere", "cohere2", "phi", "gpt-neox"),
        "their norms have the other key",
    ),
    "rope.dimension_count": (("mamba", "gpt2", "t5"), "they turn nothing"),
    "attention.sliding_window": (("qwen2", "qwen2-moe"), "llama.cpp gives them no window"),
    "attention.sliding_window_pattern": (ALL, "of models with a window"),
    "attention.causal": (("t5",), "read in decoders"),
}


@pytest.fixture(scope="module")
def header_of(tmp_path_factory):
    """The header of a family's file."""
    folder = tmp_path_factory.mktemp("files")

    def made(name):
        path = folder / f"{name}.gguf"
        if not path.exists():
            gguf_files.write(path, gguf_files.random_folder(folder / name, name, **FAMILIES[name]))
        return read_header(path)

    return made


def outcome(header, architecture, changes):
    """The recipe that a header with other metadata makes, or what it is refused by; and what was warned of."""
    changed = Header(header.path, {**header.metadata, **changes}, header.tensors)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            origin = gguf_config.origin_of(changed, architecture.gguf)
            values = gguf_config.config_of(changed, architecture)
            found = make_recipe(architecture, Config(values, tensors=header.tensors, origin=origin), REGISTRY)
        except ZooError as error:
            found = str(error)
    return found, [str(each.message) for each in told]


def others(value):
    """Values that a key does not have, or values of each type."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value * 2, value + 1]
    return [2, 3, 0.5, True, "another", (1, 0, 1)]


@pytest.mark.parametrize("name", ordinary(FAMILIES, "llama", "gemma3", "deepseek-v3"))
def test_no_key_is_dropped_in_silence(header_of, name):
    header, architecture = header_of(name), REGISTRY.architecture(name)
    prefix, (plain, told) = header.metadata["general.architecture"], outcome(header, architecture, {})
    assert not told
    silent = set()
    for key in KEYS:
        families, _ = SILENT.get(key, ((), ""))
        if families != ALL and name not in families:
            full = f"{prefix}.{key}"
            values = others(header.metadata.get(full))
            if all(outcome(header, architecture, {full: value}) == (plain, []) for value in values):
                silent.add(key)
    assert not silent


def test_a_decoder_that_is_not_causal_makes_vectors(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "llama")

    def extra(writer):
        writer.add_bool("llama.attention.causal", False)
        writer.add_uint32("llama.pooling_type", 3)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = zoo.load(gguf_files.write(tmp_path / "model.gguf", folder, extra=extra))
    assert loaded.recipe.task == loaded.architecture.task == "encode"
    vectors = zoo.embed(loaded, [[1, 2, 3], [1, 2, 3, 4]])
    assert vectors.shape == (2, loaded.recipe.dim)
