"""Loading: what is made ready beside the reading of the weights, so that no token waits for it."""

import shutil

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

import zoo
from zoo import runtime
from zoo.blocks.joined import joined_arrays
from zoo.checkpoint.convert import convert
from zoo.errors import DoesNotFit, PluginError, TokenizerError
from zoo.loading import import_generation
from zoo.tokenizer import chat_process


def test_projections_are_joined_when_a_model_is_loaded_and_stay_its_parameters():
    model = zoo.load("llama").model
    mixer = model.layers[0].mixer
    layers = [mixer[name] for name in mixer.joins]
    own = [layer.weight for layer in layers]
    arrays = joined_arrays(*layers)
    assert all(layer.weight is weight for layer, weight in zip(layers, own, strict=True)), "made at loading"
    assert mx.array_equal(arrays["weight"], mx.concatenate(own)).item()


def test_a_layer_with_other_numbers_is_joined_anew():
    mixer = zoo.load("llama").model.layers[0].mixer
    layers = [mixer[name] for name in mixer.joins]
    before = joined_arrays(*layers)
    mixer.key.weight = 2 * mixer.key.weight
    after = joined_arrays(*layers)
    assert after is not before
    assert mx.array_equal(after["weight"], mx.concatenate([layer.weight for layer in layers])).item()


def test_the_process_that_renders_the_chat_template_is_started_meanwhile(tmp_path, monkeypatch):
    shutil.copytree(zoo.load("llama").folder, tmp_path / "llama")
    (tmp_path / "llama" / "chat_template.jinja").write_text("{{ messages[0].content }}")
    waiting = []
    monkeypatch.setattr(chat_process, "_idle", waiting)
    zoo.load(tmp_path / "llama")
    (worker,) = waiting
    assert worker.template == "{{ messages[0].content }}" and worker.lives
    worker.kill()


def test_an_error_of_the_tokenizer_is_raised_as_it_is(tmp_path):
    pocket = zoo.load("llama").folder
    for file in pocket.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        zoo.load(tmp_path)


def test_a_strategy_that_cannot_be_imported_does_not_stop_loading():
    class Registry:
        asked = False

        def strategy(self, task, settings, architecture):
            self.asked = True
            raise PluginError("cannot import it")

    registry = Registry()
    import_generation(registry, zoo.load("llama").architecture, 0)
    assert registry.asked


def test_what_is_in_memory_already_is_not_free_for_another_model(monkeypatch):
    monkeypatch.setattr(runtime, "usable_memory", lambda: 2 * 10**9)
    zoo.load("llama")
    monkeypatch.setattr(runtime, "active_memory", lambda: 2 * 10**9)
    with pytest.raises(
        DoesNotFit, match=r"weights 0\.0 GB, .*already in memory 2\.0 GB, usable memory 2\.0 GB"
    ):
        zoo.load("llama")
    zoo.load("llama", force=True)


def test_a_model_that_hardly_fits_is_warned_of(monkeypatch):
    monkeypatch.setattr(runtime, "active_memory", lambda: 2 * 10**9)
    monkeypatch.setattr(runtime, "usable_memory", lambda: int(2.1 * 10**9))
    with pytest.warns(UserWarning, match=r"hardly fits, and may be slow: .*already in memory 2\.0 GB"):
        zoo.load("llama")


def test_no_part_of_a_fused_matrix_lies_in_rows_that_are_apart(tmp_path, monkeypatch):
    """MLX copies such a matrix for each product. GPT-2 stores the query, key and value side by side."""
    monkeypatch.setattr(runtime, "joins_projections", lambda nbytes: False)
    convert("gpt2", tmp_path / "gpt2", layout="hf", dtype="float32")
    parameters = tree_flatten(zoo.load(tmp_path / "gpt2", dtype="float32").model.parameters())
    matrices = {path: array for path, array in parameters if array.ndim == 2}
    assert "layers.0.mixer.query.weight" in matrices
    for path, matrix in matrices.items():
        rows, columns = matrix.shape
        assert memoryview(matrix).strides in ((4 * columns, 4), (4, 4 * rows)), path
