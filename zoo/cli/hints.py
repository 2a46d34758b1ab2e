"""Hints for unknown commands and options: misspelt ones, and those of other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from zoo.errors import did_you_mean, similar_names

LISTED = "; `zoo --help` lists them"
DOWNLOAD = "`zoo run OWNER/NAME` downloads a model of the hub when it first needs it"
IN_MEMORY = "a model is in memory only while a command runs; `zoo cache` lists those that were downloaded"
# Commands of ollama, mlx-lm, llama.cpp and transformers: what does the same here.
COMMANDS = {
    **dict.fromkeys(("pull", "download", "install", "get"), DOWNLOAD),
    **dict.fromkeys(("ps", "stop", "load", "unload"), IN_MEMORY),
    **dict.fromkeys(
        ("ls", "models"),
        "`zoo cache` lists the models that were downloaded, `zoo list --presets` those to run by name",
    ),
    **dict.fromkeys(
        ("search", "find"), "`zoo list --presets WORD` lists the models with a word in their names"
    ),
    **dict.fromkeys(
        ("rm", "remove", "delete"), "`zoo cache remove OWNER/NAME` deletes a model that was downloaded"
    ),
    **dict.fromkeys(("generate", "ask", "prompt", "infer"), "`zoo run MODEL PROMPT` generates text"),
    "info": "`zoo show MODEL` shows what a model is made of",
    "quantize": "`zoo convert MODEL FOLDER --quantize 4` quantizes",
    "fuse": "`zoo convert MODEL FOLDER --adapter ADAPTER` merges an adapter into a model",
    **dict.fromkeys(
        ("lora", "finetune", "fine-tune", "sft"),
        "`zoo tune MODEL --data FILE --out ADAPTER` teaches a model by examples",
    ),
    "create": "`zoo new NAME` writes a plugin, `zoo convert` a checkpoint",
    "update": "`git pull` in the zoo's folder updates it",
}
# Options of other programs after this one's option that does the same.
_SAME = {
    "--max-tokens": "--max-new-tokens --max-length --num-predict --n-predict --predict --num-tokens --tokens -n",
    "--repetition-penalty": "--repeat-penalty",
    "--repetition-context-size": "--repeat-last-n",
    "--beams": "--num-beams --beam-size",
    "--return-sequences": "--num-return-sequences",
    "--draft-tokens": "--num-draft-tokens --draft-max",
    "--system": "--system-prompt -sys",
    "--adapter": "--adapter-path --lora --lora-path",
    "--prompt-cache": "--prompt-cache-file",
    "--raw": "--ignore-chat-template --no-chat-template",
    "--rank": "--lora-rank",
    "--rows": "--max-num-seqs",
    "--rate": "--learning-rate --lr",
    "--steps": "--iters --max-steps",
    "--batch": "--batch-size --per-device-train-batch-size",
    "--accumulate": "--gradient-accumulation-steps --grad-accumulation-steps",
    "--length": "--max-seq-length --max-seq-len",
    "--layers": "--num-layers",
    "--type": "--fine-tune-type",
    "--checkpoint": "--grad-checkpoint",
    "--out": "--output --output-dir --save-path",
    "--quantize": "--q-bits --bits",
    "--group-size": "--q-group-size",
}
_MODEL = "the model is written without an option: {command} MODEL …"
_CONTEXT = "the whole context of the model is used; --max-kv-size N makes the KV cache smaller"
_DEVICE = "the GPU is used where there is one; `zoo doctor` names the device"
_THINKS = "the chat template decides whether a model thinks; in Python, zoo.chat takes its `variables`"
_FOUR_BITS = "`zoo convert MODEL FOLDER --quantize 4` writes a quantized model, which then runs by its folder"
OPTIONS = {other: own for own, others in _SAME.items() for other in others.split()} | {
    **dict.fromkeys(
        ("-m", "--model", "--hf-path", "--hf-repo", "--model-path", "--model-name-or-path", "--repo"), _MODEL
    ),
    **dict.fromkeys(("-c", "--ctx-size", "--num-ctx", "--context-length", "--max-model-len"), _CONTEXT),
    **dict.fromkeys(("-ngl", "--n-gpu-layers", "--gpu-layers", "--device", "--gpu", "--cuda"), _DEVICE),
    **dict.fromkeys(("-t", "--threads"), "MLX chooses the number of threads"),
    **dict.fromkeys(("--think", "--no-think", "--nothink", "--thinking", "--enable-thinking"), _THINKS),
    **dict.fromkeys(("--quantize", "--load-in-4bit", "--load-in-8bit"), _FOUR_BITS),
    **dict.fromkeys(("-i", "--interactive", "-cnv", "--conversation"), "`zoo chat MODEL` is a conversation"),
    **dict.fromkeys(
        ("--epochs", "--num-train-epochs"), "the length is given in steps, not epochs: --steps N"
    ),
    "--mlx-path": "the new folder is the second argument: {command} MODEL FOLDER",
    "--hf-file": "a GGUF file of the hub is written OWNER/NAME/FILE.gguf",
    "--do-sample": "--temperature above 0 samples",
    **dict.fromkeys(
        ("--stream", "--no-stream"), "an answer is shown as it is written; --json prints it whole at the end"
    ),
    "--format": "--json prints the answer and its figures as JSON; --json-schema makes the model write JSON",
    **dict.fromkeys(
        ("-v", "--verbose"), "`zoo --version` shows the version, `zoo --debug …` the traceback of an error"
    ),
    "--trust-remote-code": "code of a checkpoint is never run, so none has to be trusted",
    "--train": "tuning needs no option for it",
}


class Group(click.Group):
    """A group of commands. For an unknown command its error says what to type instead."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click's. UsageError with a hint for an unknown command."""
        if args[0].startswith("-") or self.has(ctx, args[0]):
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"no command {args[0]!r}{self.hint(ctx, args[0])}")

    def has(self, ctx: click.Context, name: str) -> bool:
        """Whether a command has this name."""
        return name in self.list_commands(ctx)

    def hint(self, ctx: click.Context, typed: str) -> str:
        """What follows in the error message for an unknown command."""
        names = self.list_commands(ctx)
        if typed in ("rm", "delete") and "remove" in names:
            return "; did you mean remove?"
        return did_you_mean(typed.lower(), names, f"; `{ctx.command_path} --help` lists them")


