"""Every family of families.py against transformers and mlx-lm, on folders that these write."""

import shutil

import mlx_lm.utils as mlx_lm
import numpy as np
import pytest
import torch

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache

from zoo.checkpoint.convert import convert
from zoo.inspect.perplexity import divergence
from zoo_mlx_lm.tools import Served

from .families import DECODERS, FAMILIES
from .family import VOCAB, edit
from .support import TOLERANCE, agrees, compared, decodes_as, difference, far, pads_as, texts

CASES = [
    pytest.param(
        *(name, variant, shape),
        id=f"{name}-{variant}-{place}",
        marks=[pytest.mark.nightly] if place != variant % len(family.shapes) else [],
    )
    for name, family in FAMILIES.items()
    for variant in range(len(family.variants))
    for place, shape in enumerate(family.shapes)
]
MLX = [name for name, family in FAMILIES.items() if family.mlx is not None]
VARIANTS = [
    ("deepseek-v3", 1),
    ("deepseek-v3", 7),
    ("granite-hybrid", 1),
    ("gemma4", 4),
    ("gemma4", 6),
]  # compared with mlx-lm, too
UNREADABLE = (
    "gpt-oss",
    "gpt2",
    "llama4",
    "nanochat",
    "qwen3.5-moe",
    "kimi-linear",
)  # by mlx-lm in transformers' layout
PACKED = {
    "8": dict(quantize="8"),
    "4": dict(quantize="4", group_size=32),
    "mxfp4": dict(quantize="mxfp4"),
    "mixed": dict(recipe="mixed-3-6", group_size=32),
}
QUANTIZED = [
    pytest.param(
        *(name, how),
        id=f"{name}-{how}",
        marks=[] if place == number % len(PACKED) else [pytest.mark.nightly],
    )
    for number, name in enumerate(MLX)
    for place, how in enumerate(PACKED)
    # OLMo's norms, which stand after each part, magnify what MLX rounds in MXFP4; mlx-lm gives the scales of Ministral's
    # queries the dtype of vectors from a packed table, bfloat16, in which all of nanochat is computed then.
    if how != "mxfp4" or name not in ("olmo2", "olmo3", "exaone4", "ministral3", "mistral4", "nanochat")
]


@pytest.mark.filterwarnings("error:config.json")  # a key that nothing reads
@pytest.mark.parametrize("name, variant, shape", CASES)
def test_logits_equal_transformers_and_each_tensor_comes_back(tmp_path, name, variant, shape):
    family = FAMILIES[name]
    model = family.make(variant, shape)
    compared(model, tmp_path, name, VOCAB, respelled=family.respelled, lengths=family.lengths)
    if name in DECODERS:
        decodes_as(model, zoo.load(tmp_path / "written"), VOCAB)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_padded_row_has_the_logits_of_its_own_text(tmp_path, name):
    side = "left" if name in DECODERS else "right"
    pads_as(FAMILIES[name].make(-1), tmp_path, VOCAB, length=80 if name == "qwen3-next" else 30, side=side)


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("name", ["olmo2", "olmo3", "glm4-moe", "smollm3", "cohere2", "gemma3"])
def test_attention_that_is_not_causal_gives_transformers_vectors(tmp_path, name):
    family = FAMILIES[name]
    both_ways = dict(use_bidirectional_attention=True) if name == "gemma3" else dict(is_causal=False)
    model = family.make(family.variants[-1] | both_ways)
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    tokens = texts(VOCAB, 2, 24)
    mask = torch.ones(tokens.shape, dtype=torch.long)
    mask[1, 15:] = 0
    with torch.no_grad():
        expected = model.model(torch.tensor(tokens), attention_mask=mask).last_hidden_state
    found = loaded.model.encode(mx.array(tokens), mx.array(mask.numpy()))
    assert difference(found[0], expected[0]) <= TOLERANCE
    assert difference(found[1, :15], expected[1, :15]) <= TOLERANCE


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2", "mamba", "mamba2", "falcon-h1"])
def test_logits_of_vectors_in_the_place_of_tokens(tmp_path, name):
    model = FAMILIES[name].make()
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    vectors = np.random.default_rng(0).normal(size=(2, 20, loaded.recipe.dim)).astype(np.float32)
    with torch.no_grad():
        expected = model(inputs_embeds=torch.tensor(vectors)).logits
    assert difference(loaded.model(inputs_embeds=mx.array(vectors)), expected) <= TOLERANCE
    cache = loaded.model.make_cache()
    places = ((0, 9), (9, 10), (10, 20))
    found = [loaded.model(None, cache, inputs_embeds=mx.array(vectors[:, a:b])) for a, b in places]
    assert difference(mx.concatenate(found, axis=1), expected) <= TOLERANCE


