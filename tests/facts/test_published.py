"""Counts are the published ones: parameters of checkpoints on the hub, as their safetensors or their libraries count them."""

import pytest

from zoo.facts import described, facts_of
from zoo.host.registry import default_registry

# Preset, parameters, source, and how many of those the zoo does not have (or has more) and why.
PUBLISHED = [
    ("gpt2:small", 124_439_808, "transformers' GPT2LMHeadModel of openai-community/gpt2", 0),
    ("gpt:117m", 116_534_784, "transformers' OpenAIGPTLMHeadModel of openai-community/openai-gpt", 0),
    ("llama:8b", 8_030_261_248, "safetensors of meta-llama/Llama-3.1-8B on its hub page", 0),
    ("mistral:7b", 7_241_732_096, "safetensors of mistralai/Mistral-7B-v0.1 on its hub page", 0),
    ("qwen2:7b", 7_615_616_512, "safetensors of Qwen/Qwen2.5-7B on its hub page", 0),
    ("qwen3:0.6b", 596_049_920, "transformers' Qwen3ForCausalLM of Qwen/Qwen3-0.6B, head tied", 0),
    ("mixtral:8x7b", 46_702_792_704, "safetensors of mistralai/Mixtral-8x7B-v0.1 on its hub page", 0),
    ("qwen2-moe:a2.7b", 14_315_784_192, "safetensors of Qwen/Qwen1.5-MoE-A2.7B; keras-hub's preset", 0),
    ("qwen3-moe:30b-a3b", 30_532_122_624, "safetensors of Qwen/Qwen3-30B-A3B on its hub page", 0),
    ("gpt-oss:20b", 20_914_757_184, "general.parameter_count of gpt-oss-20b's GGUF files", 0),
    ("gemma2:2b", 2_614_341_888, "safetensors of google/gemma-2-2b on its hub page", 0),
    (
        "deepseek-v3:671b",
        671_026_419_200,
        "the main model of deepseek-ai/DeepSeek-V3, without its MTP layer",
        0,
    ),
    ("mamba:2.8b", 2_768_345_600, "state-spaces/mamba-2.8b's own count", 0),
    ("mamba:130m", 129_135_360, "transformers' MambaForCausalLM of state-spaces/mamba-130m-hf", 0),
    ("bert:base", 109_514_298, "transformers' BertForMaskedLM of google-bert/bert-base-uncased", 0),
    # The checkpoint's pooler, a matrix and a bias of width 384, is not what sentence vectors are made with.
    ("bert:minilm", 22_713_216, "sentence-transformers/all-MiniLM-L6-v2 on its hub page", 384 * 385),
    # transformers holds the bias on the logits as a buffer, which it does not count.
    ("bart:large", 406_291_456, "transformers' BartForConditionalGeneration of facebook/bart-large", -50_265),
    ("m2m-100:nllb-600m", 615_073_792, "transformers' count of facebook/nllb-200-distilled-600M", 0),
    ("t5:small", 60_506_624, "transformers' T5ForConditionalGeneration of google-t5/t5-small", 0),
    ("mt5:small", 300_176_768, "transformers' MT5ForConditionalGeneration of google/mt5-small", 0),
]


@pytest.mark.parametrize(("preset", "published", "source", "left_out"), PUBLISHED, ids=lambda v: str(v)[:20])
def test_parameters_are_as_many_as_published(preset, published, source, left_out):
    recipe = described(preset, default_registry())[2]
    assert facts_of(recipe).value("parameters.total") == published - left_out, source


def test_active_parameters_are_those_that_papers_round():
    for preset, billions in (("mixtral:8x7b", 12.9), ("deepseek-v3:671b", 37.6), ("qwen2-moe:a2.7b", 2.7)):
        active = facts_of(described(preset, default_registry())[2]).value("parameters.active")
        assert round(active / 1e9, 1) == billions


@pytest.mark.parametrize("name", sorted(default_registry().architectures))
def test_parts_add_up_to_the_whole(name):
    for preset in default_registry().architecture(name).presets:
        if preset.config is not None:
            sheet = facts_of(described(f"{name}:{preset.name}", default_registry())[2])
            parts = {fact.name: fact.value for fact in sheet if fact.name.startswith("parameters.")}
            whole = parts.pop("parameters.total")
            parts.pop("parameters.active")
            assert sum(parts.values()) == whole and "parameters.other" not in parts