def option_hint(error: click.NoSuchOption, typed: Sequence[str]) -> str:
    """The error message for an unknown option. `typed` are the words of the command line.

    For the beginning of an option the whole option is suggested: --temperature for --temp.
    """
    assert error.ctx is not None
    command, name = error.ctx.command_path, error.option_name
    if len(name) == 2:  # click reads -ngl as -n, -g and -l
        name = next((word for word in typed if word in OPTIONS and word.startswith(name)), name)
    params = error.ctx.command.get_params(error.ctx)
    flags = [flag for param in params for flag in (*param.opts, *param.secondary_opts) if flag[:2] == "--"]
    plain = name.lower().replace("_", "-")
    other = OPTIONS.get(plain, "")
    whole = [flag for flag in flags if flag.startswith(plain)] if len(name) > 2 else []
    if plain in flags or other in flags or whole:
        meant = plain if plain in flags else other if other in flags else " or ".join(whole[:3])
        return f"no option {name!r}; did you mean {meant}?"
    if " " in other:
        return f"no option {name!r}: {other.format(command=command)}"
    near = did_you_mean(plain.strip("-"), [flag.strip("-") for flag in flags], alike=0.65)
    if near:
        return f"no option {name!r}{near.replace('mean ', 'mean --')}"
    for other in similar_names(plain, [other for other, own in OPTIONS.items() if " " in own], alike=0.85):
        return f"no option {name!r}: {OPTIONS[other].format(command=command)}"
    return f"no option {name!r}; `{command} --help` lists the options"
