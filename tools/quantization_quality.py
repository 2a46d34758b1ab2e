"""Measure what quantizations of one checkpoint cost at equal bytes, with and without a calibration text, for the docs.

    python tools/quantization_quality.py FOLDER WORK [ARM …]

FOLDER holds a causal model in floats, with a tokenizer. WORK keeps the converted folders, and the figures of each arm:
with names only these arms are measured anew (with "record" none), and the record is written of all that WORK has. The
texts are the documentation strings of Python's standard library: of every other module for calibration, of the others
held out.

Every arm is loaded and measured by the zoo, in float32, mlx-lm's too. All scales are stored in float16.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import numpy as np

from zoo.checkpoint.calibration import Calibration
from zoo.checkpoint.convert import convert
from zoo.files.writing import write_text
from zoo.generation.sampling.logits import logprobs
from zoo.inspect.perplexity import kl_divergence
from zoo.runtime import versions
from zoo_calibration.text import spread

RECORD = Path(__file__).parent.parent / "docs" / "records" / "quantization" / "smollm2.json"
CALIBRATION_ROWS, HELD_OUT_ROWS, LENGTH = 16, 20, 256
SHORTEST = 200  # characters of a documentation string
RESAMPLES = 10_000  # of the windows, for an interval of 95%
GROUP = 64


def documents() -> tuple[list[str], list[str]]:
    """The texts for calibration and those held out: the documentation strings of each module in one text."""
    library = Path(sysconfig.get_path("stdlib"))
    texts = []
    for file in sorted([*library.glob("*.py"), *library.glob("[a-z]*/*.py")]):
        inside = file.relative_to(library).parts
        if {"site-packages", "test", "tests", "idlelib", "lib2to3"}.intersection(inside):
            continue
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        strings = [ast.get_docstring(node) for node in nodes if isinstance(node, kinds)]
        if long := [text for text in strings if text and len(text) >= SHORTEST]:
            texts.append("\n\n".join(long))
    return texts[1::2], texts[::2]


def rows(tokenizer: Any, texts: list[str], count: int) -> list[list[int]]:
    """Rows of `LENGTH` ids at equal distances in the texts."""
    ids = [id for text in texts for id in tokenizer.encode(text)]
    return spread([ids[start : start + LENGTH] for start in range(0, len(ids) - LENGTH + 1, LENGTH)], count)


class Arms:
    """The arms, each a function that writes a folder. `text` is the file of calibration texts."""

    def __init__(self, source: Path, work: Path, calibration: list[str], parameters: int) -> None:
        self.source, self.work, self.parameters = source, work, parameters
        self.text = work / "calibration.jsonl"
        write_text(self.text, "".join(json.dumps({"text": text}) + "\n" for text in calibration))
        self.calibration = calibration

    def all(self) -> dict[str, Callable[[Path], None]]:
        """By name."""
        return {
            "plain 4": lambda out: self.zoo(out, quantize="4"),
            "gptq 4": lambda out: self.zoo(out, "gptq", quantize="4"),
            "sensitivity 4.5": lambda out: self.zoo(out, "sensitivity", quantize="4"),
            "mixed-3-6": lambda out: self.zoo(out, recipe="mixed-3-6"),
            "sensitivity like mixed-3-6": lambda out: self.zoo(
                out, "sensitivity", quantize="4", bits=self.bits("mixed-3-6")
            ),
            "awq 4": lambda out: self.zoo(out, "awq", quantize="4"),
            "mlx-lm gptq 4": self.mlx_lm_gptq,
            "mlx-lm awq 4": self.mlx_lm_awq,
        }

    def zoo(self, out: Path, method: str | None = None, bits: float | None = None, **how: Any) -> None:
        """`zoo convert`."""
        calibration = None
        if method is not None:
            calibration = Calibration(self.text, method, bits, CALIBRATION_ROWS, LENGTH)
        convert(self.source, out, dtype="float16", group_size=GROUP, calibration=calibration, **how)

    def bits(self, arm: str) -> float:
        """The bits of a weight that an arm measured before has."""
        record = json.loads((self.work / f"{arm}.json").read_text())
        return float(record["bytes"] * 8 / self.parameters)

    def mlx_lm(self, out: Path, quantize: Callable[[Any, mx.array, Any], Any]) -> None:
        """What mlx-lm makes of the same rows; its scales are cast to float16 like the others' when it is done."""
        from mlx_lm.utils import load, save

        model, tokenizer, config = load(str(self.source), return_config=True)
        data = mx.array(rows(zoo.load(self.source).tokenizer, self.calibration, CALIBRATION_ROWS))
        model, config = quantize(model, data, config)
        model.set_dtype(mx.float16)
        save(str(out), str(self.source), model, tokenizer, config)

    def mlx_lm_gptq(self, out: Path) -> None:
        """`mlx_lm.gptq`, with 4 bits for the embedding as everywhere."""
        from mlx_lm.quant.gptq import gptq_quantize

        def quantize(model: Any, data: mx.array, config: Any) -> Any:
            model, quantization = gptq_quantize(model, data, 4, GROUP, 4, GROUP)
            return model, config | {"quantization": quantization}

        self.mlx_lm(out, quantize)

    def mlx_lm_awq(self, out: Path) -> None:
        """`mlx_lm.awq`, with groups of one size for the embedding too."""
        from mlx_lm.quant.awq import AWQ_MODEL_CONFIGS, awq_quantize, update_config

        def quantize(model: Any, data: mx.array, config: Any) -> Any:
            settings = dict(bits=4, group_size=GROUP, embed_bits=4, embed_group_size=GROUP)
            awq_quantize(model, data, AWQ_MODEL_CONFIGS["llama"], n_grid=20, **settings)
            return model, update_config(model, config)

        self.mlx_lm(out, quantize)


