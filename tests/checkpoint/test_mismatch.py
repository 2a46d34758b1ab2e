"""Tensors that do not fit a model: one line that shows both sides, layers together, with the nearest names."""

import mlx.core as mx
import pytest

import zoo
from zoo.checkpoint.mismatch import grouped
from zoo.errors import CheckpointError


@pytest.fixture
def refused(folder):
    """Change the tensors and the config of a small model's folder; gives the line that refuses it."""

    def change(name="mistral", tensors=lambda arrays: arrays, format="pt", **config):
        path = folder(name, changes=config, tokenizer=False)
        file = str(path / "model.safetensors")
        mx.save_safetensors(file, tensors(mx.load(file)), metadata={"format": format} if format else None)
        with pytest.raises(CheckpointError) as raised:
            zoo.load(path)
        line = str(raised.value)
        assert "\n" not in line and len(line) < 1500
        return line

    return change


def renamed(old, new):
    return lambda arrays: {name.replace(old, new): array for name, array in arrays.items()}


def without(part):
    return lambda arrays: {name: array for name, array in arrays.items() if part not in name}


def test_both_sides_and_the_nearest_names(refused):
    line = refused(tensors=renamed("gate_proj", "gate"))
    missing, unexpected = line.split("; ")
    assert missing == (
        "missing tensors model.layers.{i}.mlp.gate_proj.weight (for layers.{i}.feedforward.gate.weight, i = 0…2) (128, 64) "
        "[nearest: model.layers.{i}.mlp.gate.weight]"
    )
    assert unexpected == (
        "unexpected tensors model.layers.{i}.mlp.gate.weight (i = 0…2) (128, 64), which no rule takes "
        "[nearest rule: [model.]layers.{i}.mlp.gate_proj.*]"
    )


def test_neither_side_hides_the_other(refused):
    line = refused(tensors=renamed("model.", "inner.network."))
    assert "missing tensor model.embed_tokens.weight" in line and "more missing" in line
    assert "unexpected tensor inner.network.embed_tokens.weight" in line and "more unexpected" in line


def test_a_layer_too_many_or_too_few(refused):
    line = refused(num_hidden_layers=2)
    assert (
        "unexpected tensor model.layers.2.input_layernorm.weight (for layers.2.mixer_norm.weight) (64,)"
        in line
    )
    assert "the model has no such parameter [nearest: layers.{i}.mixer_norm.weight (i = 0…1)]" in line
    line = refused(num_hidden_layers=5)
    assert "missing tensors model.layers.{i}.mlp.up_proj.weight" in line and "i = 3…4" in line


def test_shapes_are_told_once_for_all_layers(refused):
    line = refused(intermediate_size=90)
    assert line.count("expected shape") == 3
    assert (
        "tensors model.layers.{i}.mlp.up_proj.weight (for layers.{i}.feedforward.up.weight, i = 0…2): "
        in line
    )
    assert "expected shape (90, 64), found (128, 64)" in line


def test_a_part_of_a_fused_tensor_is_told_by_the_whole(refused):
    line = refused("gpt2", tensors=without("c_attn.weight"))
    assert "transformer.h.{i}.attn.c_attn.weight (for layers.{i}.mixer.query.weight" in line


def test_experts_have_a_number_of_their_own(refused):
    line = refused("qwen3-moe", tensors=renamed("experts.", "xperts."))
    assert "xperts.{i}.up_proj.weight (i = 0…" in line or "xperts.{j}.up_proj.weight (i = " in line


def test_the_nearest_layout_is_told(refused):
    line = refused("gpt2", tensors=lambda arrays: {**arrays, "surprise": mx.zeros((2, 3))}, format=None)
    assert line == "unexpected tensor surprise (2, 3), which no rule takes"
    line = refused("gpt2", tensors=lambda arrays: {**arrays, "surprise": mx.zeros((2, 3))}, format="mlx")
    assert line == "unexpected tensor surprise (2, 3), which no rule takes"


def test_numbers_that_are_not_all_there():
    problems = [((f"layers.{i}.experts.{e}.w1",), "") for i in (0, 1, 5) for e in range(4)]
    (group,) = grouped(problems)
    assert str(group) == "layers.{i}.experts.{j}.w1 (i = 3 of 0…5, j = 0…3)" and group.count == 12
    assert [str(one) for one in grouped([(("a.1.x", "b.1.y"), ""), (("a.2.x", "c.2.y"), "")])] == [
        "a.1.x (for b.1.y)",
        "a.2.x (for c.2.y)",
    ]


def test_names_that_nobody_gave_on_purpose(refused):
    strange = [
        "a.{}.b",
        "a.1.b",
        "a.2.b",
        f"n.{'9' * 5000}.x",
        "l" * 100_000,
        "layers.٣.x",
        *(f"t{i}.x" for i in range(3000)),
    ]
    line = refused(tensors=lambda arrays: {**arrays, **{name: mx.zeros((1,)) for name in strange}})
    assert "more unexpected" in line


def test_what_is_told_of_it_stays_short():
    problems = [((name,), "") for name in ("a.{}.b", "a.1.b", "a.2.b", f"n.{'9' * 5000}.x")]
    assert [str(group) for group in grouped(problems)][:2] == ["a.{i}.b (i = 1…2)", "a.{}.b"]
