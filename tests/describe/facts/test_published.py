"""Counts are the published ones.

Counted is what a checkpoint's tensors hold, or what transformers' model of it lists as parameters: a tied head once, no
buffers. The sources are those that the numbers were read from.
"""

import pytest

from zoo.describe import describe, facts_of
from zoo.host.registry import default_registry

HEADERS = "total_size of the checkpoint's model.safetensors.index.json, 2 bytes a parameter"
GGUF = "general.parameter_count of its GGUF file, as Ollama shows it"
GGUF_LOAD = "its GGUF file, as llama.cpp prints it"
INDEX = "total_parameters of the checkpoint's model.safetensors.index.json"
REGISTERS = "the total of the checkpoint's safetensors, in lists of models"
COUNTED = "the sum over model.parameters() of transformers' model, as printed by"

# Preset, parameters, where that was read, and how many of those the zoo does not have (or has more) and why.
PUBLISHED = [
    ("gpt2:small", 124_439_808, f"{COUNTED} a module tree of GPT2LMHeadModel; head tied", 0),
    (
        "gpt:117m",
        116_534_784,
        f"{COUNTED} tests of reimplementations, for AutoModelForCausalLM; head tied",
        0,
    ),
    ("llama:8b", 8_030_261_248, f"{HEADERS}: 16,060,522,496; {GGUF}; head not tied", 0),
    ("llama:70b", 70_553_706_496, f"{HEADERS}: 141,107,412,992; head not tied", 0),
    ("llama:1b", 1_235_814_400, f"{COUNTED} evaluations of Llama-3.2-1B-Instruct; head tied", 0),
    ("llama3.2:3b", 3_212_749_824, f"{REGISTERS}; head tied", 0),
    ("llama3.1:8b", 8_030_261_248, f"{REGISTERS}; head not tied", 0),
    ("llama3.3:70b", 70_553_706_496, f"{REGISTERS}; head not tied", 0),
    ("smollm2:1.7b", 1_711_376_384, f"{REGISTERS}; head tied", 0),
    ("tinyllama", 1_100_048_384, f"{REGISTERS}; head not tied", 0),
    ("smollm2:135m", 134_515_008, f"{COUNTED} a model card's example; head tied", 0),
    ("smollm2:360m", 361_821_120, f"{COUNTED} a model card's example; head tied", 0),
    ("mistral:7b", 7_241_732_096, f"{HEADERS}: 14,483,464,192; head not tied", 0),
    ("mistral:7b-instruct", 7_248_023_552, f"{REGISTERS}; head not tied", 0),
    ("qwen2.5:0.5b", 494_032_768, f"{REGISTERS}; head tied", 0),
    ("qwen2.5:1.5b", 1_543_714_304, f"{REGISTERS}; head tied", 0),
    ("qwen2.5:3b", 3_085_938_688, f"{REGISTERS}; head tied", 0),
    ("qwen2.5:7b", 7_615_616_512, f"{REGISTERS}; head not tied", 0),
    ("deepseek-r1:1.5b", 1_777_088_000, f"{REGISTERS}; head not tied", 0),
    ("deepseek-r1:7b", 7_615_616_512, f"{REGISTERS}; head not tied", 0),
    ("qwen3:1.7b", 1_720_574_976, f"{COUNTED} reports on it; head tied", 0),
    ("qwen3:4b", 4_022_468_096, f"{REGISTERS}; head tied", 0),
    ("qwen3:8b", 8_190_735_360, f"{REGISTERS}; {GGUF_LOAD}; head not tied", 0),
    ("qwen3:14b", 14_768_307_200, f"{REGISTERS}; head not tied", 0),
    ("qwen3:32b", 32_762_123_264, f"{REGISTERS}; head not tied", 0),
    ("qwen2:7b", 7_615_616_512, f"{HEADERS}: 15,231,233,024; {GGUF}; head not tied", 0),
    ("qwen3:0.6b", 596_049_920, f"{COUNTED} a model card's example; head tied", 0),
    ("mixtral:8x7b", 46_702_792_704, "params of keras-hub's preset mixtral_8_7b_en; head not tied", 0),
    ("qwen2-moe:a2.7b", 14_315_784_192, "params of keras-hub's preset qwen-1.5-moe; head not tied", 0),
    ("qwen3-moe:30b-a3b", 30_532_122_624, f"{GGUF}, of Qwen3-Coder-30B-A3B, which has its sizes", 0),
    ("gpt-oss:20b", 20_914_757_184, f"{GGUF}; head not tied", 0),
    ("gpt-oss:120b", 116_829_156_672, f"{REGISTERS}; head not tied", 0),
    ("gemma2:2b", 2_614_341_888, f"{COUNTED} evaluations of google/gemma-2-2b; head tied", 0),
    (
        "deepseek-v3:671b",
        671_026_419_200,
        "audits of the checkpoint's safetensors headers: the main model, without its MTP layer and FP8 scales",
        0,
    ),
    (
        "deepseek-v3:kimi-k2",
        1_026_408_232_448,
        "audits of the checkpoint's safetensors headers, without FP8 scales",
        0,
    ),
    ("minimax:456b", 456_089_655_296, f"{REGISTERS}; head not tied", 0),
    ("minimax-m2:230b-a10b", 228_689_764_864, f"n_params of {GGUF_LOAD}; head not tied", 0),
    ("olmo3:7b", 7_298_011_136, f"{INDEX}; head not tied", 0),
    ("olmo3:32b", 32_233_522_176, f"{COUNTED} experiments on its checkpoints; head not tied", 0),
    # The checkpoints have 64 more rows, for images.
    ("gemma3:4b", 3_880_099_328, "params of keras-hub's preset gemma3_4b_text; head tied", -64 * 2560),
    ("gemma3:12b", 11_765_788_416, "params of keras-hub's preset gemma3_12b_text; head tied", -64 * 3840),
    ("gemma3:1b", 999_885_952, "params of keras-hub's gemma3_backbone, 1152 wide; head tied", 0),
    (
        "gemma3:270m",
        268_098_176,
        "the sum over the safetensors header of google/gemma-3-270m-it; head tied",
        0,
    ),
    # The file has 256 factors of rotations, too, which the zoo computes.
    ("gemma4:26b", 25_233_142_046, f"n_params of {GGUF_LOAD}; head tied", 256),
    ("gemma4:31b", 30_697_345_596, f"n_params of {GGUF_LOAD}; head tied", 256),
    # Those and the layers that share keys and values have projections of their own there, which nothing reads.
    ("gemma4:e2b", 4_647_450_147, f"n_params of {GGUF_LOAD}; head tied", 18_880_512 + 256),
    ("gemma4:e4b", 7_518_069_290, f"n_params of {GGUF_LOAD}; head tied", 55_055_616 + 256),
    ("glm4:9b", 9_400_279_040, f"n_params of {GGUF_LOAD}; head not tied", 0),
    ("smollm3:3b", 3_075_098_624, f"{INDEX}; head tied", 0),
    ("phi3:mini-4k", 3_821_079_552, f"{COUNTED} a table of models; head not tied", 0),
    ("phi3:phi-4", 14_659_507_200, f"{GGUF}; head not tied", 0),
    ("seed-oss:36b", 36_151_104_512, "a table of the hub's models and their safetensors; head not tied", 0),
    ("ernie4.5:0.3b", 360_748_032, f"{COUNTED} an evaluation's log; head tied", 0),
    ("mamba:2.8b", 2_768_345_600, '"Number of parameters" of the authors\' benchmark script; head tied', 0),
    ("mamba2:7b", 7_285_403_648, "Mistral's announcement of Codestral Mamba; head not tied", 0),
    ("lfm2:1.2b", 1_170_340_608, "the table of sizes on LFM2's model cards; head tied", 0),
    ("lfm2:700m", 742_489_344, "the table of sizes on LFM2's model cards; head tied", 0),
    ("lfm2:350m", 354_483_968, "the table of sizes on LFM2's model cards; head tied", 0),
    (
        "qwen3-next:80b-a3b",
        79_674_391_296,
        "n_params of llama.cpp for Qwen3-Coder-Next, which has its sizes; without the layer that drafts",
        0,
    ),
    (
        "qwen3.5:9b",
        8_953_803_264,
        f"n_params of {GGUF_LOAD}; head not tied; without the layer that drafts",
        0,
    ),
    (
        "qwen3.5:27b",
        26_895_998_464,
        f"n_params of {GGUF_LOAD}; head not tied; without the layer that drafts",
        0,
    ),
    (
        "qwen3.5-moe:35b-a3b",
        34_660_610_688,
        f"n_params of {GGUF_LOAD}, of Qwen3.6-35B-A3B, which has its sizes; without the layer that drafts",
        0,
    ),
    ("granite-hybrid:h-micro", 3_191_396_096, f"{GGUF}; head tied", 0),
    ("granite-hybrid:h-small", 32_207_337_984, f"{REGISTERS}; head tied", 0),
    ("nemotron-h:nano-9b-v2", 8_888_227_328, f"{REGISTERS}; head not tied", 0),
    ("mamba:130m", 129_135_360, "a table of sizes of state-spaces' checkpoints; head tied", 0),
    ("modernbert:base", 149_655_232, f"{REGISTERS}; head tied", 0),
    ("modernbert:large", 395_881_664, f"{REGISTERS}; head tied", 0),
    ("bert:base", 109_514_298, f"{COUNTED} scripts for BertForMaskedLM, without a pooler; head tied", 0),
    # The checkpoint's pooler, a matrix and a bias of width 384, is not what sentence vectors are made with.
    ("bert:minilm", 22_713_216, f"{COUNTED} a test of all-MiniLM-L6-v2, with its pooler; no head", 384 * 385),
    # Both tables of sinusoids, 512 positions of width 512, are parameters of transformers' model. The bias on the logits is
    # a buffer there, which it does not count.
    ("opus-mt-en-zh", 77_943_296, f"{COUNTED} fine-tuning logs; head tied", 2 * 512 * 512 - 65_001),
    ("bart:large", 406_291_456, f"{COUNTED} a table of models, for facebook/bart-large; head tied", -50_265),
    ("m2m-100:nllb-600m", 615_073_792, f"{COUNTED} training logs of nllb-200-distilled-600M; head tied", 0),
    ("t5:small", 60_506_624, "params of KerasNLP's preset t5_small; head tied", 0),
    ("mt5:small", 300_176_768, f"{COUNTED} experiments that trim its vocabulary; head not tied", 0),
]


