"""`zoo new NAME --from FOLDER`: a plugin for a checkpoint, from the nearest family, and what is left to do."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys

import mlx.core as mx
import pytest

import zoo
from zoo.assemble import assemble
from zoo.checkpoint.parameters import export
from zoo.config import Config
from zoo.errors import CheckpointError, ConfigError, ZooError
from zoo.host.registry import default_registry, isolated
from zoo.recipe import JointRMSNorm, LayerNorm
from zoo_new.from_checkpoint import create_from, key_meanings
from zoo_new.search_plan import config_value, constant, norm_of, of_layer
from zoo_new.write_plugin import imported

LLAMA = dict(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=64,
)
MOE = LLAMA | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
BERT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=64)
BART = dict(
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_position_embeddings=64,
    vocab_size=64,
)


def tensors_of(name, config):
    """The tensors of an architecture's model, by their names in its checkpoints."""
    architecture = default_registry().architecture(name)
    recipe = architecture.recipe(Config(config))
    return export(assemble(recipe, default_registry()), architecture, recipe)


def checkpoint(folder, config, tensors):
    """A folder with this config and these tensors."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def code_in(tmp_path):
    return (tmp_path / "child" / "zoo_child" / "__init__.py").read_text()


def loads(tmp_path, folder):
    """The checkpoint's architecture, as the new plugin loads it."""
    with imported("zoo_child", tmp_path / "child") as module:
        return zoo.load(folder, registry=isolated(module)).architecture.name


def test_a_size_under_another_key_and_a_norm_over_all_heads_are_found(tmp_path):
    tensors = tensors_of("qwen3-moe", MOE)
    for name in [name for name in tensors if name.endswith(("q_norm.weight", "k_norm.weight"))]:
        tensors[name] = mx.ones((32 if ".q_norm" in name else 16,))
    config = LLAMA | dict(intermediate_size=24, num_experts=4, num_experts_per_tok=2, model_type="odd-moe")
    folder = checkpoint(tmp_path / "checkpoint", config, tensors)
    told = create_from("child", folder, base="qwen3-moe", where=tmp_path)
    code = code_in(tmp_path)
    assert "from the family qwen3-moe" in told and "TODO" not in told + code
    assert 'moe_intermediate_size=config.count("intermediate_size")' in code
    assert "key_norm=JointRMSNorm(heads=layer.mixer.kv_heads, eps=layer.mixer_norm.eps)" in code
    assert loads(tmp_path, folder) == "child"


def test_layer_norms_biases_and_flags_are_found(tmp_path):
    tensors = tensors_of("llama", LLAMA | dict(attention_bias=True))
    tensors = {name: array for name, array in tensors.items() if not name.endswith("o_proj.bias")}
    norms = [name for name in tensors if name.endswith("norm.weight")]
    tensors |= {name.replace("weight", "bias"): mx.zeros((32,)) for name in norms}
    more = dict(norm_eps=1e-3, use_qkv_bias=True, hidden_dropout=0.1, qk_norm=False, scores_times=3.5)
    folder = checkpoint(tmp_path / "checkpoint", LLAMA | more | dict(model_type="odd"), tensors)
    told = create_from("child", folder, where=tmp_path, base="llama")
    code = code_in(tmp_path)
    assert 'mixer_norm=LayerNorm(eps=config.number("norm_eps"))' in code
    assert 'bias=config.flag("use_qkv_bias", False)' in code
    assert '    config.ignore(\n        "hidden_dropout",\n    )\n' in code
    assert '    config.refuse("qk_norm")  # False in the checkpoint\n' in code
    assert '    # "scores_times": 3.5\n' in code and 'llama does not read "scores_times": 3.5\n' in told
    with pytest.warns(UserWarning, match="scores_times"):
        assert loads(tmp_path, folder) == "child"


def test_what_a_known_key_means_is_said(tmp_path):
    config = LLAMA | dict(model_type="odd", residual_multiplier=0.22)
    folder = checkpoint(tmp_path / "checkpoint", config, tensors_of("llama", LLAMA))
    told = create_from("child", folder, where=tmp_path, base="llama")
    meant = '"residual_multiplier": 0.22, multiplies what is added to the residual stream: layers.residual_scale\n'
    assert f"llama does not read {meant}" in told
    assert meant in re.sub(r"\n +# +", " ", code_in(tmp_path))


def test_the_fields_that_keys_are_said_to_mean_are_fields():
    recipes = [
        default_registry().architecture(name).recipe(Config(config))
        for name, config in (("llama", LLAMA), ("qwen2-moe", MOE | dict(shared_expert_intermediate_size=24)))
    ]
    for text in key_meanings().values():
        for path in re.findall(r": ((?:layers|embedding|head)[\w.]*)", text):
            steps = path.replace("layers.", "layers.0.").split(".")
            assert any(has_field(recipe, steps) for recipe in recipes), path


def has_field(here, steps):
    """Whether the steps lead from a recipe to a field."""
    for step in steps:
        if not step.isdecimal() and not hasattr(here, step):
            return False
        here = here[int(step)] if step.isdecimal() else getattr(here, step)
    return True


