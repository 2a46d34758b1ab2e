"""The bridge to mlx-lm: whom it serves, what it loads, what it tells, and what it refuses.

Every architecture is held to the same in tests/parity/test_mlx_lm.py; these are a few of different kinds.
"""

import json
import subprocess
import sys
import warnings

import pytest
from click.testing import CliRunner

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from tests.helpers.mlx_lm_configs import VOCAB, load, small, write
from zoo.architecture import Architecture, Rename, hookimpl
from zoo.checkpoint.convert import convert
from zoo.checkpoint.parameters import parameters_of
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.cli.compare import compare
from zoo.cli.show import show
from zoo.cli.test import test as suite
from zoo.config import Config
from zoo.describe import describe, facts_of, fields_of
from zoo.describe.plugin_card import card
from zoo.errors import CheckpointError, ConfigError, PromptError, SourceError, ZooError
from zoo.host.registry import default_registry, isolated
from zoo.host.resolve import resolve
from zoo.testing import same
from zoo_mlx_lm import modules
from zoo_mlx_lm.block import measured
from zoo_mlx_lm.spelling import older_keys

# Dense; windows and a head that the tensors decide to tie; states; attention and states; experts and latents.
KINDS = ["helium", "Klear", "rwkv7", "lfm2-vl", "longcat_flash", "recurrent_gemma"]
LENGTH = 14
pytestmark = pytest.mark.usefixtures("interpreted")


def texts(count=1, length=LENGTH):
    return mx.random.randint(0, VOCAB, (count, length), key=mx.random.key(1))


def logits(network, tokens=None):
    tokens = texts() if tokens is None else tokens
    return network(tokens, cache=make_prompt_cache(network))


def config(folder, **changes):
    path = folder / "config.json"
    values = {k: v for k, v in (json.loads(path.read_text()) | changes).items() if v != "absent"}
    path.write_text(json.dumps(values))


# Whom it serves


def test_what_the_zoo_has_itself_is_not_listed_and_may_be_asked_for():
    known = default_registry()
    assert "mlx-lm::helium" in known.bridged and "mlx-lm::llama" not in known.bridged
    assert not any(name.startswith("mlx-lm") for name in known.architectures)
    assert known.architecture("mlx-lm::llama").bridged
    assert resolve(known, {"model_type": "llama"}) is known.architecture("llama")
    assert resolve(known, {"model_type": "helium"}) is known.architecture("mlx-lm::helium")


def test_mlx_lms_other_names_are_followed_unless_the_zoo_has_them():
    known = default_registry()
    assert resolve(known, {"model_type": "falcon_mamba"}).name == "mlx-lm::mamba"
    assert resolve(known, {"model_type": "mistral"}).name == "mistral"  # mlx-lm's llama
    three = {"model_type": "bailing_hybrid", "architectures": ["BailingMoeV3ForCausalLM"]}
    assert resolve(known, three).name == "mlx-lm::bailing_moe_v3"
    with pytest.raises(ConfigError, match="model_type 'olmo99' is of no architecture"):
        resolve(known, {"model_type": "olmo99"})


def test_a_third_partys_architecture_comes_first():
    class Theirs:
        @hookimpl
        def zoo_architectures(self):
            yield Architecture("mine", "s", lambda config: None, (Rename("*", "*"),), model_types=("helium",))

    known = isolated(Theirs())
    assert resolve(known, {"model_type": "helium"}).name == "mine"
    assert "mlx-lm::helium" not in known.bridged


