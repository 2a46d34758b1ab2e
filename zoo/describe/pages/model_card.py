"""The card of a model: a JSON record of everything that a page shows of it. Imports no mlx.

A card holds texts in one language, and the numbers from which the page computes what follows a context or a format.
Code, which many models share, is in a table of its own (`code_table`). The page's script aligns, marks and draws the
diagram.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from zoo.describe.described import Described, base_of, how_to_run
from zoo.describe.diagram import diagram_in, diagram_of
from zoo.describe.diagram.arrange import keyed
from zoo.describe.diagram.draw import which
from zoo.describe.diagram.model import Box, Diagram, Frame
from zoo.describe.differences import differences, is_of_sizes
from zoo.describe.facts.counts import decode_flops, is_opaque
from zoo.describe.facts.fact import Fact
from zoo.describe.language import in_language
from zoo.describe.source_code import bases_of, block_classes, block_parts, recipe_code, source_of
from zoo.host.registry import Registry
from zoo.recipe import Model

Say = Callable[[str], str]  # a text in the language of the card
FAR = 2**31  # a text beyond every window
# Facts that the page leaves out: of the machine that it is made on, and those of parts at one context.
LEFT_OUT = ("fits", "cache.kind.")


def card(
    model: Described,
    registry: Registry,
    *,
    language: str = "en",
    pocket: Sequence[Fact] = (),
    measured: Sequence[Fact] = (),
) -> dict[str, Any]:
    """The card of a model.

    `pocket` are the figures of its architecture's small checkpoint, `measured` those of a run on this machine.
    """
    say = partial(in_language, language=language)
    architecture, recipe, preset = model.architecture, model.recipe, model.preset
    plugin = registry.plugin_of(architecture)
    sheet = model.sheet(registry)
    diagram = diagram_of(recipe, model.origin, registry)
    base = base_of(model, registry)
    words = differences(base[1], recipe, sizes=False) if base is not None else []
    return {
        "name": model.origin,
        "architecture": architecture.name,
        "summary": say(architecture.summary),
        "about": say(diagram.summary),
        "task": architecture.task,
        "plugin": f"{plugin.name} ({plugin.distribution} {plugin.version})",
        "hub": preset.hub if preset else None,
        "types": list(architecture.model_types),
        "references": list(architecture.references),
        "published": architecture.published,
        "base": base and {"name": base[0], "sentences": list(map(say, words))},
        "context": recipe.context,
        "facts": [_fact(fact, say) for fact in sheet if not fact.name.startswith(LEFT_OUT)],
        "numbers": {key: sheet.numbers[key] for key in ("cache", "weights", "parameters")},
        "flops": flops_points(recipe),
        "stacks": drawn(diagram_in(diagram, language)),
        "recipe": recipe_lines(recipe, say),
        "code": code_of(model, registry),
        "weights": _weights(model, registry),
        "pocket": [_fact(fact, say) for fact in pocket],
        "measured": [_fact(fact, say) for fact in measured],
        "run": [[command, say(remark) if remark else ""] for command, remark in how_to_run(model)],
    }


def _fact(fact: Fact, say: Say) -> list[Any]:
    """Name, role, label, text, what is compared where the text is not enough, and 1 for a detail."""
    value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    text = say(fact.text)
    return [fact.name, fact.role, say(fact.label), text, None if value == text else value, int(fact.detail)]


def words_between(
    models: Mapping[str, Described], languages: Sequence[str] = ("en",)
) -> dict[str, dict[str, dict[str, list[tuple[str, bool]]]]]:
    """The differences of each model from each other: {language: {name: {the other: sentences}}}.

    Each sentence has beside it whether it says of sizes alone that they differ.
    """
    words = {
        name: {
            before: differences(base.recipe, other.recipe)
            for before, base in models.items()
            if before != name
        }
        for name, other in models.items()
    }
    return {
        language: {
            name: {
                before: [(in_language(text, language), is_of_sizes(text)) for text in told]
                for before, told in others.items()
            }
            for name, others in words.items()
        }
        for language in languages
    }


Words = Mapping[str, Sequence[tuple[str, bool]]]  # of one model, by the name of the other


def shared_words(words: Mapping[str, Words], least: int = 4) -> dict[str, Any]:
    """What the cards of some models share of their words: `names`, and the `sentences` that `least` of the cards would hold.

    `sizes` are the indices of the sentences that say of sizes alone that they differ.
    """
    # The order of `words` is the same in every process, so a sentence has the same index in each.
    of_cards = (dict.fromkeys(one for row in told.values() for one in row) for told in words.values())
    held = Counter(sentence for sentences in of_cards for sentence in sentences)
    frequent = [sentence for sentence, count in held.items() if count >= least]
    return {
        "names": list(words),
        "sentences": [text for text, _ in frequent],
        "sizes": [index for index, (_, of_sizes) in enumerate(frequent) if of_sizes],
    }


def with_words(one: dict[str, Any], words: Words, shared: Mapping[str, Any]) -> dict[str, Any]:
    """A card with `words`, the model's row of `words_between`.

    The card's `words` are lists of indices, one for each of the `names` in `shared_words`. An index counts the shared sentences
    first, then the card's own `sentences`. `sizes` are the indices of the own sentences that tell sizes alone.
    """
    table = {sentence: index for index, sentence in enumerate(shared["sentences"])}
    count = len(table)
    rows = [
        [table.setdefault(sentence, len(table)) for sentence, _ in words.get(name, ())]
        for name in shared["names"]
    ]
    sizes = {table[sentence] for told in words.values() for sentence, of_sizes in told if of_sizes}
    own = sorted(index for index in sizes if index >= count)
    return one | {"sentences": list(table)[count:], "words": rows, "sizes": own}


def flops_points(recipe: Model) -> dict[str, Any]:
    """The numbers from which a page computes FLOPs a token for any number of tokens.

    `decode` and `prefill` are points (tokens seen, FLOPs) between which the count is linear: at 1, at every window, and
    far beyond. `decode` is None where no text is written, both are None where they are not known. `sums`: a text is read
    with each token seeing those before it, so that the average over them is asked for; `head` is then left out of all but
    the last.
    """
    if is_opaque(recipe):
        return {"decode": None, "prefill": None, "head": 0, "sums": False}
    windows = {part.attention_window for _, part in recipe.walk()}
    tokens = sorted({1, *filter(None, windows), FAR})
    generates, written = recipe.task == "generate", decode_flops(recipe, 1) is not None
    return {
        "decode": [[n, decode_flops(recipe, n)] for n in tokens] if written else None,
        "prefill": [[n, recipe.flops(recipe.dim, n, True)] for n in tokens],
        "head": recipe.head.flops(recipe.dim, 1, True) if generates else 0,
        "sums": generates and recipe.causality == "causal",
    }


def recipe_lines(recipe: Model, say: Say = str) -> list[str]:
    """The recipe in JSON, line by line; equal layers are written once, after a "//" that says which they are."""
    return json.dumps(_told_once(recipe.to_json(), say), ensure_ascii=False, indent=1).splitlines()


def _told_once(value: object, say: Say) -> Any:
    if isinstance(value, dict):
        return {key: _told_once(item, say) for key, item in value.items()}
    if not isinstance(value, list) or not any(isinstance(item, dict) for item in value):
        return value
    layers: list[Any] = []
    for item in value:
        repeated = isinstance(item, dict) and set(item) == {"repeat", "layer"}
        layers += [item["layer"]] * item["repeat"] if repeated else [item]
    kinds: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        kinds.setdefault(json.dumps(layer), []).append(index)
    return [
        {"//": f"{len(indices)} × {say(which(indices, len(layers)))}".strip(), **layers[indices[0]]}
        for indices in kinds.values()
    ]


def code_of(model: Described, registry: Registry) -> dict[str, Any]:
    """The names in the table of code: of what makes the recipe, and of the class that runs each block, with its parts."""
    parts = block_parts(model.recipe)
    blocks = {
        block: {"code": source.name, "parts": list(parts.get(block, ()))}
        for block, one in block_classes(model.recipe, registry).items()
        if (source := source_of(one))
    }
    sources = map(source_of, recipe_code(model.architecture.recipe))
    return {"recipe": [source.name for source in sources if source], "blocks": blocks}


def code_table(models: Iterable[Described], registry: Registry) -> dict[str, dict[str, Any]]:
    """The code that some models' cards name, and that of the classes which it inherits from: file, line, HTML, bases."""
    table: dict[str, dict[str, Any]] = {}
    for one in models:
        classes: list[Callable[..., Any]] = list(block_classes(one.recipe, registry).values())
        for target in recipe_code(one.architecture.recipe) + classes:
            for source in filter(None, map(source_of, (target, *bases_of(target)))):
                if source.name not in table:
                    about = {"file": source.file, "line": source.line, "html": source.html}
                    table[source.name] = about | {"bases": list(source.bases)}
    return table


