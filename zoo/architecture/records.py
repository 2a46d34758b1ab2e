"""The records that plugins give besides architectures and blocks. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zoo.architecture.architecture import Architecture, Record, TargetRecord, check_target, import_target
from zoo.architecture.setting import Setting
from zoo.architecture.settings import SHARED
from zoo.errors import PluginError, did_you_mean
from zoo.frozen import frozen
from zoo.recipe import Spec
from zoo.recipe.models import CAUSALITIES

# Arguments that no setting of a strategy may be called.
RESERVED = ("loaded", "prompt", "strategy", "report", "samplers")
ARGUMENTS = ("samplers", "report", "prompt_cache", "checkpoints")  # what `settings` may name besides


@frozen()
class Strategy(TargetRecord):
    """A way to generate text: the function at "package.module:attribute", imported only when it is used.

    It is called `function(loaded, prompt, **settings)` and returns an iterator of `zoo.Step`. `tasks` are those that it
    serves, the zoo's or one of an architecture in the same plugin. `settings` are those that it takes: the names of
    settings shared with the zoo's own strategies (max_tokens, temperature, top_k, ...), and declarations of its own. One
    of its own may have the name of a shared one, whose place it then takes. The function is given checked values of what
    its caller set, and the defaults of its own settings; those whose default is None are left out. A user is warned of
    the keys of a checkpoint's generation_config.json that would change the text and whose setting it does not take.

    `batch`, a target too, runs several prompts in the same passes. It is called `function(loaded, prompts, **settings)`
    with a sequence of prompts and returns an iterator of `(index, Step)`, the index that of the prompt; the steps of one
    prompt are those that `target` returns for it alone. Without it `zoo.batch` runs the prompts one after the other.
    """

    noun, prefix = "strategy", "strategy/"

    tasks: tuple[str, ...]
    settings: tuple[str | Setting, ...] = ()
    summary: str = ""
    batch: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch is not None:
            check_target(f"{self.label}: batch", self.batch)
        own = [setting.name for setting in self.own_settings]
        if repeated := next((name for name in own if own.count(name) > 1), None):
            raise PluginError(f"{self.label}: settings declares {repeated} twice")
        if reserved := next((name for name in own if name in RESERVED), None):
            raise PluginError(
                f"{self.label}: no setting can be called {reserved}, which zoo.stream takes itself"
            )
        known = (*SHARED, *own, *ARGUMENTS)
        if unknown := next((name for name in self.setting_names if name not in known), None):
            hint = did_you_mean(unknown, known, ": declare it as a `Setting`")
            raise PluginError(f"{self.label}: settings names {unknown!r}, which is no shared setting{hint}")

    def batch_function(self) -> Callable[..., Any] | None:
        """The function for several prompts, imported now; None where there is none."""
        return None if self.batch is None else import_target(self.batch)

    @property
    def own_settings(self) -> tuple[Setting, ...]:
        """The settings that it declares itself."""
        return tuple(setting for setting in self.settings if isinstance(setting, Setting))

    @property
    def setting_names(self) -> tuple[str, ...]:
        """The names of all settings that it takes."""
        return tuple(dict.fromkeys(s if isinstance(s, str) else s.name for s in self.settings))

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings given, each of which it takes, checked, and the defaults of its own; PromptError names a bad one."""
        own = {setting.name: setting for setting in self.own_settings}
        declared = SHARED | own
        values = {name: s.default for name, s in own.items() if s.default is not None and name not in given}
        for name, value in given.items():
            values[name] = declared[name].checked(value) if name in declared else value
        return values


@frozen()
class Sampler(TargetRecord):
    """A function at "package.module:attribute" that narrows the choice of the next token.

    It is called `function(logits, **settings)` with float32 logits (B, V), divided by the temperature, and returns logits
    of that shape, -inf for a token that must not be drawn. `settings` declares its settings; one without a default is
    required. A `stateful` target is called once for each sequence, `target(**settings)`, and returns an object that is
    called with the logits (1, V) of each token; `update(token)` is called with the token that was chosen. A sampler that
    declares a setting `min_tokens_to_keep` is given the one of the text.

    A `processor` is a logits processor: `function(tokens, logits, **settings)`, with the ids so far (T,), the prompt's
    first, and the logits (1, V) before the temperature, in greedy decoding and beam search too.
    """

    noun, prefix = "sampler", "sampler/"

    settings: tuple[Setting, ...] = ()
    summary: str = ""
    stateful: bool = False
    processor: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stateful and self.processor:
            raise PluginError(f"{self.label}: a processor is not stateful: it is given the tokens")


