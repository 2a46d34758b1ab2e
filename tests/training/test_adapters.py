"""What of a model is tuned: which layers take an adapter, the names in its files, and the steps that train it."""

from itertools import cycle

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_flatten

from zoo.checkpoint.parameters import quantize
from zoo.errors import ZooError
from zoo.testing import subject
from zoo.testing.subjects import QUANTIZATION
from zoo.training.adapters import TRAINED, AdapterSettings, StackedLoRA, adapter_files, add_adapters
from zoo.training.loop import Trainer, checkpoint_layers, schedule
from zoo.training.loss import IGNORED, next_token_loss, scored_targets
from zoo.training.record import TrainingRecord, TrainingSettings


def chosen(name, **settings):
    """The small model of an architecture with adapters, the addresses that took part, and its subject."""
    about = subject(name)
    return about.model, add_adapters(about.model, AdapterSettings(rank=2, **settings)), about


def trained(model):
    return dict(tree_flatten(model.trainable_parameters()))


def test_parts_and_layers_choose_the_matrices():
    model, paths, about = chosen("llama", parts=("mixer.query", "feedforward"), layers=1)
    last = len(about.recipe.layers) - 1
    parts = ["feedforward.down", "feedforward.gate", "feedforward.up", "mixer.query"]
    assert last > 0 and sorted(paths) == [f"layers.{last}.{part}" for part in parts]
    assert sorted(trained(model)) == sorted(f"{path}.{key}" for path in paths for key in TRAINED[:2])
    _, everything, _ = chosen("llama")
    assert len(everything) == 7 * (last + 1), "all linear layers within the layers, and none outside"


def test_the_last_layers_are_counted_on_each_side_of_a_translator():
    _, paths, about = chosen("transformer", parts=("mixer.query",), layers=1)
    sides = {"encoder": about.recipe.encoder, "decoder": about.recipe.decoder}
    assert paths == sorted(
        f"{side}.layers.{len(part.layers) - 1}.mixer.query" for side, part in sides.items()
    )


def test_a_part_that_no_layer_has_is_refused_with_those_there_are():
    with pytest.raises(
        ZooError, match=r"`parts`: no layer 'mixer\.foo' .* those that do: embedding\.tokens, .*mixer\.value"
    ):
        chosen("llama", parts=("mixer.query", "mixer.foo"))
    with pytest.raises(ZooError, match=r"no layer 'mixer\.quer'"):
        chosen("llama", parts=("mixer.quer",))


def test_an_adapter_of_the_token_table_changes_the_tied_head():
    model, paths, about = chosen("gpt2", parts=("embedding.tokens",))
    assert paths == ["embedding.tokens"] and about.recipe.head.ties_embedding
    hidden = mx.random.normal((1, 3, about.recipe.dim))
    vectors, logits = model.embedding.vectors(about.tokens), model.head(hidden)
    table = model.embedding.tokens
    table.lora_b = mx.random.normal(table.lora_b.shape)
    assert mx.abs(model.embedding.vectors(about.tokens) - vectors).max() > 0.1
    assert mx.abs(model.head(hidden) - logits).max() > 0.1


def test_the_stacked_matrices_of_experts_take_one_low_rank_product_an_expert():
    model, paths, about = chosen("mixtral", parts=("feedforward.experts.down",))
    layers = dict(model.named_modules())
    experts = about.recipe.layers[0].feedforward.experts
    assert len(paths) == len(about.recipe.layers)
    assert all(isinstance(layers[path], StackedLoRA) for path in paths)
    assert {array.shape[0] for array in trained(model).values()} == {layers[paths[0]].linear.weight.shape[0]}
    assert experts


