"""A plugin's kind of checkpoint: one .npz file, which everything that takes a checkpoint then takes."""

import json
import shutil
import sys

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers import gguf_files
from zoo.architecture import CheckpointFormat, hookimpl
from zoo.checkpoint.checkpoint import Pooling, open_checkpoint
from zoo.checkpoint.convert import convert
from zoo.checkpoint.folder import FolderCheckpoint
from zoo.checkpoint.safetensors import Tensors
from zoo.checkpoint.source import detect_format
from zoo.errors import CheckpointError, ConfigError, PluginError, SourceError
from zoo.host.registry import default_registry, isolated

PLUGIN = """
    import json
    import tempfile
    from functools import cached_property
    from pathlib import Path

    import mlx.core as mx
    import numpy as np

    from zoo.architecture import CheckpointFormat, hookimpl
    from zoo.checkpoint.checkpoint import Checkpoint
    from zoo.checkpoint.safetensors import Tensors
    from zoo.config import Origin
    from zoo.tokenizer import load_tokenizer

    FILES = ("tokenizer.json", "tokenizer_config.json")


    class NumpyCheckpoint(Checkpoint):
        @cached_property
        def arrays(self):
            with np.load(self.path) as file:
                return dict(file)

        @cached_property
        def config(self):
            return json.loads(str(self.arrays["config"]))

        @property
        def origin(self):
            return Origin(str(self.path), {"num_attention_heads": "heads"})

        def tensors(self, dtype=None):
            skipped = {"config", *FILES}
            found = {name: mx.array(array) for name, array in self.arrays.items() if name not in skipped}
            return Tensors(found, {}, {"format": "pt"})

        def tokenizer(self):
            with tempfile.TemporaryDirectory() as folder:
                self.save_auxiliary_files(Path(folder))
                return load_tokenizer(Path(folder), self.config)

        def generation_config(self):
            return {"do_sample": True, "temperature": 0.0}

        def save_auxiliary_files(self, folder):
            for name in FILES:
                (folder / name).write_bytes(self.arrays[name].tobytes())


    @hookimpl
    def zoo_checkpoints():
        yield CheckpointFormat("numpy", "numpy_plugin:NumpyCheckpoint", suffixes=(".npz",), summary="one .npz")
"""
POCKET = default_registry().architecture("llama").preset("pocket").folder
PROMPT = "The capital city of China is"


@pytest.fixture
def registry(site):
    site.add("zoo-numpy", "numpy_plugin", PLUGIN)
    from importlib import import_module

    return isolated(import_module("numpy_plugin"))


def written(path, changes=None, spoil=None, files=("tokenizer.json", "tokenizer_config.json")):
    """The LLaMA pocket as one .npz file, keys of its config changed and one tensor spoilt; gives its path."""
    arrays = {
        name: np.array(array.astype(mx.float32))
        for name, array in mx.load(str(POCKET / "model.safetensors")).items()
    }
    if spoil:
        arrays[spoil] = np.full_like(arrays[spoil], np.nan)
    config = json.loads((POCKET / "config.json").read_text()) | (changes or {})
    data = {name: np.frombuffer((POCKET / name).read_bytes(), np.uint8) for name in files}
    np.savez(path, config=np.array(json.dumps(config)), **arrays, **data)
    return path


def test_it_loads_as_the_folder_it_was_made_of(registry, tmp_path):
    path = written(tmp_path / "model.npz")
    loaded, original = zoo.load(path, registry=registry), zoo.load("llama", dtype="float32")
    tokens = mx.array([original.tokenizer.encode(PROMPT)])
    assert mx.array_equal(loaded.model(tokens), original.model(tokens))
    assert loaded.tokenizer.encode(PROMPT) == original.tokenizer.encode(PROMPT)
    assert loaded.folder == path and loaded.generation_config == {"do_sample": True, "temperature": 0.0}
    assert zoo.embed(loaded, [PROMPT]).shape == (1, 128)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model_type": "humming"}, "model_type 'humming' is of no architecture that the zoo has"),
        ({"model_type": None}, "model_type is missing; name one with `architecture`"),
        ({"model_type": "zoo-recipe", "recipe": {}}, "recipe.block: is missing"),
    ],
)
def test_what_tells_no_architecture_is_named_with_the_file(registry, tmp_path, changes, line):
    path = written(tmp_path / "model.npz", changes)
    with pytest.raises(ConfigError) as raised:
        zoo.load(path, registry=registry)
    assert str(raised.value).startswith(f"{path}, read as a config.json: {line}")


