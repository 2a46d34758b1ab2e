"""Adapters as PEFT saves them: the same as mlx-lm's with the same numbers, or refused by the setting's name."""

import json

import mlx.core as mx
import pytest

from zoo.checkpoint.parameters import parameters_of
from zoo.errors import ConfigError
from zoo.loading import load

from .test_adapter import PATH, QUERY, adapter


def peft(folder, tensors, **settings):
    """The folder of a PEFT adapter with the numbers of mlx-lm's."""
    folder.mkdir()
    name = f"base_model.model.{QUERY}"
    a, b = (tensors[f"{QUERY}.lora_{part}"].T for part in "ab")
    named = {f"{name}.lora_A.weight": mx.contiguous(a), f"{name}.lora_B.weight": mx.contiguous(b)}
    mx.save_safetensors(str(folder / "adapter_model.safetensors"), named)
    settings = dict(peft_type="LORA", r=2, lora_alpha=1) | settings
    (folder / "adapter_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    "settings",
    [
        dict(),
        dict(lora_alpha=2**-0.5, use_rslora=True),
        dict(lora_alpha=7, alpha_pattern={"layers.0.self_attn.q_proj": 3, "layers.1.self_attn.q_proj": 1}),
    ],
)
def test_the_scale_is_alpha_by_the_rank_or_its_root(settings, tmp_path):
    tensors = adapter(tmp_path / "mlx")  # with the scale 0.5
    peft(tmp_path / "peft", tensors, **settings)
    ours, theirs = (
        parameters_of(load("llama", adapter=tmp_path / name).model)[PATH] for name in ("mlx", "peft")
    )
    assert mx.allclose(ours, theirs, atol=2e-3) and not mx.allclose(
        ours, parameters_of(load("llama").model)[PATH], atol=0.1
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(peft_type="IA3"), "peft_type 'IA3' is not implemented; known: LORA"),
        (dict(use_qalora=True), "use_qalora True is not implemented"),
        (dict(init_lora_weights="pissa_niter_4"), "changes the model's own weights"),
        (dict(alpha_pattern={"layers.(a+)+": 1}), "'layers.(a+)+' is no plain name"),
        (dict(lora_alpha="8"), "lora_alpha '8'"),
    ],
)
def test_other_changes_than_a_scaled_product_are_refused(settings, words, tmp_path):
    peft(tmp_path / "peft", adapter(tmp_path / "mlx"), **settings)
    with pytest.raises(ConfigError) as caught:
        load("llama", adapter=tmp_path / "peft")
    assert words in str(caught.value)