def test_tensors_of_another_prefix_get_rules(tmp_path):
    tensors = {f"odd.{name}": array for name, array in tensors_of("bert", BERT).items()}
    folder = checkpoint(tmp_path / "checkpoint", BERT | dict(model_type="odd"), tensors)
    told = create_from("child", folder, where=tmp_path)
    code = code_in(tmp_path)
    assert "from the family bert" in told
    assert 'layer.{i}.attention.self.query.*", "layers.{i}.mixer.query.*"),\n' in code


def test_an_encoder_decoder_is_read(tmp_path):
    config = BART | dict(model_type="odd", odd_factor=2.0)
    folder = checkpoint(tmp_path / "checkpoint", config, tensors_of("bart", BART))
    told = create_from("child", folder, where=tmp_path)
    assert "from the family bart" in told and 'bart does not read "odd_factor": 2.0\n' in told
    with pytest.warns(UserWarning, match="odd_factor"):
        assert loads(tmp_path, folder) == "child"


def test_what_has_no_place_or_is_a_guess_is_a_line_to_do(tmp_path):
    tensors = tensors_of("llama", LLAMA)
    for index in range(2):
        at = f"model.layers.{index}"
        parts = [tensors.pop(f"{at}.self_attn.{part}_proj.weight") for part in "qkv"]
        tensors[f"{at}.self_attn.qkv_proj.weight"] = mx.concatenate(parts)
        tensors[f"{at}.odd_gain.weight"] = mx.ones((7,))
        tensors[f"{at}.first_layernorm.weight"] = tensors.pop(f"{at}.input_layernorm.weight")
    folder = checkpoint(tmp_path / "checkpoint", LLAMA | dict(model_type="odd"), tensors)
    told = create_from("child", folder, where=tmp_path, base="llama")
    assert '"model.layers.{i}.odd_gain.weight" (7,) has no place in llama' in told
    assert 'Rename("model.layers.{i}.first_layernorm.*", "layers.{i}.mixer_norm.*")' in told
    assert 'sizes=("heads", "kv_heads", "kv_heads")' in told
    with pytest.raises(CheckpointError, match="odd_gain"):  # a guess is not made silently
        loads(tmp_path, folder)


def test_a_far_checkpoint_is_said_to_be_far(tmp_path):
    tensors = {f"odd.{index}.{name}": mx.ones((3, 5)) for index in range(2) for name in "abcdefgh"}
    folder = checkpoint(tmp_path / "checkpoint", LLAMA | dict(model_type="odd"), tensors)
    assert f"No family of the zoo is near {folder}" in create_from("child", folder, where=tmp_path)


def test_the_package_is_clean_python_and_passes_its_tests(tmp_path):
    more = dict(model_type="odd", odd=[["long"] * 9, {"text": "x" * 70}], factors=[1.5] * 40, k=2.0)
    tensors = tensors_of("llama", LLAMA) | {"a_tensor_with_quite_a_long_name." * 4 + "weight": mx.ones((5,))}
    create_from("child", checkpoint(tmp_path / "checkpoint", LLAMA | more, tensors), where=tmp_path)
    ruff = shutil.which("ruff", path=os.path.dirname(sys.executable)) or shutil.which("ruff")
    for arguments in (["check", "--select", "E,F,I,UP,B"], ["format", "--check"]):
        done = subprocess.run(
            [ruff, *arguments, "--line-length", "110", "--isolated", "--no-cache", "."],
            cwd=tmp_path / "child",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
    with imported("zoo_child", tmp_path / "child") as module:
        zoo.testing.check_card(tmp_path / "child" / "README.md", "zoo-child", isolated(module))


STRANGE = "x\"'\n); import os; os.system('touch pwned') #"


def test_nothing_of_a_checkpoint_becomes_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = LLAMA | {
        STRANGE: 1,
        "odd": STRANGE,
        STRANGE + "init": 2,
        STRANGE + "off": 0,
        "model_type": STRANGE,
    }
    tensors = tensors_of("llama", LLAMA) | {STRANGE + ".weight": mx.ones((5,))}
    told = create_from("child", checkpoint(tmp_path / "checkpoint", config, tensors), where=tmp_path)
    assert not (tmp_path / "pwned").exists() and STRANGE not in told
    tree = ast.parse(code_in(tmp_path))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {alias.name for node in imports for alias in node.names} <= {
        *("zoo_llama", "Architecture", "Preset", "hookimpl")
    }
    assert STRANGE not in (tmp_path / "child" / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: shutil.rmtree(folder), "is not a folder"),
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "config.json"),
        (
            lambda folder: (folder / "config.json").write_text('{"hidden_size": 0}'),
            "no family of the zoo can read",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), "damaged"),
        (
            lambda folder: (folder / "config.json").write_text('{"quantization_config": {"bits": 4}}'),
            "is quantized",
        ),
    ],
)
def test_a_bad_folder_is_refused_in_one_line_and_nothing_written(tmp_path, spoil, words):
    folder = checkpoint(tmp_path / "checkpoint", LLAMA, tensors_of("llama", LLAMA))
    spoil(folder)
    with pytest.raises(ZooError, match=re.escape(words)) as caught:
        create_from("child", folder, where=tmp_path)
    assert "\n" not in str(caught.value) and not (tmp_path / "child").exists()


