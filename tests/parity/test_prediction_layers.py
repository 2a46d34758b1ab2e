"""Layers for the token after the next: transformers leaves them out, so its layers and norms are put together by the formula."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.generation.speculative.drafters import mtp_layer

from .families import FAMILIES
from .family import VOCAB
from .support import TOLERANCE, difference, texts

QWEN = {"fc": "fc", "embedding": "pre_fc_norm_embedding", "hidden": "pre_fc_norm_hidden", "norm": "norm"}
OTHERS = {"fc": "eh_proj", "embedding": "enorm", "hidden": "hnorm", "norm": "shared_head.norm"}


@pytest.mark.parametrize(
    "name",
    ["qwen3-next", "qwen3.5", "qwen3.5-moe", "deepseek-v3", "deepseek-v3.2", "glm-moe-dsa", "glm4-moe-lite"],
)
def test_logits_of_the_token_after_the_next(tmp_path, name):
    model, qwen = FAMILIES[name].make(), name.startswith("qwen")
    layers, config = model.model.layers, model.config
    # A layer like the last that attends to tokens, with other numbers.
    index = max(i for i, layer in enumerate(layers) if hasattr(layer, "self_attn"))
    layer = type(layers[index])(config, index).eval().float()
    norms = {
        part: type(model.model.norm)(config.hidden_size, config.rms_norm_eps)
        for part in ("embedding", "hidden", "norm")
    }
    fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    parts = torch.nn.ModuleDict(norms | {"fc": fc})
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in [*layer.parameters(), *parts.parameters()]:
            centre = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(centre + 0.15 * torch.randn(parameter.shape, generator=generator))
        tokens = torch.tensor(texts(VOCAB, 2, 20))
        hidden = model.model(tokens).last_hidden_state[:, :-1]
        vectors = model.model.embed_tokens(tokens[:, 1:])
        x = fc(torch.cat([norms["embedding"](vectors), norms["hidden"](hidden)], dim=-1))
        places = torch.arange(x.shape[1])[None].expand(2, -1)
        mask = (
            torch.full((x.shape[1],) * 2, torch.finfo(torch.float32).min)
            .triu(1)[None, None]
            .expand(2, 1, -1, -1)
        )
        x = layer(
            x, position_embeddings=model.model.rotary_emb(x, places), attention_mask=mask, position_ids=places
        )
        expected = model.lm_head(norms["norm"](x[0] if isinstance(x, tuple) else x))
    model.save_pretrained(tmp_path)
    # Copied by name from a folder in which the layer stands in the place of one of the model's.
    layers[index] = layer
    model.save_pretrained(tmp_path / "layer")
    place = f"model.layers.{index}."
    target = "mtp." if qwen else f"model.layers.{len(layers)}."
    tensors = load_file(tmp_path / "model.safetensors")
    for tensor, values in load_file(tmp_path / "layer" / "model.safetensors").items():
        if tensor.startswith(place):
            tensors[target + ("layers.0." if qwen else "") + tensor.removeprefix(place)] = values
    for part, theirs in (QWEN if qwen else OTHERS).items():
        tensors[f"{target}{theirs}.weight"] = parts[part].weight.detach().clone()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    path = tmp_path / "config.json"
    key = "mtp_num_hidden_layers" if qwen else "num_nextn_predict_layers"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: 1}))
    loaded = zoo.load(tmp_path)
    own, ids = mtp_layer(loaded), mx.array(tokens.numpy())
    states = own(loaded.model.embedding.vectors(ids[:, 1:]), loaded.model.backbone(ids)[:, :-1])
    assert difference(loaded.model.head(own.norm(states)), expected) <= TOLERANCE