@pytest.mark.parametrize(("preset", "published", "source", "left_out"), PUBLISHED, ids=lambda v: str(v)[:20])
def test_parameters_are_as_many_as_published(preset, published, source, left_out):
    recipe = describe(preset, default_registry()).recipe
    assert facts_of(recipe).value("parameters.total") == published - left_out, source


def test_active_parameters_are_those_that_papers_round():
    # OpenAI leaves the embedding table out (gpt-oss model card, table 1); the others count it.
    for preset, billions, table in (
        ("gpt-oss:20b", 3.6, False),
        ("mixtral:8x7b", 12.9, True),
        ("deepseek-v3:671b", 37.6, True),
        ("qwen2-moe:a2.7b", 2.7, True),
    ):
        sheet = facts_of(describe(preset, default_registry()).recipe)
        counted = sheet.value("parameters.active") + table * sheet.value("parameters.embedding")
        assert round(counted / 1e9, 1) == billions


@pytest.mark.parametrize(("preset", "read"), [("llama:8b", "embedding"), ("gpt2:small", "positions")])
def test_a_table_of_which_a_token_reads_one_row_is_not_active_unless_it_is_the_head(preset, read):
    sheet = facts_of(describe(preset, default_registry()).recipe)
    idle = sheet.value("parameters.total") - sheet.value("parameters.active")
    assert idle == sheet.value(f"parameters.{read}")


