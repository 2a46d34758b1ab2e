"""A folder of EmbeddingGemma's kind, Gemma 3 with attention in both directions, against transformers and sentence-transformers' formulas."""

import json

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)

from .families import FAMILIES
from .support import TOLERANCE, difference

TEXTS = [
    "Which planet is known as the Red Planet?",
    "Mars, known for its reddish appearance, is often referred to as the Red Planet. " * 3,
    "Venus",
]
PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}


@pytest.fixture
def folder(tmp_path):
    """A random model with windows of 6 tokens, its tokenizer, and the modules of the published folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    special = ["<pad>", "<eos>", "<bos>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [*TEXTS, *PROMPTS.values()],
        trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        "<bos> $A <eos>", None, [("<bos>", 2), ("<eos>", 1)]
    )
    names = dict(pad_token="<pad>", eos_token="<eos>", bos_token="<bos>")
    tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(tmp_path)
    sizes = dict(vocab_size=320, use_bidirectional_attention=True, sliding_window=6, num_hidden_layers=6)
    FAMILIES["gemma3"].make(sizes | dict(max_position_embeddings=256)).model.save_pretrained(tmp_path)
    random = np.random.default_rng(0)
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Dense", "3_Dense")]
    modules.append(("Normalize", "4_Normalize"))
    listed = [
        dict(idx=i, name=str(i), path=p, type=f"sentence_transformers.models.{k}")
        for i, (k, p) in enumerate(modules)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    settings = dict(word_embedding_dimension=32, pooling_mode_mean_tokens=True, include_prompt=True)
    for path, config in {
        "1_Pooling": settings,
        "2_Dense": dict(in_features=32, out_features=80),
        "3_Dense": dict(in_features=80, out_features=32),
    }.items():
        (tmp_path / path).mkdir()
        if path != "1_Pooling":
            config |= dict(bias=False, activation_function="torch.nn.modules.linear.Identity")
            shape = config["out_features"], config["in_features"]
            save_file(
                {"linear.weight": random.normal(size=shape).astype(np.float32)},
                tmp_path / path / "model.safetensors",
            )
        (tmp_path / path / "config.json").write_text(json.dumps(config))
    (tmp_path / "config_sentence_transformers.json").write_text(
        json.dumps(
            dict(
                model_type="SentenceTransformer",
                prompts=PROMPTS,
                default_prompt_name=None,
                similarity_fn_name="cosine",
            )
        )
    )
    (tmp_path / "sentence_bert_config.json").write_text(
        json.dumps(dict(max_seq_length=256, do_lower_case=False))
    )
    return tmp_path


@pytest.mark.filterwarnings("error:config.json")  # a key that nothing reads
@pytest.mark.parametrize("prompt", [None, "query", "document"])
def test_vectors_are_those_of_the_published_modules(folder, prompt):
    model = tf.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    vectors = []
    for text in TEXTS:
        with torch.no_grad():
            states = model(**tokenizer(PROMPTS.get(prompt, "") + text, return_tensors="pt")).last_hidden_state
        vectors.append(states[0].mean(0).numpy())
    expected = np.array(vectors)
    for path in ("2_Dense", "3_Dense"):
        expected = expected @ load_file(folder / path / "model.safetensors")["linear.weight"].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    loaded = zoo.load(folder)
    assert loaded.architecture.task == "encode"
    assert difference(zoo.embed(loaded, TEXTS, prompt_name=prompt), torch.tensor(expected)) <= TOLERANCE


def test_vectors_are_those_of_sentence_transformers(folder):
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    for name in PROMPTS:
        found = zoo.embed(zoo.load(folder), TEXTS, prompt_name=name)
        assert difference(found, theirs.encode(TEXTS, prompt_name=name, convert_to_tensor=True)) <= TOLERANCE