def _weights(model: Described, registry: Registry) -> dict[str, list[list[str]]]:
    """The tensors of each published layout beside the parameters that they become."""
    from zoo.checkpoint.weight_map import weight_names

    if is_opaque(model.recipe):
        return {}
    return {
        layout: [[" + ".join(pair.tensors), " + ".join(pair.parameters)] for pair in pairs]
        for layout, pairs in weight_names(model.architecture, model.recipe, registry).items()
    }


def drawn(diagram: Diagram) -> list[dict[str, Any]]:
    """The stacks of a diagram: for each item its key among those of its stack, and its texts."""
    return [
        {
            "role": stack.role,
            "title": stack.title,
            "start": box_data(stack.start, "start"),
            "items": list(_items(stack.items, iter(keyed(stack.items)))),
            "end": box_data(stack.end, "end"),
        }
        for stack in diagram.stacks
    ]


def _items(items: Sequence[Any], keys: Iterator[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        key, _ = next(keys)
        if isinstance(item, Box):
            yield box_data(item, key)
            continue
        data: dict[str, Any] = {"kind": "residual", "key": key, "items": list(_items(item.items, keys))}
        if isinstance(item, Frame):
            about = {"count": item.count, "label": item.label, "path": item.path, "block": item.block}
            data |= {"kind": "frame", **about}
        yield data


def box_data(box: Box, key: str) -> dict[str, Any]:
    """A box with its key; `rows` are the titles of its parts, from bottom to top."""
    data: dict[str, Any] = {
        "kind": "box",
        "key": key,
        "role": box.role,
        "title": box.title,
        "path": box.path,
        "block": box.block,
    }
    if box.notes:
        data["notes"] = [[note.name, note.text] for note in box.notes]
    if box.rows:
        data["rows"] = [[cell.title for cell in row] for row in box.rows]
    if box.memory:
        data["memory"] = True
    return data