def test_listing_reads_names_and_imports_nothing():
    code = (
        "import sys; from zoo.host.registry import default_registry; found = default_registry().bridged\n"
        "print(len(found), *[n for n in sys.modules if n.split('.')[0] in ('mlx', 'mlx_lm', 'transformers')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(default_registry().bridged))]
    assert {"helium", "nemotron-nas", "Klear"} <= set(modules()) and "cache" not in modules()


def test_the_list_shows_them_apart(command):
    listed = command("list").stdout
    assert (
        "helium" not in listed
        and f"\n{len(default_registry().bridged)} more run through mlx-lm's own code" in listed
    )
    plain, apart = command("list", "--all").stdout.split("more run through mlx-lm's own code")
    assert "helium" not in plain and "mlx-lm::NAME" in apart and "  Klear, afm7," in apart
    rows = json.loads(command("list", "--json").stdout)
    assert {"llama", "mlx-lm::helium"} <= {row["name"] for row in rows}
    (row,) = (p for p in json.loads(command("plugins", "--json").stdout) if p["name"] == "mlx-lm")
    assert f"mlx-lm::… ({len(modules())})" in row["gives"]


def test_its_card_names_them():
    known = default_registry()
    told = card(known.plugin("mlx-lm"), known)
    assert told.startswith("Run by another library's code: `mlx-lm::Klear`, ")


# What it loads


@pytest.mark.parametrize("module", KINDS)
def test_a_folder_of_mlx_lms_gives_its_logits_and_streams_them(module, tmp_path):
    network = write(tmp_path, module)
    loaded = zoo.load(tmp_path)
    assert loaded.architecture.name == f"mlx-lm::{module}"
    expected = logits(network)
    same(loaded.model(texts(), loaded.model.make_cache()), expected, "with a cache")
    same(loaded.model(texts()), expected, "without")
    prompt = texts()[0].tolist()
    new = zoo.generate(loaded, prompt, max_tokens=5, temperature=0.0, prefill_chunk=6).tokens
    rows = loaded.model(mx.array([prompt + new]))[0, LENGTH - 1 : -1]  # (5, V)
    for row, token in zip(rows, new, strict=True):
        assert (row.max() - row[token]).item() <= 1e-3 * (row.max() - row.min()).item()


def test_the_zoos_own_architectures_run_by_mlx_lm_too(tmp_path):
    convert("llama", tmp_path / "llama")  # which spells out the defaults that mlx-lm does not have
    mine = zoo.load(tmp_path / "llama")
    theirs = zoo.load(tmp_path / "llama", architecture="mlx-lm::llama")
    assert theirs.architecture.name == "mlx-lm::llama"
    same(theirs.model(texts()), mine.model(texts()), "logits")


def one_an_expert(folder, bits=None):
    """The layout that Hugging Face has: a matrix an expert."""
    network = write(folder, "olmoe", quantize=bits)
    tensors = {}
    for name, array in tree_flatten(network.parameters()):
        before, stacked, after = name.partition("switch_mlp.")
        for expert in range(array.shape[0] if stacked else 1):
            tensors[f"{before}experts.{expert}.{after}" if stacked else name] = (
                array[expert] if stacked else array
            )
    for file in folder.glob("model*"):
        file.unlink()
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return network


@pytest.mark.parametrize("bits", [None, 4])
def test_tensors_are_renamed_and_stacked_by_mlx_lms_code(bits, tmp_path):
    network = one_an_expert(tmp_path, bits)
    loaded = zoo.load(tmp_path, architecture="mlx-lm::olmoe")  # a family that the zoo has itself, too
    packed = [
        tensor for tensor in parameters_of(loaded.model).values() if isinstance(tensor, QuantizedMatrix)
    ]
    assert bool(packed) == bool(bits)
    same(loaded.model(texts()), logits(network), "logits")


def test_what_mlx_lm_quantized_stays_packed(tmp_path):
    network = write(tmp_path, "helium", quantize=8)
    loaded = zoo.load(tmp_path)
    held = parameters_of(loaded.model)
    assert held["network.model.layers.1.mlp.up_proj.weight"].quantization == QuantizationSpec(8, 32)
    same(loaded.model(texts()), logits(network), "logits")


@pytest.mark.parametrize("module", ["helium", "Klear", "rwkv7"])
def test_what_the_zoo_converts_mlx_lm_loads(module, tmp_path):
    write(tmp_path / "model", module)
    convert(tmp_path / "model", tmp_path / "q", quantize="4", group_size=32)
    network, loaded = load(tmp_path / "q", module), zoo.load(tmp_path / "q")
    same(loaded.model(texts()), logits(network), "logits")
    quantizations = {
        p: t.quantization for p, t in parameters_of(loaded.model).items() if isinstance(t, QuantizedMatrix)
    }
    assert QuantizationSpec(4, 32) in quantizations.values()
    if module == "Klear":  # mlx-lm keeps eight bits for what chooses the experts
        assert quantizations["network.model.layers.1.mlp.gate.weight"].bits == 8


def test_an_adapter_that_mlx_lm_trained(tmp_path):
    from mlx_lm.tuner.utils import linear_to_lora_layers

    network = write(tmp_path / "model", "helium")
    how = dict(rank=2, scale=2.0, dropout=0.0)
    network.freeze()
    linear_to_lora_layers(network, 2, how)
    drawn = {
        name: 0.1 * mx.random.normal(array.shape, key=mx.random.key(len(name)))
        for name, array in tree_flatten(network.trainable_parameters())
    }
    network.load_weights(list(drawn.items()), strict=False)
    (tmp_path / "adapter").mkdir()
    mx.save_safetensors(str(tmp_path / "adapter" / "adapters.safetensors"), drawn)
    settings = dict(fine_tune_type="lora", num_layers=2, lora_parameters=how)
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    loaded = zoo.load(tmp_path / "model", adapter=tmp_path / "adapter")
    same(loaded.model(texts()), logits(network), "logits")


@pytest.mark.parametrize("module", ["helium", "lfm2-vl", "longcat_flash"])
def test_beams_keep_the_caches_of_their_rows(module, tmp_path):
    write(tmp_path, module)
    loaded = zoo.load(tmp_path)
    prompt = texts()[0].tolist()

    def score(new):
        rows = loaded.model(mx.array([prompt + new]))[0, LENGTH - 1 : -1].astype(mx.float32)
        chosen = mx.take_along_axis(rows, mx.array(new)[:, None], axis=-1)[:, 0]
        return (chosen - mx.logsumexp(rows, axis=-1)).sum().item()

    greedy = zoo.generate(loaded, prompt, max_tokens=5, temperature=0.0).tokens
    wide = zoo.generate(loaded, prompt, max_tokens=5, beams=4).tokens
    assert score(wide) >= score(greedy) - 1e-4


@pytest.mark.slow
def test_it_holds_what_every_model_must(tmp_path):
    write(tmp_path, "lfm2-vl")
    done = CliRunner().invoke(suite, [str(tmp_path)])
    assert done.exit_code == 0 and "none failed" in done.output


# What it tells


def test_facts_are_those_of_the_model(tmp_path):
    network = write(tmp_path, "lfm2-vl")
    found = describe(str(tmp_path), default_registry())
    recipe = found.recipe
    assert found.architecture.name == "mlx-lm::lfm2-vl"
    assert recipe.parameters(recipe.dim) == sum(a.size for _, a in tree_flatten(network.parameters()))
    cache = make_prompt_cache(network)
    mx.eval(network(texts(), cache=cache))
    states = sum(a.size for c in cache for a in getattr(c, "cache", []))
    keys = sum(c.keys.shape[1] * c.keys.shape[3] * 2 for c in cache if hasattr(c, "keys"))
    assert recipe.state_size(recipe.dim) == states > 0 and recipe.kv_cache_size(recipe.dim) == keys > 0
    sheet, fields = facts_of(recipe), {fact.name: fact.value for fact in fields_of(recipe)}
    assert sheet.value("layers") == 4 and fields["text_config.conv_L_cache"] == 3
    assert sheet.value("cache.state") == states * 4 and sheet.value("cache.token") == keys * 2
    assert sheet.get("flops.decode") is None and sheet.get("parameters.active") is None  # not known
    assert (
        sheet.value("weights.4") is None
        and sheet.value("weights.float32") == sheet.value("parameters.total") * 4
    )


def test_a_model_is_measured_without_being_held():
    large = dict(hidden_size=8192, num_hidden_layers=64, num_attention_heads=64, num_key_value_heads=8)
    config = small("helium") | dict(intermediate_size=28672, vocab_size=100352, head_dim=128) | large
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    recipe = default_registry().architecture("mlx-lm::helium").recipe(Config(config))
    assert recipe.parameters(recipe.dim) > 50e9 and recipe.kv_cache_size(recipe.dim) == 64 * 2 * 8 * 128
    assert mx.get_peak_memory() - before < 10e6


def test_layers_that_a_step_does_not_reach_are_taken_to_be_like_those_it_does():
    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(8, 8) for _ in range(4)]

        def __call__(self, tokens, cache):
            keys = mx.zeros((1, 2, tokens.shape[1], 4)) + tokens[0, 0]
            for layer_cache in cache:
                layer_cache.update_and_fetch(keys, keys)
                if (
                    layer_cache is cache[1] and mx.sum(keys).item() > 1
                ):  # a value: no shape alone leads past it
                    break
            return mx.zeros((*tokens.shape, 9))

    mx.enable_compile()  # nothing is: a step is followed by its shapes alone
    try:
        assert measured(Looking(), "looking") == (None, 4 * 2 * 2 * 4, 0)
    finally:
        mx.disable_compile()


