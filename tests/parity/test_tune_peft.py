"""Tuning beside PEFT: adapters that PEFT saved are read, and the gradients of the same weights are the same."""

from contextlib import contextmanager

import numpy as np
import peft
import pytest
import torch
import transformers as tf

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten

from zoo import weights
from zoo.checkpoint.adapter import LowRankUpdate, join_changes
from zoo.checkpoint.convert import convert
from zoo.checkpoint.parameters import renamed
from zoo.training.adapters import AdapterSettings, add_adapters
from zoo.training.answers import loss as next_token_loss
from zoo.training.loss import IGNORED
from zoo.training.masked_lm import masked_lm_loss
from zoo_translation.objective import translation_loss

from .support import TOLERANCE, difference, reference, texts

VOCAB, RANK, ALPHA = 60, 4, 6.0
LLAMA = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
BERT = LLAMA | dict(max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
T5 = dict(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0)
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_positions=40, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
IDS = dict(vocab_size=VOCAB, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=0)

MODELS = {
    "bert": (tf.BertForMaskedLM, tf.BertConfig, BERT, ["query", "value", "dense"]),
    "t5": (tf.T5ForConditionalGeneration, tf.T5Config, T5, ["q", "v", "wi", "wo"]),
    "gpt2": (tf.GPT2LMHeadModel, tf.GPT2Config, GPT2, ["c_attn", "c_proj", "c_fc"]),
    "llama": (
        tf.LlamaForCausalLM,
        tf.LlamaConfig,
        LLAMA | dict(num_key_value_heads=2),
        ["q_proj", "down_proj"],
    ),
}
KINDS = {
    "lora": dict(),
    "rslora": dict(use_rslora=True),
    "dora": dict(use_dora=True),
    "patterns": dict(layers=True),
}
FIRST = {"bert": "layer.0.attention.self.query", "t5": "decoder.block.0.layer.0.SelfAttention.q"}
FIRST |= {"gpt2": "h.0.attn.c_attn", "llama": "layers.0.self_attn.q_proj"}
LOSSES = {"bert": masked_lm_loss, "t5": translation_loss, "gpt2": next_token_loss, "llama": next_token_loss}


def saved(name, folder):
    """A small random transformers model, saved."""
    kind, config, numbers, targets = MODELS[name]
    model = reference(kind, config(**numbers, **IDS))
    model.save_pretrained(folder)
    return model, targets


def adapted(model, targets, **how):
    """The model with PEFT's adapters of random numbers, B included."""
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, **how)
    )
    torch.manual_seed(3)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "magnitude" in path:
                parameter *= 1.2
            elif "lora_" in path:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_an_adapter_that_peft_saved_gives_its_logits(name, kind, tmp_path):
    model, targets = saved(name, tmp_path / "base")
    how = dict(KINDS[kind])
    if how.pop("layers", False):
        how = dict(rank_pattern={FIRST[name]: 2}, alpha_pattern={FIRST[name]: 9})
    tokens = texts(VOCAB, 2, 12)
    inputs = [torch.tensor(tokens)] * (2 if name == "t5" else 1)

    def logits(model):
        with torch.no_grad():
            ids = dict(zip(("input_ids", "decoder_input_ids"), inputs, strict=False))
            return model(**ids).logits

    plain = logits(model)
    theirs = adapted(model, targets, **how).eval()
    expected = logits(theirs)
    assert (plain - expected).abs().max() > 0.1, "the adapter changes nothing"
    theirs.save_pretrained(tmp_path / "adapter")
    loaded = zoo.load(tmp_path / "base", adapter=tmp_path / "adapter")
    ids = [mx.array(tokens)] * len(inputs)
    assert difference(loaded.model(*ids), expected) <= TOLERANCE
    convert(tmp_path / "base", tmp_path / "fused", adapter=tmp_path / "adapter")
    assert difference(zoo.load(tmp_path / "fused").model(*ids), expected) <= TOLERANCE


def batch_of(name):
    """Inputs and targets, some of which are ignored; of a translator its source, its target and the source's mask."""
    tokens, draw = texts(VOCAB, 3, 10).clip(3), np.random.default_rng(1)
    targets = draw.integers(3, VOCAB, tokens.shape)
    if name == "t5":
        targets[1, 5:] = IGNORED
        return tokens, targets, np.ones_like(tokens)
    return tokens, np.where(draw.random(tokens.shape) < 0.5, targets, IGNORED)


def their_loss(name, model, batch):
    """The mean cross-entropy of the targets that count, by torch."""
    tokens, targets, *mask = (torch.tensor(array) for array in batch)
    if mask:
        given = torch.cat([torch.zeros(len(tokens), 1, dtype=int), targets[:, :-1].clamp(min=0)], dim=1)
        logits = model(input_ids=tokens, attention_mask=mask[0], decoder_input_ids=given).logits
    else:
        logits = model(input_ids=tokens).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


