"""The parts of an architecture's page, each as Markdown: everything in them is computed or read from a record."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from building.architecture_words import WORDS, month
from building.compare_cards import record
from building.diagram import figure
from building.family import Member, members, variants
from building.markdown import plain, raw, table
from zoo.describe import compare, describe
from zoo.describe.described import command_of, pocket_facts
from zoo.describe.facts.fact import ABSENT
from zoo.describe.language import in_language
from zoo.describe.pages.comparison import about_record
from zoo.host.registry import Registry

MACHINE = "fits"  # the fact that is another on each machine
AT_CONTEXT = ("cache.context", "flops.decode", "flops.prefill")
CONTEXT = 4096  # tokens at which cache and FLOPs are told
ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
COMPARED = 6  # relatives that a page links to, side by side
FOLLOWED = 12  # tokens that an example writes at most


def about(one: Member, registry: Registry, language: str) -> str:
    """What the architecture's record holds, and which others are told from it."""
    words, architecture = WORDS[language], one.found.architecture
    plugin = registry.plugin_of(architecture)
    joined = words["list"].join
    rows = [[words["task"], words[f"task {one.task}"]]]
    if one.published:
        rows.append([words["published"], month(one.published, language)])
    if one.base:
        rows.append([words["base"], _page(one.base, registry)])
    if told := variants(one.name, members(registry)):
        rows.append([words["variants"], joined(_page(other.name, registry) for other in told)])
    rows.append([words["plugin"], words["from"].format(plugin=plugin.name, distribution=plugin.label)])
    if architecture.model_types:
        rows.append([words["model_type"], joined(map(_code, architecture.model_types))])
    presets = [preset for preset in architecture.presets if preset.config and preset.name != "tiny"]
    rows.append([words["presets"], joined(_preset(preset, words) for preset in presets)])
    if architecture.gguf:
        rows.append([words["gguf"], _code(architecture.gguf.architecture)])
    rows.append([words["mlx"], words["both layouts" if architecture.mlx_weights else "one layout"]])
    return raw(table([], rows, "zoo-sheet", one.name))


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _page(name: str, registry: Registry) -> str:
    return f'<a href="{name}.html">{name}</a>' if name in members(registry) else name


def _preset(preset: Any, words: dict[str, str]) -> str:
    """A preset, with where its checkpoint is."""
    where = words["embedded" if preset.embedded else "trainable"]
    if preset.hub:
        where = f'<a href="https://huggingface.co/{preset.hub}">{preset.hub}</a>'
        where += f", {escape(preset.licence)}" if preset.licence else ""
    return _code(preset.name) + words["aside"].format(text=where)


def diagram(one: Member, registry: Registry, language: str) -> str:
    """The block diagram; what the base has not is marked."""
    from zoo.describe.diagram import diagram_in, diagram_of, marked
    from zoo.describe.diagram.svg import to_svgs

    words = WORDS[language]
    recipes = [*([one.base_recipe] if one.base else []), one.found.recipe]
    drawn = marked([diagram_of(recipe, one.origin, registry) for recipe in recipes])[-1]
    drawn = diagram_in(drawn, language)
    picture = to_svgs([drawn], ident=f"diagram-{one.name}")[0]
    said = "diagram of" if not one.base else "diagram marked own" if one.base_origin else "diagram marked"
    shown = figure(picture, drawn, f"architectures/{one.name}", language)
    text = words[said].format(origin=one.origin, base=one.base, base_origin=one.base_origin)
    return f"{text}\n\n" + raw(f'<div class="zoo-diagrams">{shown}</div>')


def difference(one: Member, language: str) -> str:
    """What differs from the base, in sentences."""
    words = WORDS[language]
    if not one.sentences:
        return words["nothing"] + "\n"
    sentences = "\n".join(f"- {plain(in_language(sentence, language))}" for sentence in one.sentences)
    said = words["differences said own" if one.base_origin else "differences said"]
    beside = f'<a href="../compare/index.html#{one.base},{one.origin}">{words["beside"]}</a>'
    return f"{said.format(base=one.base, base_origin=one.base_origin)}\n\n{sentences}\n\n{beside}\n"