@pytest.fixture
def uncompiled():
    """Compiling on the CPU calls the C++ compiler."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def written(name, folder, variant=0):
    """A reference wide enough to be packed in groups, its folder written."""
    model = FAMILIES[name].make(variant, wide=True)
    model.save_pretrained(folder)
    return model


def by_mlx_lm(folder, tokens):
    """The logits that mlx-lm's own code computes from a folder, in float32, its model, and the model's module."""
    model, _ = mlx_lm.load_model(folder)
    model.update(
        tree_map(
            lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a, model.parameters()
        )
    )
    return model(mx.array(tokens)), model


@pytest.mark.parametrize("name, variant", [*((name, 0) for name in MLX), *VARIANTS])
def test_mlx_lm_reads_what_is_converted_and_the_zoo_what_mlx_lm_writes(tmp_path, name, variant, uncompiled):
    model = written(name, tmp_path / "hf", variant)
    tokens = texts(VOCAB, 2, 30)
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits
    convert(tmp_path / "hf", tmp_path / "mlx")
    (tmp_path / "theirs").mkdir()
    shutil.copy(tmp_path / "mlx" / "config.json", tmp_path / "theirs")
    edit(tmp_path / "mlx", lambda config: config | FAMILIES[name].mlx)
    found, theirs = by_mlx_lm(tmp_path / "mlx", tokens)
    assert difference(found, expected) <= TOLERANCE
    if name not in UNREADABLE:
        shutil.copy(tmp_path / "mlx" / "config.json", tmp_path / "hf")
        assert far(found, by_mlx_lm(tmp_path / "hf", tokens)[0]) <= 1e-6
    loaded = zoo.load(tmp_path / "mlx")
    caches = make_prompt_cache(theirs)
    # In mlx-lm layers without keys or a state have no cache, and those with an indexer have two.
    if len(caches) == len(loaded.recipe.layers) and name not in ("deepseek-v3.2", "glm-moe-dsa"):
        served = Served(loaded.model, {}, name)(mx.array(tokens), caches)
        assert difference(served, expected) <= TOLERANCE
    # mlx-lm's own folder goes back to transformers.
    mlx_lm.save_model(tmp_path / "theirs", theirs)
    agrees(model, zoo.load(tmp_path / "theirs"), VOCAB, lengths=(17,))
    convert(tmp_path / "theirs", tmp_path / "back", layout="hf")
    # transformers does not read back the layers of this family's config as it wrote them.
    config = model.config if name == "granite-hybrid" else None
    again = type(model).from_pretrained(tmp_path / "back", config=config, attn_implementation="eager").eval()
    with torch.no_grad():
        found = again(torch.tensor(tokens)).logits
    assert float((found - expected).abs().max() / (expected.max() - expected.min())) <= TOLERANCE


@pytest.mark.parametrize("name, how", QUANTIZED)
def test_quantized_folders_mean_the_same_to_mlx_lm(tmp_path, name, how, uncompiled):
    written(name, tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "mlx", **PACKED[how])
    edit(tmp_path / "mlx", lambda config: config | FAMILIES[name].mlx)
    tokens, loaded = texts(VOCAB, 2, 20), zoo.load(tmp_path / "mlx")
    assert any("scales" in layer for _, layer in loaded.model.named_modules())
    assert far(loaded.model(mx.array(tokens)), by_mlx_lm(tmp_path / "mlx", tokens)[0]) <= TOLERANCE


def test_a_quantized_folder_goes_back_to_transformers_dequantized(tmp_path):
    model = written("llama", tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "q", quantize="8", group_size=32)
    convert(tmp_path / "q", tmp_path / "back", layout="hf")
    again = type(model).from_pretrained(tmp_path / "back", attn_implementation="eager").eval()
    tokens = texts(VOCAB, 1, 20)
    with torch.no_grad():
        expected = again(torch.tensor(tokens)).logits
    assert difference(zoo.load(tmp_path / "q").model(mx.array(tokens)), expected) <= TOLERANCE
    assert divergence(tmp_path / "q", tmp_path / "back").worst <= 1e-5
