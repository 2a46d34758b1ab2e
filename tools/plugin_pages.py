"""The pages of docs/plugins that are made from the code: hooks.md, parts.md, reference.md and catalogue.md.

python tools/plugin_pages.py        write them anew
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from zoo import weights
from zoo.architecture import Block, Preset
from zoo.config import Config
from zoo.describe import describe
from zoo.host import hookspecs
from zoo.host.hookspecs import HOOKS, RECORDS
from zoo.host.registry import core, default_registry
from zoo.recipe.parts import ACTIVATION_TITLES

# All that a plugin may import, by module: what upgrading.md promises. "*": what the module's `__all__` names.
PROMISED: dict[str, tuple[str, ...]] = {
    "zoo": ("*",),
    "zoo.architecture": ("*",),
    "zoo.recipe": ("*",),
    "zoo.config": ("Config", "Origin"),
    "zoo.weights": ("Rule", "fill", "matches", "Join", "Tensors"),
    "zoo.gguf": ("*",),
    "zoo.describe": ("Fact",),
    "zoo.cache": (
        "Cache",
        "CachePolicy",
        "Snapshot",
        "KVCache",
        "WindowCache",
        "StateCache",
        "LayerCache",
        "CrossCache",
    ),
    "zoo.checkpoint.checkpoint": ("Checkpoint",),
    "zoo.checkpoint.calibration": ("Calibration", "CalibrationTask"),
    "zoo.blocks.activation": ("activation",),
    "zoo.blocks.attention": ("Attention",),
    "zoo.blocks.convolution": ("Convolution", "tokens_only"),
    "zoo.blocks.embedding": ("Embedding",),
    "zoo.blocks.head": ("Head",),
    "zoo.blocks.mask": ("dense",),
    "zoo.generation": ("Generated", "Step"),
    "zoo.generation.loop.prompt": ("encode_prompt", "eos_ids_of", "mask_id"),
    "zoo.generation.settings": ("Settings", "settings_for"),
    "zoo.generation.sampling.draw": ("sampler",),
    "zoo.generation.loop.text_stream": ("TextStream",),
    "zoo.generation.chat.parsing": ("TaggedCalls", "CustomCalls", "Parser", "Parsed"),
    "zoo.generation.chat.tools": ("made_call", "parameters_of", "properties_of"),
    "zoo.generation.chat.values": ("typed_value",),
    "zoo.describe.diagram": ("DrawnSpec", "Box", "Residual", "Frame", "LayerStack", "Note", "Cell", "note"),
    "zoo.inspect.tracing.probe": ("Probe", "Traces", "Value"),
    "zoo.tokenizer": ("Tokenizer", "Backend", "Detokenizer", "TextBytes"),
    "zoo.errors": ("*",),
    "zoo_lab.plan": (
        *("Scale", "Trial", "Result", "Arm", "Metric", "Curve", "Chart", "Claim", "Plan"),
        *("lower", "higher", "near"),
    ),
    "zoo_lab.run": ("Failed",),
    "zoo_lab.training": ("trained", "Trained", "recipe_of"),
    "zoo.testing": (
        *("check_architecture", "check_strategy", "check_card", "imports_nothing_heavy"),
        *("subject", "Subject", "same"),
    ),
}

FOLDER = Path(__file__).parent.parent / "docs" / "plugins"

HOOKS_HEAD = """# Hooks

A plugin implements any of these functions in the module that its entry point names, each marked with
`zoo.architecture.hookimpl`. They return or yield records, frozen dataclasses, which are checked when they are made.
"""

RECORDS_HEAD = """## Records

All of them come from `zoo.architecture`. Give their fields by name: others may join them.
"""

PARTS_HEAD = """# Parts

What recipes, weight rules and configs are made of. Specs come from `zoo.recipe`, everything else from
`zoo.architecture`.

## Specs