def test_only_models_with_idle_experts_are_said_to_use_a_part():
    for preset, shown in (("llama:8b", False), ("gpt2:small", False), ("gpt-oss:20b", True)):
        sheet = facts_of(describe(preset, default_registry()).recipe)
        (active,) = (fact for fact in sheet if fact.name == "parameters.active")
        assert active.detail is not shown


@pytest.mark.parametrize("name", sorted(default_registry().architectures))
def test_parts_add_up_to_the_whole(name):
    for preset in default_registry().architecture(name).presets:
        if preset.config is not None:
            sheet = facts_of(describe(f"{name}:{preset.name}", default_registry()).recipe)
            parts = {fact.name: fact.value for fact in sheet if fact.name.startswith("parameters.")}
            whole = parts.pop("parameters.total")
            parts.pop("parameters.active")
            assert sum(parts.values()) == whole and "parameters.other" not in parts


# Preset, bytes of a stored number, and the numbers stored besides the recipe's parameters, and why.
DOWNLOADS = [
    ("llama:1b", 2, 0),
    ("smollm2:135m", 2, 0),
    ("smollm2:360m", 2, 0),
    ("qwen3:0.6b", 2, 151_936 * 1024),  # the tied head
    ("gemma2:2b-it", 2, 0),
    ("bert:base", 4, 768 * 769 + 2 * 769),  # the pooler and the next-sentence head
    ("minilm", 4, 384 * 385 + 2 * 512),  # the pooler, and position_ids, 512 integers of 8 bytes
    ("opus-mt-en-de", 4, 2 * 512 * 512),  # tables of sinusoids
    ("opus-mt-en-zh", 4, 2 * 512 * 512),
    ("opus-mt-zh-en", 4, 2 * 512 * 512),
]
HEADER = 64 * 1024  # bytes; at most those of a safetensors header, or of a pickle around the tensors


@pytest.mark.parametrize(("preset", "width", "besides"), DOWNLOADS, ids=lambda v: str(v))
def test_a_download_is_as_large_as_the_numbers_that_are_stored(preset, width, besides):
    found = describe(preset, default_registry())
    numbers = found.recipe.parameters(found.recipe.dim) + besides
    assert 0 <= found.preset.download - numbers * width < HEADER


def test_every_download_is_checked():
    presets = [p for a in default_registry().architectures.values() for p in a.presets]
    checked = [describe(name, default_registry()).preset for name, *_ in DOWNLOADS]
    assert [p.hub for p in presets if p.download and p not in checked] == []
