"""LSTM and GRU against torch.nn's."""

import json

import mlx.core as mx
import pytest
import torch
from safetensors.torch import save_file

import zoo
from zoo.checkpoint.parameters import export

from .support import TOLERANCE, difference, texts

VOCAB = 61


class Reference(torch.nn.Module):
    """Embedding, torch's own stack, a head."""

    def __init__(self, kind, dim, layers, bias, tied):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB, dim)
        self.rnn = getattr(torch.nn, kind.upper())(dim, dim, layers, bias=bias, batch_first=True)
        if not tied:
            self.lm_head = torch.nn.Linear(dim, VOCAB, bias=False)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.4 * torch.randn_like(parameter))

    def forward(self, tokens):
        hidden, states = self.rnn(self.embed(tokens))
        head = self.lm_head.weight if hasattr(self, "lm_head") else self.embed.weight
        return hidden @ head.T, states


def saved(kind, folder, dim, layers, bias, tied):
    """A reference with random parameters, and its folder loaded by the zoo."""
    torch.manual_seed(dim)
    model = Reference(kind, dim, layers, bias, tied).eval()
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    config = dict(model_type=kind, vocab_size=VOCAB, hidden_size=dim, num_layers=layers, bias=bias)
    (folder / "config.json").write_text(json.dumps(config | dict(tie_word_embeddings=tied)))
    return model, zoo.load(folder)


CASES = [(24, 1, True, True), (40, 3, True, False), (17, 2, False, True)]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize(("dim", "layers", "bias", "tied"), CASES)
def test_logits_and_states(kind, dim, layers, bias, tied, tmp_path):
    model, loaded = saved(kind, tmp_path, dim, layers, bias, tied)
    for length in (1, 17, 90):
        tokens = texts(VOCAB, 3, length)
        with torch.no_grad():
            expected, states = model(torch.tensor(tokens))
        cache = loaded.model.make_cache()
        assert difference(loaded.model(mx.array(tokens), cache), expected) <= TOLERANCE
        for i, state in enumerate(states if kind == "lstm" else [states]):
            found = mx.stack([layer[i] for layer in cache])  # (layers, B, D)
            assert difference(found, state) <= TOLERANCE


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_exports_torch_names_and_orientations(kind, tmp_path):
    model, loaded = saved(kind, tmp_path, 24, 2, True, False)
    tensors = export(loaded.model, loaded.architecture, loaded.recipe)
    expected = model.state_dict()
    assert tensors.keys() == expected.keys()
    for name, array in tensors.items():
        assert difference(array, expected[name]) == 0
