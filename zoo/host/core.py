"""The core plugin: the zoo's own blocks, strategies, quantized formats, objectives and commands. Imports no mlx."""

from __future__ import annotations

from zoo import recipe
from zoo.architecture import Block, CheckpointFormat, Command, Objective, QuantizedFormat, Strategy, hookimpl


@hookimpl
def zoo_blocks() -> tuple[Block, ...]:
    """The blocks that come with the zoo itself."""
    return (
        Block(recipe.LayerNorm, "zoo.blocks.norm:LayerNorm", "centred and scaled features of one token"),
        Block(recipe.RMSNorm, "zoo.blocks.norm:RMSNorm", "scaled features of one token"),
        Block(recipe.LearnedPositions, "zoo.blocks.position:LearnedPositions", "a learned vector a position"),
        Block(recipe.SinusoidalPositions, "zoo.blocks.position:SinusoidalPositions", "waves of the position"),
        Block(recipe.RoPE, "zoo.blocks.position:RoPE", "queries and keys turned by their position"),
        Block(recipe.LinearScaling, "zoo.blocks.position:LinearScaling", "all angles divided"),
        Block(
            recipe.DynamicScaling, "zoo.blocks.position:DynamicScaling", "a base that grows with the length"
        ),
        Block(recipe.Llama3Scaling, "zoo.blocks.position:Llama3Scaling", "slow angles divided, smoothly"),
        Block(recipe.YarnScaling, "zoo.blocks.position:YarnScaling", "slow angles divided, on a ramp"),
        Block(recipe.Attention, "zoo.blocks.attention:Attention", "multi-head and grouped-query attention"),
        Block(recipe.CrossAttention, "zoo.blocks.cross:CrossAttention", "a target's look at its source"),
        Block(recipe.MLP, "zoo.blocks.feedforward:MLP", "two projections and an activation"),
        Block(recipe.GatedMLP, "zoo.blocks.feedforward:GatedMLP", "a gated feed-forward, SwiGLU with silu"),
        Block(recipe.Router, "zoo.blocks.moe:Router", "the likeliest experts of each token"),
        Block(
            recipe.Experts, "zoo.blocks.moe:Experts", "gated feed-forwards, a few of them run for each token"
        ),
        Block(recipe.MoE, "zoo.blocks.moe:MoE", "a router, its experts and a shared one"),
        Block(recipe.Layer, "zoo.blocks.layer:Layer", "mixer and feed-forward, Pre-LN or Post-LN"),
        Block(recipe.CrossLayer, "zoo.blocks.cross:CrossLayer", "a layer with a look at the source between"),
        Block(recipe.Embedding, "zoo.blocks.embedding:Embedding", "a vector a token"),
        Block(recipe.Head, "zoo.blocks.head:Head", "hidden states to logits"),
        Block(recipe.Decoder, "zoo.blocks.decoder:Decoder", "a decoder-only model"),
        Block(recipe.Encoder, "zoo.blocks.encoder:Encoder", "an encoder-only model"),
        Block(recipe.EncoderDecoder, "zoo.blocks.encoder_decoder:EncoderDecoder", "a source to a target"),
    )


@hookimpl
def zoo_strategies() -> tuple[Strategy, ...]:
    """The strategies that come with the zoo itself."""
    return (
        Strategy(
            "autoregressive",
            "zoo.generation.autoregressive:stream",
            tasks=("generate",),
            options=(
                *("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop"),
                *("logprobs", "special_tokens", "prefill_chunk", "samplers", "report"),
            ),
            summary="one token a step, with the KV cache",
        ),
        Strategy(
            "beam",
            "zoo.generation.beam:stream",
            tasks=("translate", "generate"),
            options=(
                *("max_tokens", "min_tokens", "beams", "length_penalty", "early_stopping"),
                *("source_language", "target_language", "temperature", "top_k", "top_p", "min_p", "seed"),
                "special_tokens",
            ),
            summary="the likeliest whole text among several kept side by side, or token by token",
        ),
        Strategy(
            "fill-mask",
            "zoo.generation.fill_mask:stream",
            tasks=("fill-mask",),
            options=("top_k", "special_tokens"),
            summary="the likeliest tokens in the place of each mask",
        ),
    )