def test_show_and_compare_take_folders(tmp_path):
    write(tmp_path / "model", "helium")
    shown = CliRunner().invoke(show, [str(tmp_path / "model")]).stdout
    assert "mlx-lm::helium" in shown and "intermediate_size" in shown
    compared = CliRunner().invoke(compare, ["llama:pocket", str(tmp_path / "model"), "--all"])
    assert str(tmp_path / "model") in compared.stdout and "≠  hidden_size" in compared.stdout
    with pytest.raises(SourceError, match="mlx-lm::helium has no numbers of its own"):
        describe("mlx-lm::helium", default_registry())
    with pytest.raises(SourceError, match="mlx-lm::helium has no checkpoint of its own"):
        zoo.load("mlx-lm::helium")


# What it refuses


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(model_file="modeling.py"), "model_file 'modeling.py' names code of the checkpoint"),
        (dict(hidden_size="absent"), "config.json: hidden_size is missing"),
        (dict(hidden_size=None), "mlx-lm::helium cannot be made of these settings (TypeError"),
        (dict(num_hidden_layers=10**9), "num_hidden_layers 1000000000 must be at most 2000"),
        (dict(num_attention_heads="four"), "mlx-lm::helium cannot be made of these settings"),
        (dict(num_key_value_heads=3), "mlx-lm::helium does not run with these settings"),
        (dict(intermediate_size=80), "expected shape (80, 64), found (96, 64)"),
        (dict(num_hidden_layers=5), "missing tensor model.layers.4."),
        (dict(num_hidden_layers=3), "unexpected tensor model.layers.3."),
    ],
)
def test_a_damaged_folder_is_one_line(changes, words, tmp_path):
    write(tmp_path, "helium")
    config(tmp_path, **changes)
    with pytest.raises(ZooError) as caught:
        zoo.load(tmp_path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_tensors_that_mlx_lms_code_cannot_take(tmp_path):
    write(tmp_path, "longcat_flash")
    tensors = mx.load(str(tmp_path / "model.safetensors"))
    tensors["model.layers.2.mlp.experts.0.gate_proj.weight"] = mx.zeros((48, 64))  # and not the others
    mx.save_safetensors(str(tmp_path / "model.safetensors"), tensors)
    with pytest.raises(
        CheckpointError, match=r"mlx-lm::longcat_flash cannot take these tensors: no 'model\.layers"
    ):
        zoo.load(tmp_path)


def test_a_module_that_exits_when_imported():
    with pytest.raises(ConfigError, match=r"mlx-lm::olmo cannot be imported \(SystemExit"):
        default_registry().architecture("mlx-lm::olmo").recipe(Config({"model_type": "olmo"}))


def test_padded_rows_and_the_other_layout_are_refused(tmp_path):
    write(tmp_path / "model", "helium")
    with pytest.raises(PromptError, match="mlx-lm::helium takes no padded rows"):
        zoo.load(tmp_path / "model").model(texts(), mask=mx.ones((1, LENGTH)))
    with pytest.raises(ZooError, match="`layout` hf: of mlx-lm::helium only MLX's names are known"):
        convert(tmp_path / "model", tmp_path / "out", layout="hf")
    assert not (tmp_path / "out").exists()


# Configs as transformers 5 writes them


def test_rope_parameters_say_what_older_keys_said(tmp_path):
    write(tmp_path, "solar_open")
    config(tmp_path, rope_theta=300.0, partial_rotary_factor=0.5)
    expected = zoo.load(tmp_path).model(texts())
    rope = dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5)
    config(tmp_path, rope_theta="absent", partial_rotary_factor="absent", rope_parameters=rope)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = zoo.load(tmp_path)
    same(loaded.model(texts()), expected, "logits")
    assert loaded.model.spec.config["rope_theta"] == 300.0