A spec is a frozen dataclass; `change(field=value)` gives a copy with some fields changed, and
`change(field=dict(inner=value))` one with a part's fields changed. What else a spec has, `change_layers` of a model among
it, is in the [reference](reference.md).
"""

RULES_HEAD = """## Weight rules

A rule moves tensors from the names of a checkpoint to the paths of parameters, and back when a model is saved. In a
pattern `{i}` stands for one dotted step of a name, `*` for the rest of it, and `[model.]` for a prefix that some
checkpoints leave out. Each tensor is taken by the first rule that fits it: the second of two equal rules does nothing,
and a rule before those of a base replaces one of them. What is open on one side of a rule is open on the other, `{e}` of
`Stack` aside; a rule that breaks this is refused where it is made. `zoo show NAME --rules` lists the rules of a family.
"""

REFERENCE_HEAD = """# Reference

All that a plugin may import, with its signature: what [upgrading](upgrading.md) promises, made from the code. Records
stand on [hooks](hooks.md); specs, weight rules and the config's getters on [parts](parts.md), and here only what these
do besides.
"""

CATALOGUE_HEAD = """# Catalogue: which family to start from, and the blocks that there are

## If your model is like …

| What it has | Start from |
| --- | --- |
| pre-RMSNorm, rotary positions, grouped queries, SwiGLU | `llama` |
| the same with biases on queries, keys and values | `qwen2` |
| a norm on each query and key head | `qwen3` |
| norms over all queries and all keys, norms after each part | `olmo2` |
| norms before and after each part, norms that multiply by one plus a weight | `gemma3`; with soft caps `gemma2` |
| attention and feed-forward side by side, after one norm | `cohere` |
| LayerNorm and biases, a feed-forward without a gate | `starcoder2`; with learned positions `gpt2` |
| fused projections | `phi3` |
| rotary positions on a part of each head | `glm4` |
| experts with a softmax router | `mixtral`; many small ones `qwen3-moe`; with a shared one `qwen2-moe` |
| experts with a sigmoid router and a correction bias | `glm4-moe`; with latent attention `deepseek-v3` |
| attention sinks | `gpt-oss` |
| a state space in some layers | `jamba` for Mamba, `granite-hybrid` or `nemotron-h` for Mamba-2, `falcon-h1` where both are in each layer |
| a gated delta rule | `qwen3-next` |
| short convolutions | `lfm2` |
| an encoder that fills masks | `bert`; with rotary positions `modernbert` |
| an encoder and a decoder | `transformer`; with relative positions `t5` |
| scaled embeddings, scores, sums or logits | `granite` |

`zoo compare` of two candidates says in words what differs, and `zoo new NAME --from FOLDER` finds the nearest family of a
checkpoint by its tensors.

## Blocks

A plugin imports the spec and uses it in its recipe; the registry finds the module that runs it. A family's blocks come with
its plugin, which is part of the same package. What each field means is on the page [parts](parts.md) or in the
spec's docstring (`help(SandwichLayer)`).
"""

CONFIG_HEAD = """## Config

