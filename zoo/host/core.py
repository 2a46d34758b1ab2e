"""The core plugin: the zoo's own blocks, strategies, quantized formats, objectives and commands. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator

from zoo import recipe
from zoo.architecture import (
    Block,
    CallFormat,
    CheckpointFormat,
    Command,
    Drawing,
    ModuleProbe,
    Objective,
    QuantizedFormat,
    Setting,
    Strategy,
    hookimpl,
)
from zoo.architecture import settings as shared
from zoo.host.call_formats import CALL_FORMATS

# Names of shared settings: all but those of translation, those that need no sampling, and those of sampled tokens.
CONTINUATION = tuple(setting.name for setting in shared.SETTINGS if not setting.name.endswith("_language"))
UNSAMPLED = tuple(
    setting.name
    for setting in (
        *(*shared.LIMITS, *shared.PENALTIES, *shared.GUIDANCE),
        *(*shared.CONSTRAINTS, *shared.PROMPT, *shared.CACHE),
    )
)
SAMPLED = (*(setting.name for setting in shared.SAMPLING), *UNSAMPLED, "samplers", "logprobs", "report")

# The specs whose modules are in each file of zoo/blocks, where they have the spec's name.
BLOCKS: dict[str, dict[type[recipe.Spec], str]] = {
    "norm": {
        recipe.LayerNorm: "layer normalisation",
        recipe.RMSNorm: "root mean square normalisation",
        recipe.PlainRMSNorm: "RMSNorm without a weight",
        recipe.JointRMSNorm: "RMSNorm over all heads at once",
        recipe.JointRMSNormPart: "one rank's heads of an RMSNorm over all heads",
    },
    "position": {
        recipe.LearnedPositions: "learned position embeddings",
        recipe.SinusoidalPositions: "sinusoidal position embeddings",
        recipe.RoPE: "rotary position embeddings",
        recipe.QueryScale: "queries scaled by position, against flat attention over long texts",
        recipe.LinearScaling: "linear RoPE scaling (position interpolation)",
        recipe.DynamicScaling: "dynamic NTK-aware RoPE scaling",
        recipe.Llama3Scaling: "LLaMA 3.1's RoPE scaling, by frequency",
        recipe.YarnScaling: "YaRN, RoPE scaling by frequency",
        recipe.LongScaling: "a factor for each wavelength, by the text's length",
    },
    "attention": {
        recipe.Attention: "multi-head and grouped-query attention",
        recipe.CrossAttention: "cross-attention over the encoder's output",
    },
    "shared": {
        recipe.KeyValueSource: "attention whose keys and values later layers read",
        recipe.SharedKeyValueAttention: "attention to an earlier layer's keys and values",
        recipe.PerLayerEmbedding: "token embedding with an input for each layer",
        recipe.PerLayerInput: "what a layer's own input adds",
    },
    "feedforward": {
        recipe.MLP: "feed-forward of two projections",
        recipe.GatedMLP: "gated feed-forward (SwiGLU with silu)",
        recipe.Router: "top-k router over a softmax",
        recipe.Experts: "gated feed-forwards, k of them for each token",
        recipe.MoE: "mixture of experts, with or without a shared expert",
    },
    "layer": {
        recipe.Layer: "mixer and feed-forward with residuals, Pre-LN or Post-LN",
        recipe.CrossLayer: "self-attention, cross-attention and feed-forward",
    },
    "embedding": {
        recipe.Embedding: "token embedding",
        recipe.EmbeddingPart: "one rank's rows of a token embedding",
    },
    "head": {
        recipe.Head: "language model head: hidden states to logits",
        recipe.HeadPart: "one rank's rows of a head",
    },
    "ranked": {recipe.Elsewhere: "the place of a layer that another rank has"},
    "decoder": {recipe.Decoder: "decoder-only model"},
    "encoder_decoder": {
        recipe.Encoder: "encoder-only model",
        recipe.EncoderDecoder: "encoder-decoder model",
    },
}

PENALTY_ALPHA = shared.number_setting(
    "penalty_alpha", "Weight of the penalty on similarity to earlier tokens (0.6)."
)
CANDIDATES = shared.count_setting("top_k", "Number of candidates at each step (4).", 1, 4096)
SAMPLES = shared.count_setting(
    "best_of", "Number of texts to sample; the likeliest is returned.", 1, 256, default=4
)
SHOWN = Setting("top_k", int, 5, minimum=1, help="Number of tokens to show for each mask, likeliest first.")


@hookimpl
def zoo_blocks() -> Iterator[Block]:
    """The blocks that come with the zoo itself."""
    for file, specs in BLOCKS.items():
        for spec, summary in specs.items():
            yield Block(spec, f"zoo.blocks.{file}:{spec.__name__}", summary)


@hookimpl
def zoo_strategies() -> tuple[Strategy, ...]:
    """The strategies that come with the zoo itself."""
    home = "zoo.generation.strategies"
    return (
        Strategy(
            "autoregressive",
            f"{home}.autoregressive:stream",
            tasks=("generate",),
            settings=(*CONTINUATION, "samplers", "report", "prompt_cache", "checkpoints"),
            summary="one token a step, with the KV cache",
            batch=f"{home}.autoregressive:batch",
        ),
        Strategy(
            "beam",
            f"{home}.beam:stream",
            tasks=("translate", "generate"),
            settings=(*SAMPLED, *shared.BEAM_SEARCH),
            summary="beam search for the likeliest whole text, or one token a step",
            batch=f"{home}.beam:batch",
        ),
        Strategy(
            "contrastive",
            f"{home}.contrastive:stream",
            tasks=("generate",),
            settings=(
                *(name for name in UNSAMPLED if name in CONTINUATION),
                "logprobs",
                "report",
                PENALTY_ALPHA,
                CANDIDATES,
            ),
            summary="the likely token least like those before",
        ),
        Strategy(
            "best-of",
            f"{home}.best_of:stream",
            tasks=("generate", "translate"),
            settings=(*SAMPLED, SAMPLES),
            summary="the likeliest of several samples",
        ),
        Strategy(
            "fill-mask",
            f"{home}.fill_mask:stream",
            tasks=("fill-mask",),
            settings=("special_tokens", SHOWN),
            summary="the likeliest tokens in the place of each mask",
            batch=f"{home}.fill_mask:batch",
        ),
    )


@hookimpl
def zoo_formats() -> tuple[QuantizedFormat, ...]:
    """The quantized formats of Hugging Face folders that come with the zoo itself."""
    package = "zoo.checkpoint.formats"
    return (
        QuantizedFormat("auto-round", f"{package}.auto_round:read_auto_round", None, "AutoRound's"),
        QuantizedFormat(
            "intel/auto-round", f"{package}.auto_round:read_auto_round", None, "AutoRound's, before"
        ),
        QuantizedFormat("awq", f"{package}.integers:read_awq", "quant_config.json", "AutoAWQ's"),
        QuantizedFormat(
            "bitsandbytes",
            f"{package}.bitsandbytes:read_bitsandbytes",
            None,
            "bitsandbytes': NF4, FP4 and 8 bits",
        ),
        QuantizedFormat(
            "compressed-tensors", f"{package}.compressed_tensors:read_compressed_tensors", None, "vLLM's"
        ),
        QuantizedFormat("fbgemm_fp8", f"{package}.floats:read_fp8", None, "FBGEMM's floats of 8 bits"),
        QuantizedFormat("fp8", f"{package}.floats:read_fp8", None, "floats of 8 bits with scales"),
        QuantizedFormat(
            "gptq", f"{package}.integers:read_gptq", "quantize_config.json", "AutoGPTQ's and GPTQModel's"
        ),
        QuantizedFormat("hqq", f"{package}.hqq:read_hqq", None, "HQQ's"),
        QuantizedFormat(
            "modelopt", f"{package}.floats:read_modelopt", "hf_quant_config.json", "Model Optimizer's"
        ),
        QuantizedFormat("mxfp4", None, None, "floats of 4 bits, read by weight rules"),
        QuantizedFormat("torchao", f"{package}.torchao:read_torchao", None, "torchao's, in safetensors"),
        QuantizedFormat("mxfp8", f"{package}.floats:read_fp8", None, "floats of 8 bits with a scale for 32"),
    )


@hookimpl
def zoo_checkpoints() -> tuple[CheckpointFormat, ...]:
    """The kinds of checkpoints that come with the zoo itself."""
    return (
        CheckpointFormat(
            "folder",
            "zoo.checkpoint.folder:FolderCheckpoint",
            files=("config.json",),
            summary="Hugging Face's folders: a config.json and safetensors",
        ),
        CheckpointFormat(
            "gguf",
            "zoo.checkpoint.gguf.gguf_checkpoint:GGUFCheckpoint",
            suffixes=(".gguf",),
            magic=b"GGUF",
            options=("repack",),
            summary="llama.cpp's files: config, tokenizer and weights in one",
        ),
    )


@hookimpl
def zoo_call_formats() -> tuple[CallFormat, ...]:
    """The built-in formats of tool calls."""
    return CALL_FORMATS


@hookimpl
def zoo_objectives() -> tuple[Objective, ...]:
    """The objectives that come with the zoo itself."""
    home = "zoo.training.objective"
    return (
        Objective("next-token", f"{home}:NEXT_TOKEN", ("generate",), summary="the next token"),
        Objective(
            "hidden-words",
            "zoo.training.masked_lm:MASKED_LM",
            ("fill-mask",),
            ("full",),
            "masked tokens, as BERT's",
        ),
    )


@hookimpl
def zoo_drawings() -> tuple[Drawing, ...]:
    """How the blocks that come with the zoo itself are drawn."""
    parts = "zoo.describe.diagram.parts"
    return (
        Drawing(recipe.LayerNorm, f"{parts}:layer_norm"),
        Drawing(recipe.RMSNorm, f"{parts}:rms_norm"),
        Drawing(recipe.PlainRMSNorm, f"{parts}:rms_norm"),
        Drawing(recipe.JointRMSNorm, f"{parts}:joint_rms_norm"),
        Drawing(recipe.LearnedPositions, f"{parts}:learned_positions"),
        Drawing(recipe.SinusoidalPositions, f"{parts}:sinusoidal_positions"),
        Drawing(recipe.Embedding, f"{parts}:embedding"),
        Drawing(recipe.Attention, f"{parts}:attention"),
        Drawing(recipe.CrossAttention, f"{parts}:cross_attention"),
        Drawing(recipe.KeyValueSource, f"{parts}:attention"),
        Drawing(recipe.SharedKeyValueAttention, f"{parts}:shared_attention"),
        Drawing(recipe.PerLayerEmbedding, f"{parts}:per_layer_embedding"),
        Drawing(recipe.PerLayerInput, f"{parts}:per_layer_input"),
        Drawing(recipe.MLP, f"{parts}:mlp"),
        Drawing(recipe.GatedMLP, f"{parts}:gated_mlp"),
        Drawing(recipe.Router, f"{parts}:router"),
        Drawing(recipe.Experts, f"{parts}:experts"),
        Drawing(recipe.MoE, f"{parts}:moe"),
        Drawing(recipe.Head, f"{parts}:head"),
        Drawing(recipe.Layer, f"{parts}:layer"),
        Drawing(recipe.CrossLayer, f"{parts}:cross_layer"),
        Drawing(recipe.Decoder, f"{parts}:decoder"),
        Drawing(recipe.Encoder, f"{parts}:encoder"),
        Drawing(recipe.EncoderDecoder, f"{parts}:encoder_decoder"),
    )


ON_RANKS = ("run", "chat", "embed", "perplexity", "train", "doctor")


@hookimpl
def zoo_commands() -> tuple[Command, ...]:
    """The commands that come with the zoo itself, in the order of `zoo --help`."""
    groups = {
        "Run": {
            "run": "Generate text from a prompt.",
            "chat": "Talk with a model.",
            "embed": "Turn texts into vectors.",
        },
        "Look inside": {
            "list": "List the architectures.",
            "show": "Show what a model is made of.",
            "compare": "Compare models and mark what differs.",
            "tokenize": "Show the tokens of a text.",
            "trace": "Follow a prompt through a model, step by step.",
            "perplexity": "Measure how well models predict a text.",
        },
        "Make": {
            "train": "Train a model from nothing, on a built-in corpus or your text.",
            "convert": "Convert or quantize a checkpoint.",
        },
        "Extend": {
            "test": "Run the conformance suite on a model.",
            "plugins": "List the installed plugins and their errors.",
        },
        "This machine": {
            "cache": "List or remove what was downloaded from the hub.",
            "doctor": "Show the backend and libraries, and what would make it faster.",
        },
    }
    return tuple(
        Command(
            name, f"zoo.cli.{name}:{'list_' if name == 'list' else name}", summary, group, name in ON_RANKS
        )
        for group, commands in groups.items()
        for name, summary in commands.items()
    )


@hookimpl
def zoo_probes() -> tuple[ModuleProbe, ...]:
    """How the insides of the zoo's own blocks are traced."""
    probes = "zoo.inspect.tracing.block_probes"
    return (
        ModuleProbe("zoo.blocks.model:Model", f"{probes}:SilentProbe"),
        ModuleProbe("zoo.blocks.attention:MultiHeadAttention", f"{probes}:AttentionProbe"),
        ModuleProbe("zoo.blocks.attention:CrossAttention", f"{probes}:CrossAttentionProbe"),
        ModuleProbe("zoo.blocks.feedforward:MLP", f"{probes}:FeedForwardProbe"),
        ModuleProbe("zoo.blocks.feedforward:GatedMLP", f"{probes}:FeedForwardProbe"),
        ModuleProbe("zoo.blocks.feedforward:MoE", f"{probes}:MoEProbe"),
        ModuleProbe("zoo.blocks.feedforward:Router", f"{probes}:RouterProbe"),
        ModuleProbe("zoo.blocks.feedforward:Experts", f"{probes}:ExpertsProbe"),
        ModuleProbe("zoo.blocks.layer:CachedLayer", f"{probes}:LayerProbe"),
        ModuleProbe("zoo.blocks.layer:Layer", f"{probes}:ResidualProbe"),
        ModuleProbe("zoo.blocks.layer:CrossLayer", f"{probes}:CrossLayerProbe"),
        ModuleProbe("zoo.blocks.norm:LayerNorm", f"{probes}:NormProbe"),
        ModuleProbe("zoo.blocks.norm:RMSNorm", f"{probes}:NormProbe"),
        ModuleProbe("zoo.blocks.norm:PlainRMSNorm", f"{probes}:NormProbe"),
        ModuleProbe("zoo.blocks.norm:JointRMSNorm", f"{probes}:NormProbe"),
        ModuleProbe("zoo.blocks.embedding:Embedding", f"{probes}:EmbeddingProbe"),
        ModuleProbe("zoo.blocks.position:LearnedPositions", f"{probes}:PositionsProbe"),
        ModuleProbe("zoo.blocks.position:SinusoidalPositions", f"{probes}:PositionsProbe"),
        ModuleProbe("zoo.blocks.position:RoPE", f"{probes}:SilentProbe"),  # attention notes what is rotated
        ModuleProbe("zoo.blocks.position:QueryScale", f"{probes}:SilentProbe"),
        ModuleProbe("zoo.blocks.convolution:Convolution", f"{probes}:ConvolutionProbe"),
        ModuleProbe("zoo.blocks.head:Head", f"{probes}:HeadProbe"),
        ModuleProbe("zoo.blocks.adapted:AdaptedLayer", f"{probes}:LoRAProbe"),
    )
