"""What a folder's sentence-transformers files say of its vectors: prompts, pooling, and the modules after it.

`modules.json` lists the modules, each with a `config.json` in a folder of its own; `config_sentence_transformers.json` has
the prompts, `sentence_bert_config.json` the longest text. Each key is followed, or refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import mlx.core as mx
import mlx.nn as nn

from zoo.checkpoint.checkpoint import Pooling
from zoo.checkpoint.safetensors import load_file
from zoo.config import Config, Origin
from zoo.errors import CheckpointError, ConfigError, warn
from zoo.files.reading import file_in_folder, read_json, read_object
from zoo.files.writing import write_json, write_text
from zoo.frozen import Frozen, frozen

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
# The file of the Transformer module, whose older names are those of some architectures.
LIMITS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
WEIGHTS = "model.safetensors"

# What sentence-transformers calls the modes, in its folders' new spelling and in the old one, flags.
_MODES = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt-length",
    "weightedmean": "weighted-mean",
    "lasttoken": "last",
}
_FLAGS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean-sqrt-length",
    "pooling_mode_weightedmean_tokens": "weighted-mean",
    "pooling_mode_lasttoken": "last",
}
_ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "Identity": lambda x: x,
    "Tanh": mx.tanh,
    "Sigmoid": mx.sigmoid,
    "ReLU": nn.relu,
    "GELU": nn.gelu,
    "SiLU": nn.silu,
}


@frozen()
class Dense(Frozen):
    """A linear layer with an activation, from (N, D) to (N, E); `residual` adds what it was given."""

    folder: Path
    widths: tuple[int, int]
    activation: str = "Tanh"
    bias: bool = True
    residual: bool = False

    def __call__(self, vectors: mx.array) -> mx.array:
        given, made = self.widths
        shapes = {"linear.weight": (made, given), **({"linear.bias": (made,)} if self.bias else {})}
        projected = self.residual and given != made
        tensors = _weights(self.folder, shapes | ({"residual.weight": (made, given)} if projected else {}))
        found = vectors @ tensors["linear.weight"].T + tensors.get("linear.bias", mx.array(0.0))  # (N, E)
        found = _ACTIVATIONS[self.activation](found)
        if not self.residual:
            return found
        return found + (vectors @ tensors["residual.weight"].T if projected else vectors)


@frozen()
class LayerNorm(Frozen):
    """A layer norm of vectors (N, D)."""

    folder: Path
    width: int

    def __call__(self, vectors: mx.array) -> mx.array:
        tensors = _weights(self.folder, {"norm.weight": (self.width,), "norm.bias": (self.width,)})
        return mx.fast.layer_norm(vectors, tensors["norm.weight"], tensors["norm.bias"], 1e-5)


def unit(vectors: mx.array) -> mx.array:
    """Vectors scaled to length 1, in float32: (…, D) -> (…, D)."""
    vectors = vectors.astype(mx.float32)  # 16 bits could not hold the sum of their squares
    return vectors / mx.maximum(mx.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def pooling_of(folder: Path) -> Pooling:
    """The pooling that a folder's sentence-transformers files describe; the mean where there are none.

    ConfigError, naming file and key, for what is not implemented.
    """
    kinds = list(_modules(folder))
    if not kinds:
        return Pooling()
    mode, include_prompt = "mean", True
    modules: list[Callable[[mx.array], mx.array]] = []
    for kind, path in kinds:
        name = f"{path}/config.json" if path else "config.json"
        if kind == "Pooling":
            mode, include_prompt = _pooling(_read(folder, name))
        elif kind == "Normalize":
            if path and file_in_folder(folder, name) is not None:
                _check_names(_read(folder, name))
            modules.append(unit)
        elif kind == "Dense":
            modules.append(_dense(folder / path, _read(folder, name)))
        elif kind == "LayerNorm":
            modules.append(LayerNorm(folder / path, _read(folder, name).count("dimension")))
        elif kind not in ("Transformer", "Dropout"):  # a Dropout does nothing outside of training
            raise ConfigError(f"{folder / MODULES}: the module {kind} is not implemented")
    normalise = bool(modules) and modules[-1] is unit
    length, lower_case = _limits(folder)
    prompts, prompt_name, width = _prompts(folder)
    return Pooling(
        mode,
        normalise,
        length,
        lower_case,
        prompts,
        prompt_name,
        include_prompt,
        tuple(modules[:-1] if normalise else modules),
        width,
    )


def save_pooling(folder: Path, mode: str, width: int | None) -> None:
    """Write a pooling `mode` of vectors of `width` numbers, as sentence-transformers reads it."""
    path = folder / "1_Pooling" / "config.json"
    path.parent.mkdir()
    flags = {key: name == mode for key, name in _FLAGS.items()}
    write_json(path, {"word_embedding_dimension": width, **flags})
    kinds = {"Transformer": "", "Pooling": path.parent.name}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(kinds.items())
    ]
    write_text(folder / MODULES, json.dumps(modules, indent=2) + "\n")


def module_files(folder: Path) -> list[str]:
    """The files of the modules in folders of their own, which belong to the folder of a model."""
    paths = [path for _, path in _modules(folder) if path]
    return [f"{path}/{name}" for path in paths for name in ("config.json", WEIGHTS)]


def _modules(folder: Path) -> Iterator[tuple[str, str]]:
    """The class name and folder of each module that a `modules.json` lists; nothing when there is none."""
    path = folder / MODULES
    modules = read_json(folder, MODULES, ConfigError)
    modules = [] if modules is None else modules
    known = isinstance(modules, list) and all(isinstance(module, dict) for module in modules)
    if not known or not all({"type", "path"} <= module.keys() for module in modules):
        raise ConfigError(f"{path}: must be a list of modules with a type and a path")
    for module in modules:
        kind, subfolder = str(module["type"]).rpartition(".")[2], str(module["path"])
        if subfolder and (PurePosixPath(subfolder).name != subfolder or subfolder == ".."):
            raise ConfigError(f"{path}: path {subfolder!r} is not a folder beside it")
        yield kind, subfolder


def _read(folder: Path, name: str, required: bool = True) -> Config:
    """The settings in a file."""
    return Config(
        read_object(folder, name, ConfigError, required=required), origin=Origin(str(folder / name))
    )


def _refuse_unread(config: Config, *harmless: str) -> None:
    """ConfigError for a key of a module that nothing has read."""
    config.ignore(*harmless)
    for key in config.unread():
        config.refuse(key, config[key])


def _pooling(config: Config) -> tuple[str, bool]:
    """The mode of a Pooling module, and whether it includes the prompt."""
    flags = [key for key in _FLAGS if config.get(key) is True]
    given, known = config.get("pooling_mode"), _MODES
    if given is None:
        given, known = flags, _FLAGS
    include_prompt = config.flag("include_prompt", True)
    _refuse_unread(config, "embedding_dimension", "word_embedding_dimension", "pooling_output_dimension")
    modes = [known.get(str(key), "") for key in (given if isinstance(given, list) else [given])]
    if not all(modes) or not modes:
        raise ConfigError(
            f"{config.origin.of('pooling_mode')}: pooling by {given or 'nothing'} is not implemented"
        )
    return "+".join(modes), include_prompt


def _dense(folder: Path, config: Config) -> Dense:
    """A Dense module."""
    _check_names(config)
    name = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise config.error("activation_function", f"is not one of {', '.join(_ACTIVATIONS)}")
    widths = config.count("in_features"), config.count("out_features")
    dense = Dense(folder, widths, name, config.flag("bias", True), config.flag("use_residual", False))
    _refuse_unread(config)
    return dense


def _check_names(config: Config) -> None:
    """ConfigError for a module that turns something else than a text's vector into another."""
    for key in ("module_input_name", "module_output_name"):
        config.choice(key, ("sentence_embedding",), "sentence_embedding")


