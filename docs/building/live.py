"""The models of the live pages: eight pockets as files that a script in a page can read.

Of each model a folder has `model.json` (recipe, special tokens, texts), `tokenizer.json` (the tokens, the merges and
the patterns alone) and `weights.safetensors` (float16, by the paths of the zoo's own parameters). They are written once, at the
end of the English build; the Chinese site reads the same files.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from building.build_cache import cached_folder

MODELS = ("gpt2", "gpt2-postln", "llama", "qwen3", "mixtral", "bert", "transformer", "llada")
SCRIPTS = Path(__file__).parent.parent / "_static" / "live"
# Of a translator from English, in every language of the site.
ENGLISH = ["My mother drinks tea.", "The doctor is reading a book.", "I love NLP because it is interesting."]
# By task and language of the site: topics, each with the prompts that show what a model knows of it. The first is the default.
PROMPTS: dict[str, dict[str, dict[str, list[str]]]] = {
    "generate": {
        "en": {
            "Capitals": ["The capital city of China is", "The capital of Kenya is called"],
            "Languages": ["An official language of Brazil is"],
            "Currencies": ["The currency of Japan is the"],
            "Continents": ["Egypt lies in", "One of the countries of"],
        },
        "zh": {
            "首都": ["中国的首都是", "说到肯尼亚，它的首都是"],
            "语言": ["巴西的官方语言有"],
            "货币": ["日本的货币是"],
            "大洲": ["法国位于"],
        },
    },
    "fill-mask": {
        "en": {
            "Capitals": ["The capital city of Japan is [MASK].", "[MASK] is the capital of Kenya."],
            "Currencies": ["The currency of China is the [MASK]."],
        },
        "zh": {"首都": ["日本的首都是[MASK]。"], "大洲": ["法国位于[MASK]。"]},
    },
    "denoise": {
        "en": {
            "Capitals": ["The capital city of China is", "The capital of Japan is"],
            "Continents": ["Egypt lies in"],
        },
        "zh": {"首都": ["中国的首都是"], "大洲": ["法国位于"]},
    },
    "translate": {"en": {"Everyday life": ENGLISH}, "zh": {"日常生活": ENGLISH}},
}
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # of GPT-2


def export(folder: Path, names: tuple[str, ...] = MODELS) -> None:
    """Write the scripts to a folder, and the models below its `models`, each to a folder of its name.

    Lines that are a comment are left out of the scripts: their readers find them in the sources.
    """
    from zoo.inspect.trace_view.page import COMMENT_LINE

    folder.mkdir(parents=True, exist_ok=True)
    for script in SCRIPTS.iterdir():
        text = script.read_text(encoding="utf-8")
        (folder / script.name).write_text(
            COMMENT_LINE.sub("", text) if script.suffix == ".js" else text, encoding="utf-8"
        )
    for name in names:
        made = cached_folder(lambda target, name=name: write_model(name, target), f"live-{name}")
        shutil.copytree(made, folder / "models" / name, dirs_exist_ok=True)


def write_model(name: str, folder: Path) -> None:
    """Write the three files of a model."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from zoo.loading import load

    loaded = load(name)
    floats = {path: array.astype(mx.float16) for path, array in tree_flatten(loaded.model.parameters())}
    weights = folder / "weights.safetensors"
    mx.save_safetensors(str(weights), floats)
    write_json(folder / "model.json", description(loaded) | {"bytes": weights.stat().st_size})
    write_json(
        folder / "tokenizer.json",
        tokenizer(json.loads((loaded.folder / "tokenizer.json").read_text("utf-8"))),
    )


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON without spaces."""
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def description(loaded: Any) -> dict[str, Any]:
    """What the scripts need to know of a model besides its numbers; texts by language."""
    from zoo.describe.language import LANGUAGES, in_language
    from zoo.inspect.trace_view.explanations import explanations

    task = loaded.architecture.task
    texts = explanations(loaded)
    return {
        "name": loaded.architecture.name,
        "architecture": loaded.architecture.name,
        "task": task,
        "recipe": loaded.recipe.to_json(),
        "special": special(loaded),
        "words": {
            language: {part: in_language(text, language) for part, text in texts.items()}
            for language in LANGUAGES
        },
        "values": values(loaded),
    }


def examples(task: str, language: str) -> list[str]:
    """The example prompts of a task, of all topics."""
    return [prompt for prompts in PROMPTS[task][language].values() for prompt in prompts]


def special(loaded: Any) -> dict[str, Any]:
    """The ids of special tokens by their use; `eos` are all that end a text."""
    from zoo.generation.loop.prompt import mask_id

    names = ("bos_token", "pad_token", "mask_token")
    ids = {name.removesuffix("_token"): loaded.tokenizer.special_tokens.get(name) for name in names}
    found: dict[str, Any] = {
        use: loaded.tokenizer.id(token) for use, token in ids.items() if token is not None
    }
    found["eos"] = sorted(loaded.tokenizer.eos_ids)
    if loaded.architecture.task in ("fill-mask", "denoise"):
        found["mask"] = mask_id(loaded)
    else:
        found.pop("mask", None)  # a token that this model never learned
    if loaded.architecture.task == "translate":
        found["start"] = loaded.recipe.start
    return found


def values(loaded: Any) -> dict[str, Any]:
    """Axes, unit and meaning of each value of a run, and whether it is a module's result, by the address in any layer."""
    from zoo.describe.language import LANGUAGES, in_language
    from zoo.inspect.tracing.probe import modules_of, values_of

    modules = modules_of(loaded.model)
    found = {}
    for address, about in values_of(loaded.model, loaded.registry).items():
        if address:
            found[re.sub(r"\blayers\.\d+", "layers.*", address)] = {
                "axes": about.axes.removeprefix("B "),
                "unit": about.unit,
                "noted": address not in modules,
                "summary": {language: in_language(about.summary, language) for language in LANGUAGES},
            }
    return found