def test_a_scaling_in_rope_parameters_is_taken_or_refused_by_name(tmp_path):
    rope = dict(rope_type="linear", factor=2.0, rope_theta=300.0)
    values = dict(rope_parameters=rope, hidden_size=8, num_attention_heads=2)
    fields = ("rope_theta", "rope_scaling", "head_dim")
    assert older_keys(values, fields) == dict(
        rope_theta=300.0, rope_scaling=dict(type="linear", rope_type="linear", factor=2.0), head_dim=4
    )
    assert older_keys(values | dict(rope_theta=5.0, rope_scaling={}), fields) == dict(head_dim=4)
    with pytest.raises(ConfigError, match=r"config\.json: rope_parameters\.rope_type 'linear' is not impl"):
        older_keys(values, ("rope_theta",))
    default = dict(rope_parameters=dict(rope_theta=300.0))
    assert older_keys(default, fields) == dict(rope_theta=300.0, rope_scaling=None)


def test_newer_names_fill_older_ones_that_are_missing():
    values = dict(num_hidden_layers=3, num_local_experts=4, mlp_layer_types=["dense", "sparse"])
    fields = ("num_layers", "num_experts", "is_moe_layer", "layer_norm_epsilon")
    assert older_keys(values, fields) == dict(num_layers=3, num_experts=4, is_moe_layer=[False, True])
    assert older_keys(values | dict(num_experts=8), ("num_experts",)) == {}


def test_what_no_field_takes_of_rope_parameters_is_warned_of(tmp_path):
    write(tmp_path, "gemma")
    config(tmp_path, rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5))
    with pytest.warns(UserWarning, match="rope_parameters"):
        zoo.load(tmp_path)


def test_a_text_model_saved_alone_is_run_by_the_whole_models_module():
    known = default_registry()
    assert resolve(known, {"model_type": "pixtral_text"}).name == "mlx-lm::pixtral"
    with pytest.raises(ConfigError, match="model_type 'olmo99_text' is of no architecture"):
        resolve(known, {"model_type": "olmo99_text"})
