"""Prompt caches as safetensors files: arrays by tree and node, described in the metadata.

A file is written atomically. Its first bytes name the format, so that no other file is ever replaced. A checksum shows
whether a file is whole, and the dtypes and shapes of its arrays are compared with those of the model's caches. The
fingerprint of the model and its tokenizer, the same for every load of the same files, tells whose caches a file has.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo.blocks.model import Model
from zoo.cache import Cache, CachePolicy, Snapshot, flatten_caches
from zoo.checkpoint.safetensors import read_header
from zoo.errors import CheckpointError, PromptError, SourceError
from zoo.files.reading import parse_json
from zoo.files.writing import check_output, is_stream, output_file
from zoo.generation.prefix_cache.tree import Node, Tree
from zoo.loading import Loaded

FORMAT = "zoo-prompt-cache"
VERSION = "2"
HEAD_BYTES = 256  # the format is named among the first bytes of a file


class Damaged(Exception):
    """The file of a prompt cache is not whole, or of another version."""


def write(path: Path, trees: Mapping[CachePolicy, Tree], loaded: Loaded) -> None:
    """Write the trees of a model. PromptError for a file of another kind, or where nothing can be written.

    What an adapter computed stays out: its name does not say that another session's has the same numbers.
    """
    check_kind(path)
    tensors: dict[str, mx.array] = {}
    described = []
    for number, (policy, tree) in enumerate((p, t) for p, t in trees.items() if p.adapter is None):
        order: dict[Node | None, int] = {node: index for index, node in enumerate(tree.nodes())}
        forms = [{"kind": form.kind, "by_column": form.by_column} for form in tree.forms]
        entries = []
        for index, node in enumerate(tree.nodes()):
            tensors |= {f"{name}.{number}.{index}.{where}": part for name, where, part in _arrays(node)}
            parent, columns = order.get(node.parent, -1), [len(arrays) for arrays in node.columns]
            states = node.states and [{"kind": s.kind, "arrays": len(s.arrays)} for s in node.states]
            entries.append({"parent": parent, "used": node.used, "columns": columns, "states": states})
        described.append({"policy": asdict(policy), "forms": forms, "nodes": entries})
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "model": fingerprint(loaded),
        "name": f"{loaded.architecture.name} from {loaded.folder}",
        "trees": json.dumps(described),
    }
    metadata["sum"] = checksum(tensors, metadata)
    try:
        with output_file(path, None, own=_is_prompt_cache) as part, part.open("wb") as file:
            mx.save_safetensors(file, tensors, metadata=metadata)
    except SourceError as error:
        raise PromptError(str(error)) from error


def read(path: Path, loaded: Loaded) -> dict[CachePolicy, Tree]:
    """The trees in a file, none where there is no file.

    PromptError for a file of another kind, and for one of another model or tokenizer; Damaged for one that is not whole.
    """
    if not check_kind(path):
        return {}
    try:
        _, metadata = read_header(path)
        if metadata.get("version") != VERSION:
            raise Damaged(f"it is of version {metadata.get('version')}, not {VERSION}")
        with path.open("rb") as file:
            tensors = dict(mx.load(file, format="safetensors"))
            mx.eval(tensors)
        if metadata.pop("sum") != checksum(tensors, metadata):
            raise Damaged("its checksum is wrong")
        if metadata["model"] != fingerprint(loaded):
            raise PromptError(
                f"{path}: is the prompt cache of another model, {metadata['name']}, or was written with another "
                "tokenizer; give each model a file of its own"
            )
        described = parse_json(metadata["trees"])
        trees = {CachePolicy(**tree["policy"]): _tree(n, tree, tensors) for n, tree in enumerate(described)}
        for policy, tree in trees.items():
            check_tree(tree, loaded.model, policy)
        return trees
    except CheckpointError as error:
        raise Damaged(str(error).removeprefix(f"{path}: ")) from error
    except OSError as error:
        raise PromptError(f"{path}: {error.strerror}") from error
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise Damaged(f"its contents do not fit together ({error})") from error


def check_kind(path: Path) -> bool:
    """Whether there is a file that is not empty. PromptError for one that is no prompt cache."""
    if is_stream(path):
        raise PromptError(f"{path}: is not a file")
    try:
        check_output(path, None, own=_is_prompt_cache)
        return path.exists() and path.stat().st_size > 0
    except SourceError as error:
        raise PromptError(str(error)) from error
    except OSError as error:
        raise PromptError(f"{path}: {error.strerror}") from error


def _is_prompt_cache(path: Path) -> bool:
    """Whether a file says in its first bytes that it is a prompt cache."""
    with path.open("rb") as file:
        return FORMAT.encode() in file.read(HEAD_BYTES)


def check_tree(tree: Tree, model: Model, policy: CachePolicy) -> None:
    """Damaged where a node's arrays differ in number, dtype or shape from what the model's caches hold."""
    if not tree.root.children:
        return
    caches, one = _after(1, model, policy)
    _, two = _after(2, model, policy)
    if [(form.kind, form.by_column) for form in tree.forms] != [(s.kind, s.by_column) for s in one]:
        raise Damaged("its caches are of other types than the model's")
    by_column = sum(snapshot.by_column for snapshot in one)
    for node in tree.nodes():
        if len(node.columns) != by_column or len(node.states or one[by_column:]) != len(one) - by_column:
            raise Damaged(f"the text of {node.end} tokens has more or fewer caches than the model")
        columns, states = iter(node.columns), iter(node.states or ())
        for cache, short, long in zip(caches, one, two, strict=True):
            if short.by_column:
                found = replace(short, length=len(node.ids), arrays=next(columns))
            elif node.states is None:
                continue
            else:
                found = next(states)
            if found.kind != short.kind or not _has_shapes(found, cache, short, long):
                raise Damaged(f"the text of {node.end} tokens has arrays that the model's caches cannot hold")


def _after(tokens: int, model: Model, policy: CachePolicy) -> tuple[list[Cache], list[Snapshot]]:
    """The model's caches, and their snapshots, after `tokens` tokens."""
    caches = model.make_cache(policy)
    model.backbone(mx.zeros((1, tokens), dtype=mx.int32), caches)
    plain = list(flatten_caches(caches))
    return plain, [cache.snapshot() for cache in plain]


