"""The hooks that a plugin may implement. Each returns or yields frozen records, so it can be tested by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

import pluggy

from zoo.architecture import (
    Architecture,
    Block,
    CallFormat,
    CheckpointFormat,
    Command,
    Corpus,
    Drawing,
    Experiment,
    FactSource,
    ModuleProbe,
    Objective,
    QuantizedFormat,
    Quantizer,
    Sampler,
    Strategy,
    TokenizerFormat,
)
from zoo.architecture.architecture import Record

hookspec = pluggy.HookspecMarker("zoo")


@hookspec
def zoo_architectures() -> Iterable[Architecture]:  # type: ignore[empty-body]
    """Architectures: what each is called, how its config becomes a recipe, how its weights are named.

    A variant calls the recipe function of its base, changes the result, and reuses the base's weight rules. `base` names
    that architecture, so that `zoo show` and the plugin's card show the difference.

    >>> from zoo.architecture import Architecture, Preset, hookimpl
    >>> import zoo_llama
    >>> def shouting(config):
    ...     return zoo_llama.llama(config).change(head=dict(scale=config.number("logit_scale", 2.0)))
    >>> @hookimpl
    ... def zoo_architectures():
    ...     yield Architecture(
    ...         name="shouting-llama",
    ...         base="llama",
    ...         summary="LLaMA with its logits scaled",
    ...         model_types=("shouting-llama",),
    ...         recipe=shouting,
    ...         weights=zoo_llama.WEIGHTS,
    ...         presets=(Preset("tiny", config=zoo_llama.TINY),),
    ...         api=1,
    ...     )
    >>> [architecture.name for architecture in zoo_architectures()]
    ['shouting-llama']
    """


@hookspec
def zoo_blocks() -> Iterable[Block]:  # type: ignore[empty-body]
    """Blocks: a spec and the module that runs it, at "package.module:Class".

    The module is imported only when a model with this block is built. Its class is called
    `Class(spec, *, dim, index, **parts)`. The page "Blocks" says how each kind of block is called after that.

    >>> from dataclasses import dataclass
    >>> from zoo.architecture import Block, hookimpl
    >>> from zoo.recipe import Spec
    >>> @dataclass(frozen=True)
    ... class Halves(Spec):
    ...     kind, name = "norm", "halves"
    >>> @hookimpl
    ... def zoo_blocks():
    ...     yield Block(Halves, "my_plugin.halves:Halves", "half of its input")
    >>> [block.spec.block() for block in zoo_blocks()]
    ['norm/halves']
    """


@hookspec
def zoo_strategies() -> Iterable[Strategy]:  # type: ignore[empty-body]
    """Generation strategies: functions from a loaded model and a prompt to an iterator of `zoo.Step`.

    `loaded` is the result of `zoo.load`, `prompt` is text or token ids. The function raises `zoo.errors.PromptError` at once
    for an invalid prompt or setting. It yields one step per token; the last step has a `finish_reason`.

    A plugin defines a task that the zoo does not have, such as "summarise", by an architecture for it and a strategy that
    serves it. `zoo run SOURCE PROMPT --strategy NAME` chooses a strategy. By default a strategy runs only the
    architectures of its own distribution.

    >>> from zoo.architecture import Strategy, hookimpl
    >>> @hookimpl
    ... def zoo_strategies():
    ...     yield Strategy("backwards", "my_plugin.backwards:stream", tasks=("generate",), settings=("max_tokens",))
    >>> [strategy.name for strategy in zoo_strategies()]
    ['backwards']
    """


@hookspec
def zoo_samplers() -> Iterable[Sampler]:  # type: ignore[empty-body]
    """Samplers: functions from logits to logits that narrow the choice of the next token.

    `zoo run llama PROMPT --sampler eta:cutoff=0.001`, or `zoo.stream(loaded, prompt, samplers={"eta": {"cutoff":
    0.001}})`, applies one after the temperature and the zoo's own filters. Its settings are checked before the first
    token.

    >>> from zoo.architecture import Sampler, Setting, hookimpl
    >>> @hookimpl
    ... def zoo_samplers():
    ...     cutoff = Setting("cutoff", float, 3e-4, minimum=0, maximum=1, help="What is left out.")
    ...     yield Sampler("eta", "my_plugin.filters:eta", (cutoff,), "eta sampling")
    >>> [sampler.name for sampler in zoo_samplers()]
    ['eta']
    """


@hookspec
def zoo_tokenizers() -> Iterable[TokenizerFormat]:  # type: ignore[empty-body]
    """Tokenizer formats: functions that load a tokenizer from a folder.

    A format comes before those that the zoo reads itself. Its files are also fetched from a hub repository.

    >>> from zoo.architecture import TokenizerFormat, hookimpl
    >>> @hookimpl
    ... def zoo_tokenizers():
    ...     files = ("tokenizer_config.json",)
    ...     yield TokenizerFormat("bytes", "my_plugin.bytes:read", files=files, classes=("Bytes",))
    >>> [format.name for format in zoo_tokenizers()]
    ['bytes']
    """


@hookspec
def zoo_formats() -> Iterable[QuantizedFormat]:  # type: ignore[empty-body]
    """Quantized formats: functions from the tensors of one `quant_method` to arrays and MLX's packed matrices.

    >>> from zoo.architecture import QuantizedFormat, hookimpl
    >>> @hookimpl
    ... def zoo_formats():
    ...     yield QuantizedFormat("int8-rows", "my_plugin.int8:read")
    >>> [format.name for format in zoo_formats()]
    ['int8-rows']
    """


@hookspec
def zoo_quantizers() -> Iterable[Quantizer]:  # type: ignore[empty-body]
    """Quantization methods that read a text: `zoo convert SOURCE OUT -q 4 --calibrate FILE --method NAME`.

    A `CalibrationTask` has the opened checkpoint, the text, and the quantization asked for each matrix.

    >>> from zoo.architecture import Quantizer, hookimpl
    >>> from zoo.checkpoint.quantized_matrix import QuantizationSpec  # in the module that the record names
    >>> def eight_bits_for_values(task):
    ...     values = [path for path in task.quantizations if path.endswith("mixer.value.weight")]
    ...     return dict.fromkeys(values, QuantizationSpec(8, 64))
    >>> @hookimpl
    ... def zoo_quantizers():
    ...     yield Quantizer("values", "my_plugin.values:eight_bits_for_values", "8 bits for values")
    >>> [quantizer.name for quantizer in zoo_quantizers()]
    ['values']
    """


@hookspec
def zoo_checkpoints() -> Iterable[CheckpointFormat]:  # type: ignore[empty-body]
    """Checkpoint formats: classes that open a file or a folder for `zoo.load` and all commands.

    A plugin's format is tried before the zoo's own.

    >>> from zoo.architecture import CheckpointFormat, hookimpl
    >>> @hookimpl
    ... def zoo_checkpoints():
    ...     yield CheckpointFormat("numpy", "my_plugin.numpy:NumpyCheckpoint", suffixes=(".npz",))
    >>> [format.name for format in zoo_checkpoints()]
    ['numpy']
    """


@hookspec
def zoo_call_formats() -> Iterable[CallFormat]:  # type: ignore[empty-body]
    """Formats of tool calls: how the answers of models with a certain chat template are parsed.

    A `TaggedCalls` has the tags around a call and a function that reads what stands between; a `CustomCalls` has a parser
    of its own. A plugin's format comes before the zoo's own.

    >>> from zoo.architecture import CallFormat, hookimpl
    >>> from zoo.generation.chat.parsing import AnswerFormat, TaggedCalls  # in the module that the record names
    >>> from zoo.generation.chat.tools import made_call
    >>> def query(body, tools):  # name?key=value
    ...     name, found, arguments = body.partition("?")
    ...     return (made_call(name, dict(pair.split("=") for pair in arguments.split("&"))),) if found else None
    >>> QUERY = TaggedCalls((("<query>", "</query>"),), query)
    >>> @hookimpl
    ... def zoo_call_formats():
    ...     yield CallFormat("query", "my_plugin.query:QUERY", markers=(("<query>",),))
    >>> tools = [{"type": "function", "function": {"name": "weather"}}]
    >>> parser = AnswerFormat(None, QUERY).parser("", tools)
    >>> answer = parser.add("I look. <query>weather?city=Rome</query>")
    >>> answer.text, answer.calls[0].name, answer.calls[0].arguments
    ('I look.', 'weather', {'city': 'Rome'})
    """


@hookspec
def zoo_corpora() -> Iterable[Corpus]:  # type: ignore[empty-body]
    """Corpora: functions from a split and a seed to an iterator of documents.

    `zoo train NAME --corpus CORPUS` trains on one. A document is a text, or, for translation, a text and its translation.

    >>> from zoo.architecture import Corpus, hookimpl
    >>> def counting(split, seed):  # in the module that the record names
    ...     first, step = (1, 2) if split == "train" else (2, 200)
    ...     return (f"{n} and one is {n + 1}." for n in range(first, 2000, step))
    >>> @hookimpl
    ... def zoo_corpora():
    ...     yield Corpus("counting", "my_plugin.counting:counting", tasks=("generate", "fill-mask", "denoise"))
    >>> [corpus.name for corpus in zoo_corpora()], next(counting("train", 0))
    (['counting'], '1 and one is 2.')
    """


@hookspec
def zoo_objectives() -> Iterable[Objective]:  # type: ignore[empty-body]
    """Training objectives: what models of a task are trained to do, each a `zoo.training.objective.TrainingObjective`.

    An objective has two functions that make batches of documents, one to train on and one to validate, and a loss. The
    functions get the documents, a tokenizer and the `zoo.training.record.TrainingSettings`. A batch is a tuple of arrays,
    the inputs and the targets first; the loss is called `loss(model, *batch)`. `zoo train NAME --objective OBJECTIVE`
    uses one. By default an objective trains only the architectures of its own distribution.

    `zoo tune` trains on the examples of a data file. Its objective is a
    `zoo.training.example_objective.ExampleObjective`, which encodes an example as rows, pads rows to a batch, and has a
    loss. A `TrainingObjective` has one as its `examples`; the function of an objective that only tunes returns one.

    >>> from zoo.architecture import Objective, Setting, hookimpl
    >>> from dataclasses import replace  # what follows, in the module that the record names, as all of mlx
    >>> import mlx.core as mx
    >>> from zoo.training.answers import ANSWERS
    >>> from zoo.training.loss import IGNORED, cross_entropy, token_losses
    >>> from zoo.training.objective import TrainingObjective, documents, next_tokens
    >>> def smoothed_loss(model, inputs, targets):
    ...     logits = model(inputs)
    ...     return 0.9 * cross_entropy(logits, targets) - 0.1 * (logits.mean() - logits.logsumexp(-1).mean())
    >>> SMOOTHED = TrainingObjective(next_tokens, documents, smoothed_loss, running=True)
    >>> def focal(loaded, gamma):  # next tokens, the less certain ones weigh more (Lin et al., 2017)
    ...     def loss(model, inputs, targets):
    ...         losses = token_losses(model(inputs), targets)  # (B, T)
    ...         return ((1 - mx.exp(-losses)) ** gamma * losses).sum() / (targets != IGNORED).sum()
    ...
    ...     return replace(ANSWERS, loss=loss)
    >>> @hookimpl
    ... def zoo_objectives():
    ...     yield Objective("smoothed", "my_plugin.smoothed:SMOOTHED", tasks=("generate",))
    ...     gamma = Setting("gamma", float, 2.0, minimum=0, help="Exponent of 1 − p.")
    ...     yield Objective("focal", "my_plugin.focal:focal", tasks=("generate",), settings=(gamma,))
    >>> [objective.name for objective in zoo_objectives()]
    ['smoothed', 'focal']
    """


@hookspec
def zoo_facts() -> Iterable[FactSource]:  # type: ignore[empty-body]
    """Facts about models, which `zoo show`, `zoo compare` and `zoo.describe.facts_of` list beside the zoo's own.

    A fact has a unique name, a label, a value, and a unit.

    >>> from zoo.architecture import FactSource, hookimpl
    >>> from zoo.describe import Fact
    >>> def deepest(recipe):  # in the module that the record names
    ...     yield Fact("depth.ratio", "width a layer", recipe.dim // len(recipe.layers))
    >>> @hookimpl
    ... def zoo_facts():
    ...     yield FactSource("depth", "my_plugin.facts:deepest", "how deep a model is for its width")
    >>> [source.name for source in zoo_facts()]
    ['depth']
    """


@hookspec(firstresult=True)
def zoo_resolve(config: Mapping[str, Any]) -> str | None:
    """The name of a config.json's architecture where its `model_type` does not determine it; None to pass.

    The hook is called before `model_types` are looked up; a plugin that bridges to another library is asked last.
    `config` is the file's content, of any types: a hook that raises is skipped with a warning.

    >>> from zoo.architecture import hookimpl
    >>> @hookimpl
    ... def zoo_resolve(config):
    ...     return "shouting-llama" if "logit_scale" in config else None
    >>> zoo_resolve({"model_type": "llama", "logit_scale": 2.0})
    'shouting-llama'
    """


@hookspec
def zoo_drawings() -> Iterable[Drawing]:  # type: ignore[empty-body]
    """Drawings: functions that draw a spec in the diagrams of `zoo show` and `zoo compare`.

    `subject.part("mixer")` returns the items of a part, drawn by its own spec's drawing. A spec without a drawing is drawn
    as its base class, or as a box with its fields; a layer only as a box, since it may join its parts in another way. The
    function may change the items of another drawing: `zoo.describe.diagram.parts` has the zoo's own, and `side_by_side`
    for parts that run in parallel.

    >>> from dataclasses import dataclass
    >>> from zoo.architecture import Drawing, hookimpl
    >>> from zoo.describe.diagram import Residual  # in the module that the record names
    >>> from zoo.recipe import Spec
    >>> @dataclass(frozen=True)
    ... class MixerLayer(Spec):
    ...     kind, name = "layer", "my-mixer-only"
    ...     norm: Spec
    ...     mixer: Spec
    >>> def mixer_layer(subject):
    ...     return Residual((*subject.part("norm"), *subject.part("mixer")))
    >>> @hookimpl
    ... def zoo_drawings():
    ...     yield Drawing(MixerLayer, "my_plugin.drawing:mixer_layer")
    >>> [drawing.spec.block() for drawing in zoo_drawings()]
    ['layer/my-mixer-only']
    """


@hookspec
def zoo_experiments() -> Iterable[Experiment]:  # type: ignore[empty-body]
    """Experiments of `zoo lab`: functions from a `zoo_lab.plan.Scale` to a `zoo_lab.plan.Plan`.

    A plan has arms, functions that run one thing with one seed and return numbers and curves. It states its claims in
    advance. `zoo lab NAME` runs every arm with every seed, writes a record, and computes from its numbers which claims
    hold. `zoo_lab.training.trained` trains a recipe for an arm.

    >>> from zoo.architecture import Experiment, hookimpl
    >>> import random
    >>> from functools import partial
    >>> from zoo_lab.plan import Arm, Metric, Plan, Result, lower  # in the module that the record names
    >>> def throw(dice, trial):
    ...     draw = random.Random(trial.seed)
    ...     return Result({"sum": sum(draw.randint(1, 6) for _ in range(dice))})
    >>> def throws(scale):
    ...     arms = tuple(Arm(f"{dice} dice", partial(throw, dice)) for dice in (2, 10))
    ...     claim = lower("Two dice show less than ten", "2 dice", "10 dice", "sum")
    ...     return Plan(arms, (Metric("sum", "sum of a throw"),), claims=(claim,))
    >>> @hookimpl
    ... def zoo_experiments():
    ...     yield Experiment(
    ...         name="dice",
    ...         target="my_plugin.dice:throws",
    ...         question="Do more dice show more?",
    ...         expected="Two dice show less than ten.",
    ...     )
    >>> [experiment.name for experiment in zoo_experiments()]
    ['dice']
    """


@hookspec
def zoo_commands() -> Iterable[Command]:  # type: ignore[empty-body]
    """Subcommands of `zoo`: click commands at "package.module:attribute", imported only when they are called.

    An error that a command raises as a `zoo.errors.ZooError` is printed as one line.

    >>> from zoo.architecture import Command, hookimpl
    >>> @hookimpl
    ... def zoo_commands():
    ...     yield Command("hello", "my_plugin.cli:hello", "Says hello.")
    >>> [command.name for command in zoo_commands()]
    ['hello']
    """


@hookspec
def zoo_probes() -> Iterable[ModuleProbe]:  # type: ignore[empty-body]
    """Probes: what is traced inside a module, where interventions can change it. A module's output is always traced.

    A probe's methods call those of the module by `super()`, and note the results under names while a model is traced.

    >>> from zoo.architecture import ModuleProbe, hookimpl
    >>> from zoo.inspect.tracing import probe
    >>> class GateProbe(probe.Probe):
    ...     traces = probe.Traces(values={"gate": probe.Value("B T F", "how far each channel is open")})
    ...
    ...     def gate(self, x):
    ...         return self.note("gate", super().gate(x))
    >>> @hookimpl
    ... def zoo_probes():
    ...     yield ModuleProbe("my_plugin.block:GatedAttention", "my_plugin.probe:GateProbe")
    >>> [probe.module for probe in zoo_probes()]
    ['my_plugin.block:GatedAttention']
    """


HOOKS = tuple(name for name in globals() if name.startswith("zoo_"))

# The record that each hook yields; `zoo_resolve` gives a name.
RECORDS: dict[str, type[Record]] = {
    hook: get_args(get_type_hints(globals()[hook])["return"])[0] for hook in HOOKS if hook != "zoo_resolve"
}