@pytest.mark.parametrize(
    ("name", "part", "expected", "key"),
    [
        ("llama", "mixer.query", "model.layers.0.self_attn.q_proj", "self_attn.q_proj"),
        (
            "mixtral",
            "feedforward.experts.down",
            "model.layers.0.block_sparse_moe.switch_mlp.down_proj",
            "block_sparse_moe.switch_mlp.down_proj",
        ),
        ("gpt2", "mixer.query", "layers.0.mixer.query", "mixer.query"),  # a third of mlx-lm's matrix
    ],
)
def test_files_have_the_names_of_mlx_lm_where_a_matrix_is_one_of_its_own(name, part, expected, key):
    settings = AdapterSettings(rank=2, scale=3.0, parts=(part,))
    about = subject(name)
    paths = add_adapters(about.model, settings)
    tensors, config = adapter_files(about.model, settings, paths, about.architecture, about.recipe)
    assert {f"{expected}.lora_a", f"{expected}.lora_b"} <= tensors.keys() and len(tensors) == 2 * len(paths)
    assert config["lora_parameters"] == dict(rank=2, scale=3.0, dropout=0.0, keys=[key])
    assert config["fine_tune_type"] == "lora" and config["num_layers"] == -1


def test_full_tuning_of_parts_leaves_the_others_frozen():
    model, paths, about = chosen("llama", kind="full", parts=("mixer.query", "mixer_norm"), layers=1)
    last = len(about.recipe.layers) - 1
    assert paths == [f"layers.{last}.mixer.query", f"layers.{last}.mixer_norm"]
    assert sorted(trained(model)) == [f"{path}.weight" for path in paths]
    whole, _, _ = chosen("llama", kind="full")
    assert trained(whole).keys() == dict(tree_flatten(whole.parameters())).keys()


def test_full_tuning_learns_where_the_weights_are_halves():
    about = subject("llama")
    model, texts, losses = about.model, about.tokens, []
    model.set_dtype(mx.float16)
    add_adapters(model, AdapterSettings(kind="full"))
    optimizer, step = optim.AdamW(1e-3), nn.value_and_grad(model, next_token_loss)
    for _ in range(5):
        loss, gradients = step(model, texts[:, :-1], texts[:, 1:])
        optimizer.update(model, gradients)
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses


def test_packed_matrices_are_not_trained_themselves():
    model = subject("llama").model
    quantize(model, QUANTIZATION)
    with pytest.raises(ZooError, match=r"`type` full: layers\.\d+\.mixer\.query holds packed numbers"):
        add_adapters(model, AdapterSettings("full", parts=("mixer.query",)))
    assert add_adapters(model, AdapterSettings("full", parts=("mixer_norm",)))


def batch_of(about, targets=(12, 3, 7, 1)):
    """Rows whose first targets count, so many of each."""
    inputs = mx.random.randint(0, about.vocab, (len(targets), 12), key=mx.random.key(1))
    expected = mx.random.randint(0, about.vocab, inputs.shape, key=mx.random.key(2))
    counts = mx.arange(12)[None] < mx.array(targets)[:, None]
    return inputs, mx.where(counts, expected, IGNORED)


def test_layers_that_compute_activations_again_have_the_same_gradients():
    def gradients(checkpointed):
        model, _, about = chosen("llama")
        if checkpointed:
            checkpoint_layers(model)
        _, found = nn.value_and_grad(model, next_token_loss)(model, *batch_of(about))
        return dict(tree_flatten(found))

    plain, again = gradients(False), gradients(True)
    assert plain.keys() == again.keys() and any(array.any() for array in plain.values())
    assert all(mx.allclose(plain[path], again[path], rtol=1e-4, atol=1e-6) for path in plain)


def test_layers_that_compute_activations_again_drop_out_the_same_inputs():
    """The gradient is the slope of the loss between two points nearby, dropout included."""
    model, _, about = chosen("llama", dropout=0.5)
    checkpoint_layers(model.train())
    batch, start = batch_of(about), trained(model)

    def loss(change=0.0):
        mx.random.seed(4)
        model.load_weights(
            [(path, array + change * slopes[path]) for path, array in start.items()], strict=False
        )
        return next_token_loss(model, *batch).item()

    mx.random.seed(4)
    _, found = nn.value_and_grad(model, next_token_loss)(model, *batch)
    slopes = dict(tree_flatten(found))
    square = sum((array**2).sum().item() for array in slopes.values())
    small = 0.003 / square**0.5
    assert (loss(small) - loss(-small)) / (2 * small) == pytest.approx(square, rel=0.02)


