"""`zoo new NAME --from FOLDER` on folders that transformers writes: what is left to type, and the logits then."""

import importlib

import pytest
import torch
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    PegasusConfig,
    PegasusForConditionalGeneration,
    Phi3Config,
    Phi3ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
)

import zoo
from zoo.host.registry import isolated, using
from zoo_new.from_checkpoint import create_from
from zoo_new.write_plugin import imported

from .support import TOLERANCE, agrees, difference, reference, texts

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

VOCAB = 99
SMALL = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
MOST_TYPED = 10  # lines


def equals_the_reference(model, tmp_path, typed=(), compare=agrees, base=None):
    """Write the plugin, replace lines by those of `typed`, (old, new) each, and compare the logits; gives what was told.

    `base` is the family where the zoo has the architecture itself, None for the nearest.
    """
    model.save_pretrained(tmp_path / "checkpoint")
    told = create_from("child", tmp_path / "checkpoint", where=tmp_path, base=base)
    file = tmp_path / "child" / "zoo_child" / "__init__.py"
    code = file.read_text()
    for old, new in typed:
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    file.write_text(code)
    lines = [line for old, new in typed for line in new.splitlines() if line not in old.splitlines()]
    assert len(lines) <= MOST_TYPED
    importlib.invalidate_caches()
    with imported("zoo_child", tmp_path / "child") as module, using(isolated(module)):
        compare(model, zoo.load(tmp_path / "checkpoint"), VOCAB)
    return told


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(
    "extra",
    [
        dict(),
        dict(norm_topk_prob=True, rms_norm_eps=1e-3),
        dict(tie_word_embeddings=True, num_experts=8, num_experts_per_tok=3),
    ],
)
def test_olmoe_needs_nothing_typed(tmp_path, kv_heads, extra):
    settings = dict(intermediate_size=24, num_experts=6, num_experts_per_tok=2) | extra
    model = reference(OlmoeForCausalLM, OlmoeConfig(**SMALL, num_key_value_heads=kv_heads, **settings))
    told = equals_the_reference(model, tmp_path, base="qwen3-moe")  # the zoo has the family itself
    assert "from the family qwen3-moe" in told and "TODO" not in told


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("bias", [False, True])
def test_stablelm_needs_nothing_typed(tmp_path, bias):
    config = StableLmConfig(**SMALL, num_key_value_heads=2, intermediate_size=48, use_qkv_bias=bias)
    told = equals_the_reference(reference(StableLmForCausalLM, config), tmp_path, base="llama")
    assert "from the family llama" in told and "TODO" not in told


def test_phi3_needs_its_guesses_accepted(tmp_path):
    config = Phi3Config(**SMALL, num_key_value_heads=2, intermediate_size=48)
    model = reference(Phi3ForCausalLM, config)
    model.save_pretrained(tmp_path / "checkpoint")
    told = create_from("other", tmp_path / "checkpoint", where=tmp_path, base="llama")
    rules = [
        line.partition(": Split(")[2].rpartition(")")[0] for line in told.splitlines() if "Split(" in line
    ]
    assert len(rules) == 2
    accepted = "".join(f"    Split({rule}),\n" for rule in rules)
    typed = [
        ("from zoo.architecture import Architecture,", "from zoo.architecture import Split, Architecture,"),
        ("OWN = (\n", f"OWN = (\n{accepted}"),
    ]
    equals_the_reference(model, tmp_path, typed, base="llama")


@pytest.mark.filterwarnings("error:config.json")
def test_granite_needs_its_multipliers(tmp_path):
    numbers = dict(
        embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=8.0
    )
    config = GraniteConfig(**SMALL, num_key_value_heads=2, intermediate_size=48, **numbers)
    typed = [
        (
            "    return zoo_llama.llama(config)\n",
            '    mixer = dict(scale=config.number("attention_multiplier"))\n'
            "    return (\n"
            "        zoo_llama.llama(config)\n"
            '        .change_layers(mixer=mixer, residual_scale=config.number("residual_multiplier"))\n'
            "        .change(\n"
            '            embedding=dict(scale=config.number("embedding_multiplier")),\n'
            '            head=dict(scale=1 / config.number("logits_scaling")),\n'
            "        )\n"
            "    )\n",
        )
    ]
    told = equals_the_reference(reference(GraniteForCausalLM, config), tmp_path, typed, base="llama")
    assert 'logits_scaling": 8.0, divides the logits: head.scale' in told