def facts(one: Member, registry: Registry, language: str) -> str:
    """The fact sheets of its presets, side by side, the published ones first."""
    words, architecture = WORDS[language], one.found.architecture
    presets = sorted(
        (preset for preset in architecture.presets if preset.config and preset.name != "tiny"),
        key=lambda preset: preset.name == "pocket",
    )
    found = [describe(f"{one.name}:{preset.name}", registry) for preset in presets]
    context = min([CONTEXT, *([found[0].recipe.context] if found[0].recipe.context else [])])
    sheets = [every.sheet(registry, context, tokenizer=every.tokenizer(registry)) for every in found]
    short = [bool(every.recipe.context and every.recipe.context < context) for every in found]
    rows = []
    for row in compare(sheets):
        if row.detail or row.empty or row.name == MACHINE:
            continue
        beyond = row.name in AT_CONTEXT
        texts = [
            ABSENT if beyond and less else in_language(text, language)
            for text, less in zip(row.texts, short, strict=True)
        ]
        rows.append([escape(text) for text in (in_language(row.label, language), *texts)])
    head = [words["fact"], *(_code(every.origin) for every in found)]
    said = words["facts said"].format(context=f"{context:,}")
    return f"{said}\n\n" + raw(table(head, rows, "zoo-sheet", words["facts"]))


def weights(one: Member, registry: Registry, language: str) -> str:
    """Which tensors become which parameters, in each layout."""
    from zoo.checkpoint.weight_map import weight_names

    words = WORDS[language]
    parts = [words["weights said"].format() + "\n"]
    for layout, pairs in weight_names(one.found.architecture, one.found.recipe, registry).items():
        rows = [[_names(pair.tensors), _names(pair.parameters)] for pair in pairs]
        shown = table([words["tensors"], words["parameters"]], rows, "zoo-names", words[f"layout {layout}"])
        title = words[f"layout {layout}"]
        parts.append(raw(f"<details><summary>{title}</summary>{shown}</details>"))
    return "\n".join(parts)


def _names(names: tuple[str, ...]) -> str:
    return "<br>".join(map(_code, names))


def pocket(one: Member, language: str) -> str:
    """What was measured of the embedded checkpoint when it was trained and questioned."""
    words = WORDS[language]
    preset = one.found.architecture.preset("pocket")
    if preset is None or not preset.embedded:
        said = "no pocket" if preset is not None else "no pocket config"
        return words[said].format(name=one.name) + "\n"
    facts = pocket_facts(one.found.architecture, record().get("pockets", {}).get(one.name))
    rows = [[escape(in_language(text, language)) for text in (fact.label, fact.text)] for fact in facts]
    shown = table([words["measure"], words["value"]], rows, "zoo-sheet", words["pocket"])
    said = words["pocket said"].format(name=one.name)
    about = about_record(record(), language)
    return "\n\n".join(part for part in (said, raw(shown), about) if part) + "\n"


def run(one: Member, language: str) -> str:
    """Commands: of the small checkpoint with what it writes, of published ones, else to train one."""
    words, architecture = WORDS[language], one.found.architecture
    command, prompt = command_of(one.task), words[f"prompt {one.task}"]
    parts = []
    small = architecture.preset("pocket")
    if small is not None and small.embedded:
        bound = f" --max-tokens {FOLLOWED}" if one.task == "generate" else ""
        line = f'zoo {command} {one.name} "{prompt}"{bound}'
        parts.append(f"{words['run pocket']}\n\n<!-- console: {line} -->\n<!-- end -->\n")
    published = [preset.hub for preset in architecture.presets if preset.hub]
    if published:
        lines = "\n".join(f"$ zoo {command} {hub} TEXT" for hub in published)
        parts.append(f"{words['run hub']}\n\n```console\n{lines}\n```\n")
    if small is not None and not small.embedded:
        parts.append(f"{words['run train']}\n\n```console\n$ zoo train {one.name}\n```\n")
    return "\n".join(parts)


def comparisons(one: Member, registry: Registry, language: str) -> str:
    """Links to the page that shows models side by side: with the base, and the relatives published next to this one."""
    words, among = WORDS[language], members(registry)
    relatives = [*variants(one.name, among), *(variants(one.base, among) if one.base else ())]
    relatives = [other for other in relatives if other.name != one.name]
    if not relatives and one.base not in among:
        relatives = [other for other in among.values() if not other.base and other.name != one.name]
    order = list(among)
    relatives.sort(key=lambda other: abs(order.index(other.name) - order.index(one.name)))
    near = [*([among[one.base]] if one.base in among else []), *relatives][:COMPARED]
    links = (
        f'<a href="../compare/index.html#{one.origin},{other.origin}">{other.name}</a>' for other in near
    )
    return words["compare with"].format(links=words["list"].join(links), chosen=one.origin) + "\n"


def references(one: Member) -> str:
    """Where it was published."""
    found = one.found.architecture.references
    return "".join(
        f"- {ARXIV.sub(lambda match: f'[{match[0]}](https://arxiv.org/abs/{match[1]})', plain(text))}\n"
        for text in found
    )