def _has_shapes(found: Snapshot, cache: Cache, one: Snapshot, two: Snapshot) -> bool:
    """Whether a snapshot has the dtypes and shapes of `cache` after its number of tokens.

    An axis that is as long after `one` token as after `two` never grows. The others are checked by restoring the cache
    and taking a snapshot of it again.
    """
    if len(found.arrays) != len(one.arrays):
        return False
    for part, short, long in zip(found.arrays, one.arrays, two.arrays, strict=True):
        if part.dtype != short.dtype or part.ndim != short.ndim:
            return False
        sizes = zip(part.shape, short.shape, long.shape, strict=True)
        if any(size != first for size, first, second in sizes if first == second):
            return False
    cache.restore(found)
    return [part.shape for part in cache.snapshot().arrays] == [part.shape for part in found.arrays]


def checksum(tensors: Mapping[str, mx.array], metadata: Mapping[str, str]) -> str:
    """The CRC-32 of the metadata and of all arrays, their names, shapes and dtypes."""
    value = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.shape} {tensor.dtype}".encode(), value)
        value = zlib.crc32(bytes_of(tensor), value)
    return f"{value:08x}"


def _arrays(node: Node) -> Iterator[tuple[str, str, mx.array]]:
    """Yield the arrays of a node, each with its kind and its index in the node."""
    yield "ids", "0", mx.array(node.ids, dtype=mx.int32)
    for cache, arrays in enumerate(node.columns):
        for index, part in enumerate(arrays):
            yield "columns", f"{cache}.{index}", part
    for cache, state in enumerate(node.states or ()):
        for index, part in enumerate(state.arrays):
            yield "states", f"{cache}.{index}", part


def _tree(number: int, described: Mapping[str, Any], tensors: Mapping[str, mx.array]) -> Tree:
    """A tree from its description and its arrays."""
    tree = Tree()
    tree.forms = tuple(Snapshot(f["kind"], 0, (), f["by_column"]) for f in described["forms"])
    nodes: list[Node] = []
    for index, entry in enumerate(described["nodes"]):

        def arrays(name: str, cache: int, count: int, index: int = index) -> tuple[mx.array, ...]:
            return tuple(tensors[f"{name}.{number}.{index}.{cache}.{part}"] for part in range(count))

        numbers = tensors[f"ids.{number}.{index}.0"]
        if numbers.dtype != mx.int32 or numbers.ndim != 1 or not numbers.size:
            raise Damaged("the ids of a text are not a list of whole numbers of 32 bits")
        ids = array("i", numbers.tolist())
        parent = tree.root if entry["parent"] < 0 else nodes[entry["parent"]]
        columns = [arrays("columns", cache, count) for cache, count in enumerate(entry["columns"])]
        node = Node(ids, parent.end + len(ids), columns, parent)
        if entry["states"] is not None:
            node.states = tuple(
                Snapshot(s["kind"], node.end, arrays("states", cache, s["arrays"]), False)
                for cache, s in enumerate(entry["states"])
            )
        node.used = int(entry["used"])
        if ids[0] in parent.children:
            raise Damaged("two texts go on with the same token")
        parent.children[ids[0]] = node
        nodes.append(node)
        tree.nbytes += node.nbytes
    return tree


SAMPLED_TOKENS = 512  # of a vocabulary
TEXT = "The year 1984: 中国的首都是北京。\n\tNaïve café — 3.14 € (e.g. x_1 != y²) 🙂"


def fingerprint(loaded: Loaded) -> str:
    """A digest of a model and its tokenizer, by which caches and answers are known as those of this model.

    Of the model: its recipe, and the names, shapes, dtypes and numbers of all parameters. Of the tokenizer: its size, its
    special tokens, tokens throughout the vocabulary, and the ids of a text.
    """
    import hashlib  # loads OpenSSL, which no command's start should wait for

    parameters: list[tuple[str, mx.array]] = sorted(tree_flatten(loaded.model.parameters()))
    # A CRC is several times faster than a cryptographic hash.
    numbers = [
        f"{path} {each.shape} {each.dtype} {zlib.crc32(bytes_of(each)):08x}" for path, each in parameters
    ]
    known: list[Any] = [loaded.recipe.to_json(), numbers]
    if (tokenizer := loaded.tokenizer) is not None:
        some = range(0, tokenizer.vocab_size, max(1, tokenizer.vocab_size // SAMPLED_TOKENS))
        tokens = [tokenizer.decode([id], skip_special_tokens=False) for id in some]
        special, ends = tokenizer.special_tokens, sorted(tokenizer.eos_ids)
        known += [tokenizer.vocab_size, tokenizer.kind, special, ends, tokens, tokenizer.encode(TEXT)]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def bytes_of(array: mx.array) -> memoryview:
    """The bytes of an array of any dtype."""
    return memoryview(mx.contiguous(array).reshape(-1).view(mx.uint8))  # type: ignore[arg-type]