@frozen()
class TokenizerFormat(TargetRecord):
    """A tokenizer format: the function at "package.module:attribute" loads a tokenizer from a folder.

    It serves the folders that hold all of `files` and, where `classes` are given, whose tokenizer_config.json names one
    of them as `tokenizer_class`. It is called `function(folder, settings)`, with the folder's path and its
    `TokenizerSettings`, and returns a `zoo.tokenizer.Backend`.
    """

    noun, prefix = "tokenizer", "tokenizer/"
    by_name = False

    files: tuple[str, ...]
    classes: tuple[str, ...] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.files:
            raise PluginError(f"{self.label}: files names none that it is read from")


@frozen()
class QuantizedFormat(Record):
    """The function at "package.module:attribute" that reads the tensors of one `quant_method`.

    It is called `function(tensors, settings, dtype)`, with a `Tensors`, config.json's entry on quantization, and the
    dtype (or None) of what cannot stay packed. It returns a `Tensors` with each matrix under the name of its weight, as a
    `QuantizedMatrix` or an array. `settings_file` holds the settings where config.json has none. A method without a target is
    read by the weight rules of the architectures that have it.
    """

    noun, prefix = "quant_method", "format/"
    by_name = False

    name: str
    target: str | None
    settings_file: str | None = None
    summary: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise PluginError(
                f"quantized format {self.name!r}: its name is the quant_method that config.json has"
            )
        if self.target is not None:
            check_target(self.label, self.target)


@frozen()
class Quantizer(TargetRecord):
    """A method of quantization that reads a text: the function at "package.module:attribute", imported only when used.

    It is called `function(task)` with a `zoo.checkpoint.calibration.CalibrationTask`. It returns a dict of some of the
    task's parameters by path: arrays, `QuantizedMatrix`, or the `QuantizationSpec` by which one is to be rounded. All
    others are rounded as without it. A method with a `budget` chooses the bits of each matrix, on average `bits`.
    """

    noun, prefix = "quantization method", "quantizer/"

    summary: str = ""
    budget: bool = False


@frozen()
class CheckpointFormat(TargetRecord):
    """A checkpoint format: the class (or function) at "package.module:attribute" opens a checkpoint.

    It reads files whose names end in one of `suffixes` or whose first bytes are `magic`, and folders that hold all of
    `files`. It is called `target(path, registry=…, architecture=…)`, with the `Architecture` that was asked for or None,
    and returns a `zoo.checkpoint.checkpoint.Checkpoint`. `options` names the further arguments of `zoo.load` that it
    takes: "repack".
    """

    noun, prefix = "checkpoint", "checkpoint/"
    by_name = False

    suffixes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    magic: bytes = b""
    options: tuple[str, ...] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.magic, bytes):
            raise PluginError(f"{self.label}: magic is bytes, not {self.magic!r}")
        if not (self.suffixes or self.files or self.magic):
            raise PluginError(f"{self.label}: give the suffixes, the files or the magic that one is known by")
        if bad := next((suffix for suffix in self.suffixes if not suffix.startswith(".")), None):
            raise PluginError(f"{self.label}: suffix {bad!r} must begin with a dot")


@frozen()
class CallFormat(TargetRecord):
    """A format of tool calls: the `zoo.generation.chat.parsing.TaggedCalls` or `CustomCalls` at "package.module:attribute".

    It parses the answers of a model whose chat template has all the texts of one of `markers`. `over` names formats whose
    markers such a template may have as well, and over which this one takes precedence. The target is imported only when
    it is used. `summary` says whose format it is.
    """

    noun, prefix = "call format", "calls/"
    by_name, counted = False, True

    markers: tuple[tuple[str, ...], ...]
    over: tuple[str, ...] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        texts = [text for marker in self.markers for text in marker or ("",)]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise PluginError(f"{self.label}: markers are tuples of the texts that a chat template has")

    def matches(self, template: str) -> bool:
        """Whether a chat template has its markers."""
        return any(all(text in template for text in texts) for texts in self.markers)


@frozen()
class Corpus(TargetRecord):
    """Documents to train on: the function at "package.module:attribute", imported only when it is used.

    It is called `function(split, seed)` and returns an iterator of documents: a text, or, where `tasks` has "translate",
    a text and its translation. The same split and seed give the same documents in every process. "train" may be endless;
    when it ends, it starts again with the next seed. "validation" ends, and shares no sentence with "train".

    `tasks` are those that it can train. `questions`, another target, is called `function(every)` and gives an iterator of
    `zoo_corpora.question.Question`, which `zoo evaluate` asks: a representative few, or all of them with `every`.
    `names` and `answers`, targets too, are called `function()` and return the names that occur in the texts, and those
    that answer a question: objectives that mask whole names use them. `sentences` is called like `target` and returns
    single sentences.
    """

    noun, prefix = "corpus", "corpus/"

    tasks: tuple[str, ...]
    summary: str = ""
    questions: str | None = None
    names: str | None = None
    answers: str | None = None
    sentences: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("questions", "names", "answers", "sentences"):
            if getattr(self, field) is not None:
                check_target(f"{self.label}: {field}", getattr(self, field))
        if len({task == "translate" for task in self.tasks}) != 1:
            raise PluginError(
                f"{self.label}: documents are texts or translations: 'translate' goes with no other task"
            )