def test_layers_that_compute_activations_again_need_less_memory():
    def peak(checkpointed):
        model, _, about = chosen("llama")
        if checkpointed:
            checkpoint_layers(model)
        tokens = mx.random.randint(0, about.vocab, (8, 128), key=mx.random.key(1))
        mx.eval(model.parameters(), tokens)
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        mx.eval(nn.value_and_grad(model, next_token_loss)(model, tokens, tokens))
        return mx.get_peak_memory() - before

    assert peak(True) < 0.8 * peak(False)


def test_a_step_of_four_single_rows_is_that_of_a_batch_of_four(tmp_path):
    """Each row counts by its targets, as it does in the batch."""

    def after(batches, accumulate):
        model, _, about = chosen("llama")
        settings = TrainingSettings(steps=3, rate=1e-2, warmup=1, decay=0.0, accumulate=accumulate)
        record = TrainingRecord("llama", 0, vars(settings))
        Trainer(
            model, next_token_loss, settings, record, tmp_path / "run" / "state", weight=scored_targets
        ).run(cycle(batches(about)))
        return trained(model), record

    whole, record = after(lambda about: [batch_of(about)], 1)
    single, other = after(
        lambda about: [tuple(part[row : row + 1] for part in batch_of(about)) for row in range(4)], 4
    )
    assert record.tokens == other.tokens
    assert other.losses[0][1] == pytest.approx(record.losses[0][1], abs=2e-4)
    start, _, _ = chosen("llama")
    moved = max(mx.abs(array - trained(start)[path]).max().item() for path, array in whole.items())
    for path, array in whole.items():
        assert mx.abs(array - single[path]).max() < 0.02 * moved, path


@pytest.mark.parametrize(
    ("kind", "middle", "end"), [("cosine", 0.55, 0.1), ("linear", 0.55, 0.1), ("constant", 1.0, 1.0)]
)
def test_schedules_warm_up_to_the_peak_and_fall(kind, middle, end):
    rate = schedule(TrainingSettings(steps=110, rate=1e-2, warmup=10, schedule=kind))
    at = {step: rate(mx.array(step)).item() / 1e-2 for step in (0, 5, 10, 35, 60, 110)}
    assert at[0] == pytest.approx(0.1) and at[5] == pytest.approx(0.55) and at[10] == pytest.approx(1)
    assert at[60] == pytest.approx(middle, abs=0.01) and at[110] == pytest.approx(end, abs=0.01)
    quarter = {"cosine": 0.868, "linear": 0.775, "constant": 1.0}[kind]
    assert at[35] == pytest.approx(quarter, abs=0.01)


def test_a_schedule_without_warmup_begins_at_its_peak():
    rate = schedule(TrainingSettings(steps=100, rate=1e-2, warmup=0, schedule="linear"))
    at = [rate(mx.array(step)).item() / 1e-2 for step in (0, 50, 100)]
    assert at == [pytest.approx(1), pytest.approx(0.55), pytest.approx(0.1)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(rank=0), "`rank` must be at least 1, got 0"),
        (dict(dropout=1.0), "`dropout` must be from 0 to below 1, got 1.0"),
        (dict(scale=0.0), "`scale` must be positive, got 0.0"),
        (dict(layers=0), "`layers` must be at least 1, got 0"),
        (dict(parts=()), "`parts` must name at least one"),
        (dict(kind="ia3"), "`type` must be one of lora, dora, full, got ia3"),
    ],
)
def test_settings_out_of_bounds_are_named(settings, words):
    with pytest.raises(ZooError) as caught:
        AdapterSettings(**settings)
    assert words in str(caught.value)