What a recipe function is given: the values of a `config.json`, asked for by type. Null means absent. Every error names
the key.
"""


def hooks_page() -> str:
    """Every hook with its text, its example and who uses it, and the records that they give."""
    parts = [HOOKS_HEAD]
    for hook in HOOKS:
        function = getattr(hookspecs, hook)
        text, example = docstring(function)
        users = [p.name for p in default_registry().plugins if p.first_party and p.records.get(hook)]
        parts += [f"## {hook}\n", f"`{hook}{signature(function)}`\n", text, f"```pycon\n{example}\n```\n"]
        parts.append(f"In the zoo itself: {', '.join(users)}.\n")
    parts.append(RECORDS_HEAD)
    for record in (*RECORDS.values(), Preset):
        parts += [f"### {record.__name__}\n", docstring(record)[0], fields(record)]
    return "\n".join(parts)


def parts_page() -> str:
    """Every spec, weight rule and getter of the config."""
    parts = [PARTS_HEAD]
    kinds: dict[str, list[Block]] = {}
    for block in core().records["zoo_blocks"]:
        kinds.setdefault(block.spec.kind, []).append(block)
    for kind, blocks in sorted(kinds.items()):
        parts.append(f"### {kind}\n")
        for block in blocks:
            parts += [
                f"`{block.spec.__name__}`: `{block.spec.block()}`\n",
                docstring(block.spec)[0],
                fields(block.spec),
            ]
            if reads := vars(block.spec).get("of"):
                call = f"{block.spec.__name__}.of"
                parts += [f"`{call}{signature(reads.__func__)}`\n", docstring(reads.__func__)[0]]
    parts.append(RULES_HEAD)
    rules = [rule for rule in vars(weights).values() if is_rule(rule)]
    for rule in rules:
        parts += [f"### {rule.__name__}\n", docstring(rule)[0], fields(rule)]
    parts.append(CONFIG_HEAD)
    for name, method in vars(Config).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            parts += [f"`config.{name}{signature(method)}`\n", docstring(method)[0]]
    return "\n".join(parts)


def catalogue_page() -> str:
    """Every block, where to import its spec from and which architectures have it; the names of activations."""
    users: dict[type, list[str]] = {}
    for name, architecture in default_registry().architectures.items():
        if default_registry().plugin_of(architecture).first_party and architecture.presets:
            recipe = describe(f"{name}:{architecture.presets[0].name}", default_registry()).recipe
            for spec in {type(spec) for _, spec in recipe.walk()}:
                users.setdefault(spec, []).append(name)
    kinds: dict[str, list[list[str]]] = {}
    for plugin in default_registry().plugins:
        for block in plugin.records.get("zoo_blocks", ()) if plugin.first_party else ():
            module = block.spec.__module__
            home = "zoo.recipe" if module.startswith("zoo.recipe.") else module
            used = [f"`{name}`" for name in users.get(block.spec, ())]
            names = ", ".join(used[:MOST_USERS]) + (" …" if len(used) > MOST_USERS else "")
            if used:
                kinds.setdefault(block.spec.kind, []).append(
                    [f"`from {home} import {block.spec.__name__}`", block.summary, names]
                )
    parts = [CATALOGUE_HEAD]
    for kind, rows in sorted(kinds.items()):
        parts += [f"### {kind}\n", table(["Import", "What it is", "Used by"], rows)]
    names = [[f"`{name}`", title] for name, title in ACTIVATION_TITLES.items()]
    parts += [
        "## Activations\n",
        "Fields such as `activation` take these names.\n",
        table(["Name", "What it is"], names),
    ]
    return "\n".join(parts)


def promised(module: str) -> list[str]:
    """The names of a module that a plugin may import."""
    names = PROMISED[module]
    if names != ("*",):
        return list(names)
    imported = import_module(module)
    given = getattr(imported, "__all__", None)
    return list(given if given is not None else (n for n, v in vars(imported).items() if is_error(v)))


def is_error(thing: Any) -> bool:
    """Whether this is one of the zoo's errors."""
    return isinstance(thing, type) and issubclass(thing, Exception)


def reference_page() -> str:
    """Everything promised, module by module."""
    parts, seen = [REFERENCE_HEAD], set()
    for module in PROMISED:
        parts.append(f"## {module}\n")
        elsewhere = []
        for name in promised(module):
            thing = getattr(import_module(module), name)
            home = page_of(thing)
            if home is None and id(thing) not in seen and isinstance(thing, type | FunctionType):
                parts += entry(name, thing)
            else:
                elsewhere.append(f"`{name}`{f' ([{home}]({home}.md))' if home else ''}")
                parts += (
                    methods(name, thing) if home and thing is not Config and id(thing) not in seen else []
                )
            seen.add(id(thing))
        if elsewhere:
            parts.append(
                f"{'Also ' if len(elsewhere) < len(promised(module)) else ''}{', '.join(elsewhere)}.\n"
            )
    return "\n".join(parts)