def test_one_that_is_not_lazy_is_read_by_its_groups(registry, tmp_path, monkeypatch):
    """Placeholders until `read` is called, whose names the rules of folders know."""
    import numpy_plugin

    path, asked = written(tmp_path / "model.npz"), []
    plain = zoo.load(path, registry=registry)

    class Eager(numpy_plugin.NumpyCheckpoint):
        lazy = False

        def tensors(self, dtype=None):
            found = super().tensors(dtype)
            found.arrays = {name: mx.zeros_like(array) for name, array in found.arrays.items()}
            return found

        def groups(self):
            names = sorted(super().tensors().arrays)
            return [names[:5], names[5:]]

        def read(self, dtype, names=None):
            asked.append(names and len(names))
            arrays = super().tensors(dtype).arrays
            return Tensors(
                {n: a for n, a in arrays.items() if names is None or n in names}, {}, {"format": "pt"}
            )

    monkeypatch.setattr(numpy_plugin, "NumpyCheckpoint", Eager)
    tokens = mx.array([[1, 2, 3]])
    assert mx.array_equal(zoo.load(path, registry=registry).model(tokens), plain.model(tokens))
    assert asked == [None]
    convert(path, tmp_path / "out", registry=registry)
    assert mx.array_equal(zoo.load(tmp_path / "out").model(tokens), plain.model(tokens))
    assert asked[1:] == [5, len(mx.load(str(POCKET / "model.safetensors"))) - 5]


def test_the_only_one_of_a_folder_is_meant_by_its_name(registry, tmp_path):
    path = written(tmp_path / "model.npz")
    assert zoo.load(tmp_path, registry=registry).folder == path
    shutil.copy(path, tmp_path / "other.npz")
    with pytest.raises(SourceError, match=r"several NPZ files; name one: model\.npz, other\.npz"):
        zoo.load(tmp_path, registry=registry)


@pytest.mark.parametrize("quantize", [None, "4"])
def test_it_is_converted_with_its_tokenizer(registry, tmp_path, quantize):
    path = written(tmp_path / "model.npz")
    convert(path, tmp_path / "out", quantize=quantize, registry=registry)
    found = zoo.load(tmp_path / "out")
    assert found.tokenizer.encode(PROMPT) == zoo.load("llama").tokenizer.encode(PROMPT)
    assert ("quantization" in found.config) == (quantize is not None)
    if quantize is None:
        tokens = mx.array([[1, 2, 3]])
        assert mx.array_equal(found.model(tokens), zoo.load(path, registry=registry).model(tokens))


def test_messages_name_its_file_and_its_keys(registry, tmp_path):
    path = written(tmp_path / "a.npz", {"num_attention_heads": 7})
    with pytest.raises(ConfigError, match=r"a\.npz: heads 7 does not divide"):
        zoo.load(path, registry=registry)
    with pytest.raises(ConfigError, match=r"a\.npz: its sizes make .* parameters"):
        zoo.load(written(path, {"intermediate_size": 10**7}), registry=registry)
    with pytest.raises(CheckpointError, match=r"a\.npz: tensor model\.norm\.weight holds NaN"):
        zoo.load(written(path, spoil="model.norm.weight"), registry=registry)
    with pytest.raises(SourceError, match=r"a\.npz: `repack` is of GGUF files"):
        zoo.load(path, repack=4, registry=registry)


def test_without_the_plugin_it_is_refused(tmp_path):
    path = written(tmp_path / "model.npz")
    with pytest.raises(SourceError, match=r"model\.npz: give the folder .* or a \.gguf file"):
        zoo.load(path)


@pytest.mark.slow
def test_every_command_takes_it(site, command, tmp_path):
    site.add("zoo-numpy", "numpy_plugin", PLUGIN)
    path = written(tmp_path / "model.npz")
    run = command("run", path, PROMPT, "--max-tokens", "4", environment=site.environment)
    assert run.returncode == 0 and run.stdout.startswith(" Beijing"), run.stderr
    shown = command("show", path, "--json", environment=site.environment)
    assert json.loads(shown.stdout)["described"] == "model.npz", shown.stderr
    converted = command("convert", path, tmp_path / "out", environment=site.environment)
    assert converted.returncode == 0 and (tmp_path / "out" / "tokenizer.json").exists(), converted.stderr
    plugins = command("plugins", "--json", environment=site.environment)
    given = next(plugin["gives"] for plugin in json.loads(plugins.stdout) if plugin["name"] == "numpy_plugin")
    assert given == ["checkpoint/numpy"]


