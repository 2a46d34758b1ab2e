"""Quantized folders that mlx-lm wrote, its converter and its learned quantizers; logits are those of its forward."""

import json
import warnings

import numpy as np
import pytest
import torch

import zoo  # isort: skip
import mlx.core as mx

from zoo.host.registry import default_registry

from .families import FAMILIES as KNOWN
from .support import difference, texts

VOCAB = 2048  # the pocket tokenizer's, which mlx-lm's converter wants
SAME = 1e-5  # of the range: the same packed numbers through the same kernels
COMMON = dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=256, num_hidden_layers=2)
FAMILIES = {
    "llama": {},
    "qwen3": dict(head_dim=32, tie_word_embeddings=True),
    "mixtral": dict(num_local_experts=4, num_experts_per_tok=2),
}
AFFINE = [(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
MODES = ("mxfp4", "nvfp4", "mxfp8")


@pytest.fixture(autouse=True)
def uncompiled():
    """Compiling on the CPU calls the C++ compiler."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def made(family):
    return KNOWN[family].make(COMMON | FAMILIES[family])


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Folders that transformers wrote, by family, with a tokenizer."""
    pocket = default_registry().architecture("llama").preset("pocket").folder
    paths = {}
    for family in FAMILIES:
        paths[family] = tmp_path_factory.mktemp(family)
        made(family).save_pretrained(paths[family])
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (paths[family] / file).write_bytes((pocket / file).read_bytes())
    return paths


def converted(source, out, **settings):
    """mlx-lm's own converter."""
    from mlx_lm.convert import convert

    convert(str(source), str(out), quantize=True, **settings)
    return out


def saved(out, model, config):
    """A folder of mlx-lm's model, as its quantizers save one."""
    from mlx_lm.utils import save_config, save_model

    out.mkdir()
    save_model(out, model)
    save_config(config, out / "config.json")
    return out


def theirs(folder):
    """mlx-lm's model of a folder."""
    from mlx_lm.utils import load_model

    return load_model(folder)[0]


def logits(model, tokens):
    return torch.tensor(np.array(model(tokens)))


def agrees(folder, tolerance=SAME, model=None):
    """Assert mlx-lm's logits, or those of another model of its; gives what was loaded and what was warned of."""
    tokens = mx.array(texts(VOCAB, 2, 17))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loaded = zoo.load(folder)
    assert difference(loaded.model(tokens), logits(model or theirs(folder), tokens)) <= tolerance
    return loaded.model, [str(each.message) for each in told]


def layer_of(model):
    layer = model.layers[0]
    return layer.mixer.query, getattr(layer.feedforward, "experts", layer.feedforward).down


@pytest.mark.parametrize(("bits", "group"), AFFINE)
@pytest.mark.parametrize("family", ["qwen3", "mixtral"])
def test_affine_folders_that_mlx_lm_converted(source, tmp_path, family, bits, group):
    folder = converted(source[family], tmp_path / "mlx", q_bits=bits, q_group_size=group)
    model, told = agrees(folder)
    assert not told
    for layer in (*layer_of(model), model.embedding.tokens):
        assert (layer.bits, layer.group_size, layer.mode) == (bits, group, "affine")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_folders_of_other_modes_that_mlx_lm_converted(source, tmp_path, family, mode):
    model, told = agrees(converted(source[family], tmp_path / "mlx", q_mode=mode))
    assert not told
    assert {layer.mode for layer in layer_of(model)} == {mode}


@pytest.mark.parametrize("recipe", ["mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"])
def test_mixed_recipes_of_mlx_lm(source, tmp_path, recipe):
    folder = converted(source["llama"], tmp_path / "mlx", quant_predicate=recipe, q_group_size=64)
    _, told = agrees(folder)
    assert not told
    given = json.loads((folder / "config.json").read_text())["quantization"].values()
    assert len({each["bits"] for each in given if isinstance(each, dict)}) == 2


def chosen(path, module):
    """Several quantizations, and matrices left alone."""
    if "v_proj" in path:
        return dict(bits=8, group_size=32)
    if "down_proj" in path:
        return dict(bits=4, group_size=32, mode="mxfp4")
    return "o_proj" not in path


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "spelling", ["as written", "quantization", "quantization_config", "without modes", "by parameter"]
)
def test_overrides_by_path_in_every_spelling(source, tmp_path, family, spelling):
    folder = converted(source[family], tmp_path / "mlx", q_bits=4, q_group_size=64, quant_predicate=chosen)
    expected = logits(theirs(folder), mx.array(texts(VOCAB, 2, 17)))
    path = folder / "config.json"
    config = json.loads(path.read_text())
    given = config["quantization"]
    given |= {f"model.layers.{i}.self_attn.o_proj": False for i in range(2)}
    if spelling == "without modes":
        del given["mode"]
    if spelling == "by parameter":
        places = {
            "self_attn": "mixer",
            "block_sparse_moe.switch_mlp": "feedforward.experts",
            "mlp": "feedforward",
        }
        names = {"v_proj": "value", "o_proj": "output", "down_proj": "down"}
        for old in [old for old in given if old.startswith("model.")]:
            new = old.removeprefix("model.")
            for before, after in (places | names).items():
                new = new.replace(before, after)
            given[new] = given.pop(old)
    for key in ("quantization", "quantization_config"):
        config[key] = given
        if spelling in ("quantization", "quantization_config") and key != spelling:
            del config[key]
    path.write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = zoo.load(folder).model
    assert difference(model(mx.array(texts(VOCAB, 2, 17))), expected) <= SAME
    query, down = layer_of(model)
    assert (query.bits, down.mode, model.layers[0].mixer.value.group_size) == (4, "mxfp4", 32)
    assert "scales" not in model.layers[0].mixer.output


def test_a_shard_for_each_tensor(source, tmp_path, monkeypatch):
    import mlx_lm.utils as utils

    split = utils.make_shards
    monkeypatch.setattr(utils, "make_shards", lambda weights: split(weights, 0))
    model, config = utils.load_model(source["llama"])
    folder = saved(tmp_path / "mlx", *utils.quantize_model(model, config, 64, 4))
    assert len(list(folder.glob("model-*.safetensors"))) > 20
    agrees(folder)


def test_a_global_scale_on_every_expert(source, tmp_path):
    """mlx-lm writes it, though its own product on the CPU does not know it: its model of the numbers is compared."""
    from mlx_lm.utils import load_model, quantize_model

    model, config = load_model(source["mixtral"])
    model, config = quantize_model(model, config, None, None, mode="nvfp4", global_scale=True)
    folder = saved(tmp_path / "mlx", model, config)
    written = mx.load(str(folder / "model.safetensors"))
    scales = [name for name in written if name.endswith(".global_scale")]
    assert len(scales) == 6 and written[scales[0]].shape == (4,)
    plain, _ = load_model(source["mixtral"])
    numbers = {}
    for name in [name for name in written if name.endswith(".scales")]:
        owner = name.removesuffix(".scales")
        numbers[f"{owner}.weight"] = mx.dequantize(
            written[f"{owner}.weight"], written[name], mode="nvfp4", dtype=mx.float32
        )
        if f"{owner}.global_scale" in written:
            numbers[f"{owner}.weight"] *= written[f"{owner}.global_scale"][:, None, None] / 2688
    plain.load_weights(list(numbers.items()), strict=False)
    found, told = agrees(folder, model=plain)
    assert not told and "global_scale" in found.layers[0].feedforward.experts.gate


def data(count=4, length=24):
    return mx.array(texts(VOCAB, count, length, seed=3))


def test_gptq_of_mlx_lm(source, tmp_path):
    from mlx_lm.quant.gptq import gptq_quantize
    from mlx_lm.utils import load_model

    model, config = load_model(source["llama"])
    model, config["quantization"] = gptq_quantize(model, data(), 4, 64, 6, 64)
    found, told = agrees(saved(tmp_path / "mlx", model, config))
    assert not told and (found.layers[0].mixer.query.bits, found.embedding.tokens.bits) == (4, 6)


def test_awq_of_mlx_lm(source, tmp_path):
    from mlx_lm.quant.awq import AWQ_MODEL_CONFIGS, awq_quantize, update_config
    from mlx_lm.utils import load_model

    model, config = load_model(source["llama"])
    awq_quantize(model, data(), AWQ_MODEL_CONFIGS["llama"], group_size=64, bits=3, n_grid=3)
    found, told = agrees(saved(tmp_path / "mlx", model, update_config(model, config)))
    # Its config has `false` for norms, which are no matrices.
    assert not told and (found.layers[0].mixer.query.bits, found.embedding.tokens.bits) == (3, 4)


def test_dynamic_quant_of_mlx_lm(source, tmp_path):
    from mlx_lm.quant.dynamic_quant import estimate_sensitivities, estimate_threshold
    from mlx_lm.utils import load_model, quantize_model

    model, config = load_model(source["qwen3"])
    found = dict(estimate_sensitivities(model, data(), 3, 64, 6, 32))
    threshold = estimate_threshold(model, found, 5.0, 3, 64, 6, 32)

    def predicate(path, module):
        if not hasattr(module, "to_quantized"):
            return False
        return dict(bits=6, group_size=32) if found[path] > threshold else True

    model, config = quantize_model(model, config, 64, 3, quant_predicate=predicate)
    loaded, told = agrees(saved(tmp_path / "mlx", model, config))
    kinds = {layer.bits for _, layer in loaded.named_modules() if "scales" in layer}
    assert not told and kinds == {3, 6}


def test_dwq_of_mlx_lm(source, tmp_path):
    import mlx.optimizers as optimizers
    from mlx_lm.quant.dwq import dwq_quantize
    from mlx_lm.utils import load_model, quantize_model

    teacher, config = load_model(source["llama"])
    student, _ = load_model(source["llama"])
    student, config = quantize_model(student, config, 64, 4)
    before = mx.array(student.model.layers[0].self_attn.q_proj.scales)
    rows = [(row, 0) for row in data().tolist()]
    opt = optimizers.Adam(learning_rate=1e-4, bias_correction=True)
    dwq_quantize(student, lambda batch, *_, **__: teacher(batch), opt, rows, rows, 2, 32, 0, dtype=mx.float32)
    assert not mx.array_equal(student.model.layers[0].self_attn.q_proj.scales, before)
    _, told = agrees(saved(tmp_path / "mlx", student, config))
    assert not told