def page_of(thing: Any) -> str | None:
    """The page that has the fields or getters of this, if one does."""
    if thing in [*RECORDS.values(), Preset]:
        return "hooks"
    if (
        (is_rule(thing) and thing.__module__ == weights.__name__)
        or thing is Config
        or thing in [block.spec for block in core().records["zoo_blocks"]]
    ):
        return "parts"
    return None


def entry(name: str, thing: Any) -> list[str]:
    """A function with its signature, or a class with its fields and methods."""
    if is_error(thing) or not isinstance(thing, type):
        shown = "" if is_error(thing) else signature(thing)
        return [f"`{name}{shown}`\n", docstring(thing)[0]]
    plain = dataclasses.is_dataclass(thing) or getattr(thing, "_is_protocol", False)
    shown = "" if plain else signature(thing)
    table_of = fields(thing) if dataclasses.is_dataclass(thing) else ""
    return [
        f"### {name}\n",
        f"`{name}{shown}`\n",
        docstring(thing)[0],
        *([table_of] if table_of else []),
        *methods(name, thing),
    ]


def methods(name: str, thing: Any) -> list[str]:
    """The public methods and properties of a class, those of promised bases left out, each with its signature."""
    promised_here = PROMISED.get(thing.__module__, ("*",))
    bases = [
        base
        for base in thing.__mro__[1:]
        if base.__module__ == thing.__module__
        and "*" not in promised_here
        and base.__name__ not in promised_here
    ]
    names = []
    for key, value in {key: value for part in (*bases, thing) for key, value in vars(part).items()}.items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if key.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        text = docstring(function)[0].rstrip()
        shown = "" if isinstance(value, property) else signature(function)
        shown = re.sub(r"^\((?:cls|spec: Any)(?:, |(?=\)))", "(", shown)  # the class or object itself
        names.append(f"- `{name}.{key}{shown}`: {' '.join(text.split())}")
    return ["\n".join(names) + "\n"] if names else []


def is_rule(thing: Any) -> bool:
    """Whether this is a weight rule that an author may use."""
    return isinstance(thing, type) and issubclass(thing, weights.Rule) and thing is not weights.Rule


def docstring(thing: Any) -> tuple[str, str]:
    """The docstring in two: its text, and its examples."""
    text, mark, example = (inspect.getdoc(thing) or "").partition(">>> ")
    return text.rstrip() + "\n", (mark + example).rstrip()


def signature(function: Any) -> str:
    """The arguments and result of a function, as they are written, without `self`."""
    plain = re.sub(
        r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function))
    )  # annotations are kept as text
    plain = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", plain)  # those of a named tuple are kept as references
    return (
        re.sub(r"<object object at \w+>", "REQUIRED", plain).replace("(self, ", "(").replace("(self)", "()")
    )


def fields(record: type) -> str:
    """The fields of a dataclass as a table."""
    rows = [[f"`{f.name}`", f"`{type_of(f)}`", default(f)] for f in dataclasses.fields(record)]
    return table(["Field", "Type", "Default"], rows) if rows else ""


def type_of(field: dataclasses.Field[Any]) -> str:
    """A field's type as it is written."""
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))


def default(field: dataclasses.Field[Any]) -> str:
    """A field's default, or nothing when it must be given."""
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    if field.default_factory is dataclasses.MISSING:
        return ""
    value = field.default_factory()
    return f"`{value!r}`" if isinstance(value, dict | list | tuple) else "made"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    # "\\|" is a bar within a cell, also within code, where an entity would be shown as it is written.
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


MOST_USERS = 6  # architectures that the catalogue names for a block
PAGES = {
    "hooks.md": hooks_page,
    "parts.md": parts_page,
    "reference.md": reference_page,
    "catalogue.md": catalogue_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