@frozen()
class Objective(TargetRecord):
    """A training objective: the `zoo.training.objective.TrainingObjective` at "package.module:attribute".

    It is imported only when it is used. `tasks` and `causalities` are those of the architectures it can train. The target
    of an objective that only tunes, on the examples of a data file, is a function: it is called
    `function(loaded, **settings)` and returns a `zoo.training.example_objective.ExampleObjective`. `settings` declares what
    it takes: it is given checked values, defaults included; one without a default is left out unless it is given.
    """

    noun, prefix = "objective", "objective/"

    tasks: tuple[str, ...]
    causalities: tuple[str, ...] = ("causal",)
    summary: str = ""
    settings: tuple[Setting, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := set(self.causalities) - set(CAUSALITIES):
            raise PluginError(
                f"{self.label}: causality {min(unknown)!r} is not one of {', '.join(CAUSALITIES)}"
            )

    def serves(self, architecture: Architecture) -> bool:
        """Whether it can train this architecture."""
        return architecture.task in self.tasks and architecture.causality in self.causalities


@frozen()
class FactSource(TargetRecord):
    """Facts that a plugin adds to fact sheets: the function at "package.module:attribute", imported only when used.

    It is called `function(recipe)` with the recipe of any model and returns `zoo.describe.Fact` records, none for a model
    that it does not describe.
    """

    noun, prefix = "facts", "facts/"

    summary: str = ""


@frozen()
class Command(TargetRecord):
    """A subcommand of `zoo`: a click command at "package.module:attribute", imported only when called.

    `group` is the heading under which `zoo --help` lists it: "Run", "Look inside", "Make", "Extend", "This machine",
    or one of the plugin's own. `ranks`: started by `mlx.launch`, it runs on every rank; other commands run on rank 0 alone.
    """

    noun, prefix = "command", "zoo "
    choose = "run zoo"

    summary: str = ""
    group: str = "Extend"
    ranks: bool = False


@frozen()
class ModuleProbe(Record):
    """Which probe traces a class of modules.

    `module`, "package.module:Class", is the class of the modules, or their base class. `target` is a
    `zoo.inspect.tracing.probe.Probe` at "package.module:Class", imported only when a model with such a module is traced.
    """

    noun, prefix = "probe", "probe/"
    by_name, counted = False, True

    module: str
    target: str
    summary: str = ""

    def __post_init__(self) -> None:
        check_target("probe", self.module)
        check_target(self.label, self.target)

    @property
    def identifier(self) -> str:
        """The class whose modules it traces."""
        return self.module


@frozen()
class Drawing(Record):
    """How one spec is drawn: the function at "package.module:attribute", imported only when it is drawn.

    It is called `function(subject)` with a `zoo.describe.diagram.DrawnSpec` and gives the items of the diagram, from bottom
    to top: `zoo.describe.diagram.Box`, `Residual` or `Frame`. It draws subclasses of `spec` without a drawing, too.
    """

    noun, prefix = "drawing", "drawing/"
    by_name, counted = False, True

    spec: type[Spec]
    target: str
    summary: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.spec, type) and issubclass(self.spec, Spec)):
            raise PluginError(f"drawing {self.spec!r}: its spec must be a subclass of Spec")
        check_target(self.label, self.target)

    @property
    def identifier(self) -> str:
        """The block that it draws, "kind/name"."""
        return self.spec.block()


@frozen()
class Experiment(TargetRecord):
    """An experiment of `zoo lab`: the function at "package.module:attribute", imported only when it is run.

    It is called `function(scale)`, with a `zoo_lab.plan.Scale`, and returns a `zoo_lab.plan.Plan`: what is run, measured,
    drawn and claimed. The results show its `question` and the `expected` answer, with `references` for it. `seeds` is the
    default number of runs of each arm, `seconds` the time that took where the documentation's record was made.
    """

    noun, prefix = "experiment", "experiment/"

    question: str
    expected: str
    summary: str = ""
    references: tuple[str, ...] = ()
    seeds: int = 3
    seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("question", "expected"):
            if not isinstance(getattr(self, field), str) or not getattr(self, field).strip():
                raise PluginError(f"{self.label}: {field} is a text, not {getattr(self, field)!r:.60}")
        if type(self.seeds) is not int or self.seeds < 1:
            raise PluginError(f"{self.label}: seeds is a whole number from 1, not {self.seeds!r:.60}")