@hookimpl
def zoo_formats() -> tuple[QuantizedFormat, ...]:
    """The quantized formats of Hugging Face folders that come with the zoo itself."""
    package = "zoo.checkpoint.formats"
    return (
        QuantizedFormat("awq", f"{package}.awq:read_awq", "quant_config.json", "AutoAWQ's"),
        QuantizedFormat(
            "compressed-tensors", f"{package}.compressed_tensors:read_compressed_tensors", None, "vLLM's"
        ),
        QuantizedFormat("fp8", f"{package}.fp8:read_fp8", None, "floats of 8 bits with block scales"),
        QuantizedFormat(
            "gptq", f"{package}.gptq:read_gptq", "quantize_config.json", "AutoGPTQ's and GPTQModel's"
        ),
        QuantizedFormat(
            "modelopt", f"{package}.modelopt:read_modelopt", "hf_quant_config.json", "Model Optimizer's"
        ),
        QuantizedFormat("mxfp4", None, None, "floats of 4 bits, read by weight rules"),
        QuantizedFormat("mxfp8", f"{package}.fp8:read_fp8", None, "floats of 8 bits with a scale for 32"),
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
            "zoo.checkpoint.gguf.file:GGUFCheckpoint",
            suffixes=(".gguf",),
            magic=b"GGUF",
            options=("repack",),
            summary="llama.cpp's files: config, tokenizer and weights in one",
        ),
    )


@hookimpl
def zoo_objectives() -> tuple[Objective, ...]:
    """The objectives that come with the zoo itself."""
    home = "zoo.training.objective"
    return (
        Objective("next-token", f"{home}:NEXT_TOKEN", ("generate",), summary="each next token of a text"),
        Objective(
            "hidden-words",
            f"{home}:HIDDEN_WORDS",
            ("fill-mask",),
            ("full",),
            "the tokens behind masks, as BERT's",
        ),
        Objective(
            "diffusion",
            f"{home}:DIFFUSION",
            ("denoise",),
            ("full",),
            "a text behind any share of masks, as LLaDA's",
        ),
        Objective(
            "translation",
            f"{home}:TRANSLATION",
            ("translate",),
            summary="each next token of a text's translation",
        ),
    )


@hookimpl
def zoo_commands() -> tuple[Command, ...]:
    """The commands that come with the zoo itself, in the order of `zoo --help`."""
    return (
        Command("run", "zoo.cli.run:run", "Run a model: text in, text out."),
        Command("embed", "zoo.cli.embed:embed", "Texts to vectors, one a text."),
        Command("list", "zoo.cli.list:list_", "The architectures that the zoo has."),
        Command("show", "zoo.cli.show:show", "What one architecture is made of."),
        Command(
            "compare", "zoo.cli.compare:compare", "Architectures side by side, their differences marked."
        ),
        Command("plugins", "zoo.cli.plugins:plugins", "The installed plugins, and how each fared."),
        Command(
            "train", "zoo.cli.train:train", "Train a model from nothing, on a built-in corpus or your text."
        ),
        Command("evaluate", "zoo.cli.evaluate:evaluate", "How many questions of a corpus a model answers."),
        Command("convert", "zoo.cli.convert:convert", "A checkpoint to a new folder, quantized or not."),
        Command("bench", "zoo.cli.bench:bench", "Timed runs beside a peer's."),
        Command("cache", "zoo.cli.cache:cache", "What was downloaded from the hub, and how to remove it."),
        Command("new", "zoo.cli.new:new", "Write a plugin of your own, as a package."),
        Command("test", "zoo.cli.test:test", "Hold a model to what every model of the zoo must do."),
        Command(
            "doctor", "zoo.cli.doctor:doctor", "This machine: backend, libraries, what would make it faster."
        ),
    )