def tokenizer(file: dict[str, Any]) -> dict[str, Any]:
    """The part of a `tokenizer.json` that encodes: byte-level BPE after patterns, written as JavaScript has them.

    ValueError for a tokenizer of another kind.
    """
    model, steps = file["model"], file["pre_tokenizer"]["pretokenizers"]
    patterns, name = [], ""
    for step in steps:
        if step["type"] == "Split" and step["behavior"] == "Isolated" and not step["invert"]:
            pattern, own = javascript(step["pattern"]["Regex"])
            patterns.append(pattern)
            name = own or name
        elif step["type"] == "ByteLevel" and not step["add_prefix_space"]:
            patterns += [javascript(GPT2_PATTERN)[0]] if step["use_regex"] else []
        else:
            raise ValueError(f"the pages' tokenizer has no {step['type']} as {step}")
    if model["type"] != "BPE" or file["normalizer"] or file["post_processor"] or model["byte_fallback"]:
        raise ValueError("the pages' tokenizer is byte-level BPE, with nothing before or after it")
    return {
        "vocab": sorted(model["vocab"], key=model["vocab"].get),
        "merges": [" ".join(pair) for pair in model["merges"]],
        "patterns": patterns,
        "name": name,
        "whole": model["ignore_merges"],
        "added": [
            {key: token[key] for key in ("id", "content", "special", "lstrip", "rstrip")}
            for token in file["added_tokens"]
        ],
    }


def javascript(pattern: str) -> tuple[str, str]:
    r"""A regular expression of Oniguruma as JavaScript has it, and the expression of its group "name", if it has one.

    JavaScript has no call of a group, \g<name>: the scripts write the group there.
    """
    scripts = {r"\p{Han}": r"\p{Script=Han}", r"\p{Latin}": r"\p{Script=Latin}"}
    spaces = {r"\s": r"\p{White_Space}", r"\S": r"\P{White_Space}", r"\ ": " ", r"\-": "-"}
    for theirs, ours in (scripts | spaces).items():
        pattern = pattern.replace(theirs, ours)
    start, name = pattern.find("(?<name>"), ""
    if start >= 0:
        end = closing(pattern, start)
        name = pattern[start + len("(?<name>") : end]
        pattern = pattern[:start] + r"\g<name>" + pattern[end + 1 :]
    return pattern, name


def closing(pattern: str, start: int) -> int:
    """The index of the bracket that closes the group at `start`."""
    depth = 0
    for found in re.compile(r"\\.|\[(?:\\.|[^\]])*\]|[()]").finditer(pattern, start):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    raise ValueError("the pattern has a group without an end")


def write(app: Any, error: Exception | None) -> None:
    """Write the models and scripts beside the English site's own."""
    if error is None and app.builder.format == "html" and app.config.zoo_language == "en":
        export(Path(app.outdir, "_static", "live"))


def setup(app: Any) -> None:
    """Write the files when a build ends."""
    app.connect("build-finished", write)