def test_smollm3_needs_its_layers_without_positions(tmp_path):
    config = SmolLM3Config(**SMALL, num_key_value_heads=2, intermediate_size=48, no_rope_layers=[1, 0])
    typed = [
        (
            "    return recipe.change_layers(\n        mixer=dict(\n            bias=False,\n        ),\n    )\n",
            '    rotates = config["no_rope_layers"]\n'
            "    return recipe.change_layers(\n"
            "        lambda index, layer: dict(\n"
            "            mixer=dict(bias=False, rope=layer.mixer.rope if rotates[index] else None)\n"
            "        )\n"
            "    )\n",
        )
    ]
    told = equals_the_reference(reference(SmolLM3ForCausalLM, config), tmp_path, typed, base="qwen2")
    assert 'qwen2 does not read "no_rope_layers": [1, 0], 0 for each layer without' in told


def test_roberta_needs_its_head_and_positions(tmp_path):
    config = RobertaConfig(
        **SMALL | dict(pad_token_id=1, bos_token_id=0), intermediate_size=48, type_vocab_size=1
    )
    typed = [
        (
            "    return zoo_bert.bert(config)\n",
            "    recipe = zoo_bert.bert(config)\n"
            "    positions = LearnedPositions(recipe.context - 2, offset=2)\n"
            '    norm, parts = recipe.layers[0].mixer_norm, dict(tied=True, bias=True, activation="gelu")\n'
            "    head = zoo_bert.MaskedHead(vocab=recipe.vocab, norm=norm, **parts)\n"
            "    return recipe.change(embedding=dict(positions=positions), head=head, context=positions.context)\n",
        ),
        (
            "OWN = (\n",
            "OWN = (\n"
            '    Rename("lm_head.dense.*", "head.dense.*"),\n'
            '    Rename("lm_head.layer_norm.*", "head.norm.*"),\n'
            '    Rename("lm_head.bias", "head.bias"),\n',
        ),
        ("import zoo_bert\n", "import zoo_bert\nfrom zoo.recipe import LearnedPositions\n"),
    ]

    def compare(model, loaded, vocab):
        tokens = texts(vocab - 2, 2, 17) + 2  # 1 is padding, which moves the positions
        with torch.no_grad():
            expected = model(torch.tensor(tokens)).logits
        assert difference(loaded.model(mx.array(tokens)), expected) <= TOLERANCE

    model = reference(RobertaForMaskedLM, config)
    told = equals_the_reference(model, tmp_path, typed, compare, base="bert")  # the zoo has RoBERTa itself
    assert "from the family bert" in told


def test_pegasus_needs_its_positions(tmp_path):
    sides = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in SIDE.items()}
    config = PegasusConfig(vocab_size=VOCAB, d_model=32, max_position_embeddings=64, **sides)
    typed = [
        ("import zoo_translation\n", "import zoo_translation\nfrom zoo.recipe import SinusoidalPositions\n"),
        (
            "    return zoo_translation.recipes.m2m_100(config)\n",
            "    recipe = zoo_translation.recipes.m2m_100(config)\n"
            "    side = dict(embedding=dict(positions=SinusoidalPositions(interleaved=False)))\n"
            "    return recipe.change(encoder=side, decoder=side)\n",
        ),
    ]

    def compare(model, loaded, vocab):
        source, target = texts(vocab, 2, 17), texts(vocab, 2, 9, seed=1)
        with torch.no_grad():
            expected = model(input_ids=torch.tensor(source), decoder_input_ids=torch.tensor(target)).logits
        assert difference(loaded.model(mx.array(source), mx.array(target)), expected) <= TOLERANCE

    model, sinusoids = reference(PegasusForConditionalGeneration, config), {}
    for name, parameter in PegasusForConditionalGeneration(config).named_parameters():
        if "embed_positions" in name:  # a parameter that is not trained
            sinusoids[name] = parameter
    model.load_state_dict(sinusoids, strict=False)
    told = equals_the_reference(model, tmp_path, typed, compare, base="m2m-100")  # the zoo has Pegasus itself
    assert '"model.encoder.embed_positions.weight" (64, 32) is ignored by m2m-100' in told


SIDE = dict(layers=2, attention_heads=4, ffn_dim=48)