@contextmanager
def both(name, folder, targets=None):
    """PEFT's model, and the zoo's with the same adapters, with the paths of each of PEFT's modules in the zoo."""
    model, everything = saved(name, folder)
    theirs = adapted(model, targets or everything)
    loaded = zoo.load(folder)
    modules = {
        path.removeprefix("base_model.model."): module
        for path, module in theirs.named_modules()
        if isinstance(module, peft.tuners.lora.LoraLayer)
    }
    paths, ours = {}, {}
    for path, module in modules.items():
        a, b = (
            mx.array(getattr(module, part)["default"].weight.detach().numpy())
            for part in ("lora_A", "lora_B")
        )
        update = {f"{path}.weight": LowRankUpdate(path, b, a)}
        found, left = weights.apply(loaded.architecture.layouts["hf"], update, loaded.recipe, join_changes)
        assert found and not left
        paths[path] = [parameter.removesuffix(".weight") for parameter in found]
        ours |= {parameter.removesuffix(".weight"): part for parameter, part in found.items()}
    settings = AdapterSettings(rank=RANK, scale=ALPHA / RANK, parts=tuple(ours))
    assert sorted(add_adapters(loaded.model, settings)) == sorted(ours)
    start = [
        (f"{path}.{key}", value)
        for path, u in ours.items()
        for key, value in (("lora_a", u.a.T), ("lora_b", u.b.T))
    ]
    loaded.model.load_weights(start, strict=False)
    yield theirs, modules, loaded.model, paths


def gradients(name, model, batch):
    """The zoo's loss, and its gradients by path."""
    value, found = nn.value_and_grad(model, LOSSES[name])(model, *map(mx.array, batch))
    return value.item(), dict(tree_flatten(found))


@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_of_adapters_are_pefts(name, tmp_path):
    """Of a matrix that is three in the zoo, A has the sum of the three gradients, B their rows."""
    with both(name, tmp_path) as (theirs, modules, model, paths):
        batch = batch_of(name)
        loss = their_loss(name, theirs, batch)
        loss.backward()
        value, ours = gradients(name, model, batch)
        assert value == pytest.approx(loss.item(), rel=1e-5)
        for path, module in modules.items():
            a = sum(ours[f"{part}.lora_a"] for part in paths[path])
            b = mx.concatenate([ours[f"{part}.lora_b"] for part in paths[path]], axis=1)
            assert difference(a, module.lora_A["default"].weight.grad.T) <= TOLERANCE, path
            assert difference(b, module.lora_B["default"].weight.grad.T) <= TOLERANCE, path


ONE_TO_ONE = {name: models[3] for name, models in MODELS.items()} | {"gpt2": ["c_proj", "c_fc"]}


@pytest.mark.parametrize("name", MODELS)
def test_after_steps_of_adamw_the_adapters_are_pefts(name, tmp_path):
    how = dict(betas=(0.9, 0.95), eps=1e-6, weight_decay=0.0)
    with both(name, tmp_path, ONE_TO_ONE[name]) as (theirs, modules, model, paths):
        batch = batch_of(name)
        torch_optimizer = torch.optim.AdamW((p for p in theirs.parameters() if p.requires_grad), 1e-2, **how)
        optimizer = optim.AdamW(1e-2, bias_correction=True, **how)
        before = dict(tree_flatten(model.trainable_parameters()))
        for _ in range(5):
            torch_optimizer.zero_grad()
            their_loss(name, theirs, batch).backward()
            torch_optimizer.step()
            _, found = gradients(name, model, batch)
            optimizer.update(model, tree_unflatten(list(found.items())))
        after = dict(tree_flatten(model.trainable_parameters()))
        for path, module in modules.items():
            (part,) = paths[path]
            for key, weight in (("lora_a", module.lora_A), ("lora_b", module.lora_B)):
                found = after[f"{part}.{key}"]
                assert mx.abs(found - before[f"{part}.{key}"]).max() > 0.02, "the steps change nothing"
                assert difference(found, weight["default"].weight.T) <= 10 * TOLERANCE, path


@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_of_all_weights_are_those_of_torch(name, tmp_path):
    theirs, _ = saved(name, tmp_path)
    batch, loaded = batch_of(name), zoo.load(tmp_path)
    their_loss(name, theirs, batch).backward()
    add_adapters(loaded.model, AdapterSettings("full"))
    _, ours = gradients(name, loaded.model, batch)
    found = renamed(ours, loaded.architecture, loaded.recipe)
    expected = {path: p.grad for path, p in theirs.named_parameters() if p.grad is not None and p.grad.any()}
    assert expected.keys() <= found.keys()
    for path, gradient in expected.items():
        if gradient.abs().max() > 1e-6:  # a key's bias changes no score: its gradient is rounding
            assert difference(found[path], gradient) <= TOLERANCE, path