def test_what_the_zoo_reads_already_is_said(tmp_path):
    folder = checkpoint(tmp_path / "checkpoint", LLAMA | dict(model_type="llama"), tensors_of("llama", LLAMA))
    with pytest.raises(ZooError, match="llama reads it as it is"):
        create_from("child", folder, where=tmp_path)
    assert "from the family llama" in create_from("child", folder, where=tmp_path, base="llama")


def test_a_family_of_another_library_is_refused(tmp_path):
    folder = checkpoint(tmp_path / "checkpoint", LLAMA | dict(model_type="odd"), tensors_of("llama", LLAMA))
    with pytest.raises(ZooError, match='`base="mlx-lm::helium"`'):
        create_from("child", folder, where=tmp_path, base="mlx-lm::helium")


def test_a_checkpoint_of_a_known_type_that_does_not_fit_gets_a_plugin(tmp_path):
    tensors = tensors_of("llama", LLAMA) | {"odd.weight": mx.ones((5,))}
    folder = checkpoint(tmp_path / "checkpoint", LLAMA | dict(model_type="llama"), tensors)
    assert '"odd.weight" (5,) has no place in llama' in create_from("child", folder, where=tmp_path)


def test_no_bridged_family_is_taken(tmp_path):
    folder = checkpoint(
        tmp_path / "checkpoint", LLAMA | dict(model_type="helium"), tensors_of("llama", LLAMA)
    )
    assert "mlx" not in create_from("child", folder, where=tmp_path).partition("Then:")[0]


def test_the_command_line(command, tmp_path):
    folder = checkpoint(tmp_path / "checkpoint", LLAMA | dict(model_type="odd"), tensors_of("llama", LLAMA))
    done = command("new", "child", "--from", str(folder))
    assert done.returncode == 0 and "child: written, from the family llama" in done.stdout
    wrong = command("new", "other", "--from", str(folder), "--kind", "encoder")
    assert wrong.returncode == 2 and "--from" in wrong.stderr
    bad = command("new", "other", "--from", str(tmp_path / "nowhere"))
    assert bad.returncode == 1 and bad.stderr.count("\n") == 1 and not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "expression",
    [
        constant(7),
        constant(True),
        config_value("count", "hidden_size"),
        config_value("flag", "odd_bias", False),
        of_layer("mixer.kv_heads"),
        norm_of(LayerNorm, eps=of_layer("mixer_norm.eps")),
        norm_of(JointRMSNorm, heads=of_layer("mixer.heads"), eps=config_value("number", "rms_norm_eps")),
    ],
    ids=lambda expression: expression.code,
)
def test_the_code_of_an_expression_says_what_it_computes(expression):
    config = Config(LLAMA | dict(rms_norm_eps=1e-5))
    recipe = default_registry().architecture("llama").recipe(config)
    names = dict(config=config, layer=recipe.layers[0], LayerNorm=LayerNorm, JointRMSNorm=JointRMSNorm)
    assert eval(expression.code, names) == expression.compute(config, recipe)


REFUSED = {
    "rope_parameters.llama_4_scaling_beta": (
        dict(rope_parameters=dict(rope_type="default", rope_theta=1e4, llama_4_scaling_beta=0.1)),
        'config = config.replaced(rope_parameters=dict(config["rope_parameters"], llama_4_scaling_beta=None))',
    ),
    "hidden_act": (dict(hidden_act="mystery"), "config = config.replaced(hidden_act=None)"),
}


@pytest.mark.parametrize("base", [None, "llama"])
@pytest.mark.parametrize("key", REFUSED)
def test_a_family_that_refuses_a_key_is_near_and_the_key_is_left_to_do(tmp_path, key, base):
    more, line = REFUSED[key]
    folder = checkpoint(
        tmp_path / "checkpoint", LLAMA | more | dict(model_type="odd"), tensors_of("llama", LLAMA)
    )
    told = create_from("child", folder, where=tmp_path, base=base)
    code = code_in(tmp_path)
    assert "from the family llama: 12 of 12 kinds" in told and f'llama refuses "{key}": ' in told
    assert "TODO: llama refuses these keys." in code and f"    # {line}\n" in code
    with pytest.raises(ConfigError, match=key):
        loads(tmp_path, folder)
    written = tmp_path / "child" / "zoo_child" / "__init__.py"
    written.write_text(code.replace(f"# {line}", line))
    assert loads(tmp_path, folder) == "child"


def test_a_key_that_is_wrong_in_every_family_is_named(tmp_path):
    folder = checkpoint(tmp_path / "checkpoint", LLAMA | dict(hidden_size="a"), tensors_of("llama", LLAMA))
    with pytest.raises(ConfigError, match="hidden_size 'a' expected a whole number"):
        create_from("child", folder, where=tmp_path, base="llama")
