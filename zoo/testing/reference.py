"""Compares a loaded model with the logits that another program computed from the same weights.

Axes: B batch, T length, S source length, D width, V vocabulary.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from zoo.errors import SourceError
from zoo.loading import Loaded, load
from zoo.testing import TOLERANCE, Check, CheckResult, Subject, outcome, same

NAMES = ("tokens", "logits", "mask", "target")


def agreement(subject: Subject, reference: Path, tolerance: float = TOLERANCE) -> CheckResult:
    """The check that the model's logits equal the reference's, to `tolerance` of their range.

    `reference` is an npz file with `tokens` (B, T) and `logits` (B, T, V), or hidden states (B, T, D) of a model
    without a head; for padded rows a `mask` (B, T), whose padding is not compared; for a translator, whose tokens
    are the source, also the `target` (B, T), with logits for that. Or it is the folder of another checkpoint of the
    same model. SourceError for a reference that cannot be read, or does not fit the model.
    """
    if reference.is_dir():
        given, expected = _of_folder(subject, load(reference, dtype="float32", registry=subject.registry))
    elif reference.is_file():
        given, expected = _of_npz(subject, reference)
    else:
        raise SourceError(f"{reference}: no such file or folder")

    def run(subject: Subject) -> None:
        found = answer(subject.model, given)
        if "mask" in given and found.shape == expected.shape:
            is_token = given["mask"][..., None] != 0
            same(
                mx.where(is_token, found, 0),
                mx.where(is_token, expected, 0),
                "logits where the mask is 1",
                tolerance,
            )
        else:
            same(found, expected, "logits", tolerance)

    reason = f"the weights are those of {reference.name}, so the logits must be, too"
    return outcome(Check("logits_equal_the_references", reason, run, lambda subject: True), subject)


def answer(model: nn.Module, given: Mapping[str, mx.array]) -> mx.array:
    """The logits (B, T, V) of `tokens`; of a translator, those of `target` with the tokens as its source."""
    if model.translates:
        return model(given["tokens"], given["target"], mask=given.get("mask"))
    return model(given["tokens"], mask=given.get("mask"))


def _of_folder(subject: Subject, other: Loaded) -> tuple[dict[str, mx.array], mx.array]:
    if other.recipe.embedding.vocab != subject.vocab:
        raise SourceError(
            f"{other.folder}: its vocabulary of {other.recipe.embedding.vocab} is not the model's, {subject.vocab}"
        )
    given = {"tokens": subject.tokens, "target": subject.tokens[:, ::-1]}
    return given, answer(other.model, given)


def _of_npz(subject: Subject, path: Path) -> tuple[dict[str, mx.array], mx.array]:
    arrays = read_npz(path)
    for name in ("tokens", "logits"):
        if name not in arrays:
            raise SourceError(f"{path}: has no array {name!r}; it has: {', '.join(arrays) or 'none'}")
    translates = subject.model.translates
    if translates and "target" not in arrays:
        raise SourceError(f"{path}: a translator needs an array 'target' besides its source, 'tokens'")
    for name in {"tokens", "target"} & arrays.keys():
        ids = arrays[name]
        if ids.ndim != 2 or ids.dtype.kind not in "iu" or not ids.size:
            raise SourceError(
                f"{path}: {name} must be whole numbers (B, T), found {ids.dtype} of shape {ids.shape}"
            )
        if ids.min() < 0 or ids.max() >= subject.vocab:
            raise SourceError(f"{path}: {name} has ids outside the model's vocabulary of {subject.vocab}")
    rows = arrays["target" if translates else "tokens"].shape
    if arrays["logits"].ndim != 3 or arrays["logits"].shape[:2] != rows:
        raise SourceError(f"{path}: logits of shape {arrays['logits'].shape} do not go with tokens of {rows}")
    if "mask" in arrays and arrays["mask"].shape != arrays["tokens"].shape:
        raise SourceError(f"{path}: mask of shape {arrays['mask'].shape} does not go with the tokens")
    given = {name: mx.array(array) for name, array in arrays.items() if name != "logits"}
    return given, mx.array(arrays["logits"].astype("float32"))


def read_npz(path: Path) -> dict[str, Any]:
    """The arrays of an npz file that a reference may have, none of them pickled."""
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array; numpy.savez writes several")
        with file:
            return {name: file[name] for name in file.files if name in NAMES}
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise SourceError(f"{path}: not an npz file of arrays ({' '.join(str(error).split())})") from error