def measure(folder: Path, windows: list[list[int]], wanted: list[mx.array]) -> Iterator[tuple[float, float]]:
    """The mean of −ln p and of KL(source ‖ folder) of each window, in nats a token."""
    model = zoo.load(folder, dtype="float32").model
    for row, source in zip(windows, wanted, strict=True):
        scores = logprobs(model(mx.array([row]))[0])  # (T, V)
        yield nats(scores, row), kl_divergence(source, scores).mean().item()


def nats(found: mx.array, row: list[int]) -> float:
    """The mean of −ln p of a window's tokens but the first."""
    return -mx.take_along_axis(found[:-1], mx.array(row[1:])[:, None], axis=1).mean().item()


def interval(differences: np.ndarray) -> list[float]:
    """The mean over the windows, and its interval of 95% by resampling them."""
    draws = np.random.default_rng(0).integers(0, len(differences), (RESAMPLES, len(differences)))
    means = differences[draws].mean(axis=1)
    return [round(float(x), 5) for x in (differences.mean(), *np.quantile(means, (0.025, 0.975)))]


def weight_bytes(folder: Path) -> int:
    """The bytes of the tensors."""
    return sum(array.nbytes for file in folder.glob("*.safetensors") for array in mx.load(str(file)).values())


def main(source: Path, work: Path, names: list[str]) -> None:
    """Convert and measure the arms, and write the record."""
    work.mkdir(parents=True, exist_ok=True)
    calibration, held_out = documents()
    loaded = zoo.load(source, dtype="float32")
    parameters = loaded.recipe.parameters(loaded.recipe.dim)
    arms = Arms(source, work, calibration, parameters)
    windows = rows(loaded.tokenizer, held_out, HELD_OUT_ROWS)
    wanted = [logprobs(loaded.model(mx.array([row]))[0]) for row in windows]
    mx.eval(wanted)
    del loaded.model
    float_nats = np.array([nats(found, row) for found, row in zip(wanted, windows, strict=True)])
    figures: dict[str, Any] = {}
    for name, make in arms.all().items():
        folder = work / name.replace(" ", "-")
        record_file = work / f"{folder.name}.json"
        if name in names or not (names or record_file.exists()):
            if not folder.exists():
                began = time.perf_counter()
                make(folder)
                print(name, round(time.perf_counter() - began), "s", flush=True)
            each = list(zip(*measure(folder, windows, wanted), strict=True))
            write_text(
                record_file, json.dumps({"bytes": weight_bytes(folder), "nats": each[0], "kl": each[1]})
            )
        if record_file.exists():
            figures[name] = json.loads(record_file.read_text())
            print(
                name,
                figures[name]["bytes"],
                np.mean(figures[name]["nats"]),
                np.mean(figures[name]["kl"]),
                flush=True,
            )
    plain = np.array(figures["plain 4"]["nats"])
    record = {
        "versions": versions() | {"mlx-lm": mlx_lm_version(), "python": platform.python_version()},
        "model": "SmolLM2-135M-Instruct in floats, from its Q4_1 GGUF file",
        "parameters": parameters,
        "text": "documentation strings of Python's standard library",
        "sha256": {
            name: hashlib.sha256("\0".join(texts).encode()).hexdigest()
            for name, texts in (("calibration", calibration), ("held_out", held_out))
        },
        "calibration": {"rows": CALIBRATION_ROWS, "length": LENGTH},
        "held_out": {"windows": len(windows), "length": LENGTH},
        "float_perplexity": round(float(np.exp(float_nats.mean())), 4),
        "arms": {
            name: {
                "bytes": arm["bytes"],
                "bits": round(arm["bytes"] * 8 / parameters, 3),
                "perplexity": round(float(np.exp(np.mean(arm["nats"]))), 4),
                "kl": interval(np.array(arm["kl"])),
                "nats_over_plain": interval(np.array(arm["nats"]) - plain),
                "nats": [round(x, 5) for x in arm["nats"]],
            }
            for name, arm in figures.items()
        },
    }
    RECORD.parent.mkdir(exist_ok=True)
    write_text(RECORD, json.dumps(record, indent=1) + "\n")


def mlx_lm_version() -> str:
    """Of the installed package."""
    import mlx_lm

    return str(mlx_lm.__version__)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