@pytest.fixture
def extras(extending, monkeypatch):
    """A registry that has the plugin of the page on extending."""
    monkeypatch.syspath_prepend(str(extending.path))
    import zoo_extras

    yield isolated(zoo_extras)
    for name in [name for name in sys.modules if name.startswith("zoo_extras")]:
        del sys.modules[name]


def test_the_pages_example_reads_an_npz_file(extras, tmp_path):
    path, tokens = written(tmp_path / "model.npz", files=()), mx.array([[1, 2, 3]])
    loaded = zoo.load(path, registry=extras)
    assert mx.array_equal(loaded.model(tokens), zoo.load("llama", dtype="float32").model(tokens))
    assert loaded.tokenizer is None
    written(path, {"hidden_size": "wide"}, files=())
    with pytest.raises(ConfigError, match=r"^.*/model\.npz: hidden_size 'wide' expected a whole number"):
        zoo.load(path, registry=extras)


class Folders:
    """A plugin that opens folders with a special.json beside their config.json."""

    target = "zoo.checkpoint.folder:FolderCheckpoint"

    @hookimpl
    def zoo_checkpoints(self):
        yield CheckpointFormat("special", self.target, files=("config.json", "special.json"))


def test_a_plugins_format_is_asked_before_the_zoos_own(folder):
    path, registry = folder(), isolated(Folders())
    assert detect_format(path, registry)[1].name == "folder"
    (path / "special.json").write_text("{}")
    assert detect_format(path, registry)[1].name == "special"
    assert detect_format(path, default_registry())[1].name == "folder"


def test_a_folder_that_is_gone_has_no_pooling_of_its_own(tmp_path):
    """A loaded model gives vectors all the same."""
    gone = open_checkpoint(tmp_path / "gone", default_registry())
    assert gone.pooling() == Pooling()
    with pytest.raises(ConfigError, match=r"gone/config\.json: missing"):
        assert gone.config


def test_two_plugins_for_one_folder_are_named(folder):
    other = type("Others", (Folders,), {})
    path = folder()
    (path / "special.json").write_text("{}")
    with pytest.raises(
        PluginError, match=r"claimed by several plugins: .*Folders::special or Others::special"
    ):
        detect_format(path, isolated(Folders(), other()))


def test_what_its_target_gives_must_be_a_checkpoint(folder):
    path = folder()
    (path / "special.json").write_text("{}")
    wrong = type("Wrong", (Folders,), {"target": "unittest.mock:MagicMock"})
    with pytest.raises(PluginError, match=r"unittest\.mock:MagicMock gave MagicMock, not a Checkpoint"):
        zoo.load(path, registry=isolated(wrong()))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "give the suffixes, the files or the magic"),
        ({"suffixes": ("npz",)}, "suffix 'npz' must begin with a dot"),
        ({"suffixes": ".npz"}, "suffixes is a tuple of text"),
        ({"magic": "GGUF"}, "magic is bytes"),
    ],
)
def test_a_record_that_cannot_be(fields, words):
    with pytest.raises(PluginError, match=words):
        CheckpointFormat("numpy", "my_plugin:Numpy", **fields)


def test_folder_and_file_agree_on_what_they_hold(tmp_path):
    """The two kinds of the zoo's own, of one model, by every method of the interface."""
    path = gguf_files.write(tmp_path / "model.gguf", POCKET)
    folder, file = (open_checkpoint(source, default_registry()) for source in (POCKET, path))
    assert type(folder) is FolderCheckpoint and (folder.lazy, file.lazy) == (True, False)
    assert folder.architecture is file.architecture
    recipes = [one.architecture.recipe(one.config_of()) for one in (folder, file)]
    assert recipes[0] == recipes[1]
    assert folder.weight_files() == [POCKET / "model.safetensors"] and file.weight_files() == [path]
    for one in (folder, file):
        names = [name for group in one.groups() for name in group]
        assert sorted(names) == sorted(one.tensors().arrays)
        read = one.read(mx.float32).arrays
        assert one.held_bytes(mx.float32) == sum(array.nbytes for array in read.values())
        assert {array.dtype for array in read.values()} == {mx.float32}
        assert one.read(mx.float32, names[:1]).arrays.keys() == {names[0]} and read.keys() == set(names)
        assert one.find_not_finite() is None
        (tmp_path / type(one).__name__).mkdir()
        one.save_auxiliary_files(tmp_path / type(one).__name__)
        assert (tmp_path / type(one).__name__ / "tokenizer.json").exists()
    assert folder.tokenizer().encode(PROMPT) == file.tokenizer().encode(PROMPT)
    assert folder.pooling() == file.pooling()
