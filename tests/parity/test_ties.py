"""Folders that tie the head to the embedding and hold another one: transformers uses the head that is there."""

import pytest
import torch
import transformers as tf

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from tests.checkpoint.test_ties import REGISTRY, TIED, written

from .support import TOLERANCE, difference, texts

# transformers has no class of Mistral 4's text alone, and reads other keys than the released configs of Kimi Linear (sizes) and
# MiniMax-01 (kinds of layers, rotated dimensions) have.
OTHERS = ("mistral4", "kimi-linear", "minimax")
KNOWN = [
    name
    for name in TIED
    if name not in OTHERS
    and any(kind in tf.CONFIG_MAPPING for kind in REGISTRY.architecture(name).model_types)
]
CLASSES = {
    "translate": tf.AutoModelForSeq2SeqLM,
    "fill-mask": tf.AutoModelForMaskedLM,
    "generate": tf.AutoModelForCausalLM,
}


@pytest.mark.filterwarnings("ignore:config.json")
@pytest.mark.parametrize("name", KNOWN)
def test_the_head_of_the_folder_counts_as_in_transformers(tmp_path, name):
    written(tmp_path / "model", name, pad_token_id=1)
    loaded = zoo.load(tmp_path / "model")
    kind = CLASSES[loaded.recipe.task]
    model = kind.from_pretrained(tmp_path / "model", dtype=torch.float32, attn_implementation="eager").eval()
    assert model.get_output_embeddings().weight is not model.get_input_embeddings().weight
    tokens = texts(loaded.recipe.vocab, 2, 20)
    inputs = dict(input_ids=torch.tensor(tokens))
    ours = (mx.array(tokens),)
    if loaded.model.translates:
        inputs["decoder_input_ids"] = inputs["input_ids"]
        ours = (*ours, *ours)
    with torch.no_grad():
        expected = model(**inputs).logits
    assert difference(loaded.model(*ours), expected) <= TOLERANCE