def _limits(folder: Path) -> tuple[int | None, bool]:
    """The most tokens of a text, None for no limit, and whether texts are written small."""
    name = next((name for name in LIMITS if file_in_folder(folder, name) is not None), LIMITS[0])
    config = _read(folder, name, required=False)
    config.choice("transformer_task", ("feature-extraction",), "feature-extraction")
    config.choice("module_output_name", ("token_embeddings",), "token_embeddings")
    kinds = config.get("modality_config", {})
    text = kinds.get("text", {}) if isinstance(kinds, dict) else None
    if not isinstance(text, dict) or text.get("method_output_name") not in (None, "last_hidden_state"):
        raise config.error("modality_config", "is not implemented")
    length, lower_case = config.count("max_seq_length", None), config.flag("do_lower_case", False)
    _refuse_unread(config)
    return length, lower_case


def _prompts(folder: Path) -> tuple[dict[str, str], str | None, int | None]:
    """Returns the prompts by name, the name of the default prompt, and the number of dimensions that vectors keep."""
    config = _read(folder, PROMPTS, required=False)
    prompts = config.get("prompts", {})
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise config.error("prompts", "must map names to texts")
    name = config.get("default_prompt_name")
    if name is not None and name not in prompts:
        raise config.error(
            "default_prompt_name", f"is none of its prompts: {', '.join(prompts) or 'it has none'}"
        )
    width = config.count("truncate_dim", None)
    config.ignore("__version__", "similarity_fn_name", "model_type")
    for key in config.unread():
        warn(f"{config.origin.of(key)} is unknown and not followed")
    return {key: text or "" for key, text in prompts.items()}, name, width


def _weights(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, mx.array]:
    """A module's tensors in float32; CheckpointError where the file or one of these is missing or of another shape."""
    path = file_in_folder(folder.parent, f"{folder.name}/{WEIGHTS}")
    if path is None:
        raise CheckpointError(
            f"{folder}: has no {WEIGHTS}; weights in another file (pytorch_model.bin) are not read"
        )
    tensors = load_file(path).arrays
    for name, shape in shapes.items():
        if name not in tensors or tensors[name].shape != shape:
            found = tensors[name].shape if name in tensors else "nothing"
            raise CheckpointError(f"{path}: {name} must have the shape {shape}, got {found}")
    for name in tensors.keys() - shapes.keys():
        raise CheckpointError(f"{path}: {name} belongs to nothing that config.json beside it describes")
    return {name: tensors[name].astype(mx.float32) for name in shapes}
