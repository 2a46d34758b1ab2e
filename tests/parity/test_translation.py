"""The encoder-decoders against transformers: the same folder, the same logits, the same translations."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

VOCAB = 60
FAIRSEQ = dict(
    vocab_size=VOCAB,
    d_model=32,
    encoder_layers=2,
    decoder_layers=3,
    encoder_attention_heads=4,
    decoder_attention_heads=2,
    encoder_ffn_dim=48,
    decoder_ffn_dim=40,
    max_position_embeddings=80,
)
OTHER = FAIRSEQ | dict(
    d_model=24, encoder_layers=3, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=4
)
T5 = dict(vocab_size=VOCAB, d_model=32, d_kv=12, d_ff=48, num_layers=2, num_heads=4)
NEAR = dict(relative_attention_num_buckets=12, relative_attention_max_distance=20)

CASES = {
    "marian": ("Marian", FAIRSEQ | dict(scale_embedding=True, activation_function="swish")),
    "marian-separate": (
        "Marian",
        OTHER | dict(share_encoder_decoder_embeddings=False, decoder_vocab_size=50),
    ),
    "marian-untied": ("Marian", FAIRSEQ | dict(tie_word_embeddings=False)),
    "bart": ("Bart", FAIRSEQ),
    "bart-scaled": ("Bart", OTHER | dict(scale_embedding=True, activation_function="relu")),
    "mbart": ("MBart", FAIRSEQ),
    "mbart-scaled": ("MBart", OTHER | dict(scale_embedding=True, activation_function="relu")),
    "pegasus": ("Pegasus", FAIRSEQ),
    "pegasus-scaled": ("Pegasus", OTHER | dict(scale_embedding=True, activation_function="relu")),
    "m2m": ("M2M100", FAIRSEQ),
    "m2m-unscaled": ("M2M100", OTHER | dict(scale_embedding=False, pad_token_id=3)),
    "t5": ("T5", T5),
    "t5-deep": ("T5", T5 | NEAR | dict(num_decoder_layers=3, feed_forward_proj="gated-silu", d_model=20)),
    "t5-1.1": ("T5", T5 | NEAR | dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "mt5": ("MT5", T5),
    "umt5": ("UMT5", T5 | NEAR | dict(tie_word_embeddings=False)),
    "umt5-scaled": ("UMT5", T5 | NEAR | dict(d_kv=8, d_model=20, feed_forward_proj="relu")),
    "mt5-relu": ("MT5", T5 | NEAR | dict(feed_forward_proj="relu", d_kv=8)),
}
# transformers' own cache fails for a T5 whose decoder is deeper than its encoder.
GENERATING = [case for case in CASES if case != "t5-deep"]


def reference(case, seed=0, **changes):
    """A small model of transformers, every parameter random: norms, biases and the logits' bias too."""
    family, numbers = CASES[case]
    numbers = dict(pad_token_id=1, decoder_start_token_id=2, eos_token_id=0) | numbers | changes
    if family in ("Marian", "Bart", "MBart", "Pegasus"):
        numbers = dict(forced_eos_token_id=None) | numbers
    config = getattr(transformers, f"{family}Config")(**numbers)
    torch.manual_seed(seed)
    kind = "MTModel" if family == "Marian" else "ForConditionalGeneration"
    model = getattr(transformers, family + kind)(config).eval()
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" in name and not parameter.requires_grad:
                continue
            spread = 0.3 if parameter.ndim < 2 or "final_logits_bias" in name else parameter.shape[-1] ** -0.5
            centre = 1.0 if name.endswith("norm.weight") else 0.0
            parameter.copy_(centre + spread * torch.randn_like(parameter))
    return model


def texts(seed, rows, length):
    return np.random.default_rng(seed).integers(4, 50, (rows, length))


def agrees(model, loaded, *, rows=2, tolerance=1e-4):
    """The logits of whole and of padded sources, and of the padded row alone, are the reference's."""
    source, target = texts(1, rows, 40), texts(2, rows, 33)
    padded = np.ones_like(source)
    padded[1, 27:] = 0  # on the right, as the reference's tokenizers do
    for mask in (np.ones_like(source), padded):
        with torch.no_grad():
            expected = model(
                input_ids=torch.tensor(source),
                attention_mask=torch.tensor(mask),
                decoder_input_ids=torch.tensor(target),
            ).logits.numpy()
        found = np.array(loaded.model(mx.array(source), mx.array(target), mx.array(mask)))
        assert np.abs(found - expected).max() <= tolerance * np.ptp(expected)
    alone = np.array(loaded.model(mx.array(source[1:, :27]), mx.array(target[1:])))
    assert np.abs(alone - expected[1:]).max() <= tolerance * np.ptp(expected)


def edit(path, change):
    """Rewrite a JSON file in place."""
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize("case", CASES)
def test_logits(case, tmp_path):
    model = reference(case)
    model.save_pretrained(tmp_path)
    agrees(model, zoo.load(tmp_path))


@pytest.mark.parametrize("case", ["marian", "bart", "m2m", "t5"])
def test_logits_of_the_older_layout(case, tmp_path):
    """Every copy of a tied table, tables of sinusoids, the keys of transformers 4 and of the first releases."""
    model = reference(case)
    model.save_pretrained(tmp_path)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if case == "t5":
        tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(32, 4)
    if case == "m2m":
        tensors["model.encoder.embed_positions.weights"] = torch.ones(82, 32)
    assert "lm_head.weight" in tensors

    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})

    def older(config):
        config["torch_dtype"] = config.pop("dtype")
        for key in ("tie_word_embeddings", "dense_act_fn", "is_gated_act", "scale_decoder_outputs"):
            config.pop(key, None)
        if case == "t5":
            config |= {"n_positions": 512, "output_past": True}
        else:
            config |= {"num_hidden_layers": config["encoder_layers"], "classif_dropout": 0.0}
        if case in ("marian", "bart"):
            marian = case == "marian"
            config |= {"normalize_before": False, "add_final_layer_norm": False, "add_bias_logits": False}
            config |= {"normalize_embedding": not marian, "static_position_embeddings": marian}

    edit(tmp_path / "config.json", older)
    agrees(model, zoo.load(tmp_path))


def test_a_base_bart_has_names_without_a_prefix_and_no_logits_bias(tmp_path):
    model = reference("bart")
    model.final_logits_bias.zero_()
    model.save_pretrained(tmp_path)
    model.model.save_pretrained(tmp_path)
    agrees(model, zoo.load(tmp_path))


def test_a_t5_head_of_its_own_is_used(tmp_path):
    model = reference("t5-1.1")
    model.save_pretrained(tmp_path)

    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = torch.randn(VOCAB, 32)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    agrees(transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval(), zoo.load(tmp_path))
    # transformers 4 says the same in one key.
    edit(tmp_path / "config.json", lambda config: config.update(tie_word_embeddings=False))
    edit(tmp_path / "config.json", lambda config: config.pop("scale_decoder_outputs"))
    agrees(transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval(), zoo.load(tmp_path))


SEARCHES = [
    dict(num_beams=1),
    dict(num_beams=4),
    dict(num_beams=4, length_penalty=0.6),
    dict(num_beams=4, length_penalty=2.0, early_stopping=True),
    dict(num_beams=4, length_penalty=2.0, min_new_tokens=6),
    dict(num_beams=3, length_penalty=1.5, early_stopping="never"),
    dict(num_beams=5, length_penalty=-1.0),
]


def both(model, loaded, source, limit, **search):
    """The new tokens that transformers generates, and those that the zoo does."""
    with torch.no_grad():
        expected = model.generate(
            input_ids=torch.tensor(source),
            attention_mask=torch.ones_like(torch.tensor(source)),
            do_sample=False,
            max_new_tokens=limit,
            **search,
        )
    given = 1 if loaded.architecture.task == "translate" else source.shape[1]
    names = {"num_beams": "beams", "min_new_tokens": "min_tokens"}
    settings = {names.get(name, name): value for name, value in search.items()}
    found = zoo.generate(loaded, source[0].tolist(), max_tokens=limit, **settings)
    return expected[0, given:].tolist(), found.tokens


def banning(folder, *tokens):
    """Keep tokens out of a folder's generations. For M2M-100, padding has no position in the reference."""
    edit(folder / "generation_config.json", lambda values: values.update(bad_words_ids=[[t] for t in tokens]))


@pytest.mark.parametrize("case", GENERATING)
def test_beams_find_the_same_translation(case, tmp_path):
    beyond_greedy = 0
    for seed in (4, 6):  # of the small seeds those with which greedy search goes wrong, in every family
        model = reference(case, seed)
        model.save_pretrained(tmp_path)
        banning(tmp_path, 1, 3)
        model.generation_config.bad_words_ids = [[1], [3]]
        loaded = zoo.load(tmp_path)
        source = texts(seed, 1, 12)
        for search in SEARCHES:
            expected, found = both(model, loaded, source, 16, **search)
            assert found == expected, (seed, search)
            if search["num_beams"] == 1:
                greedy = found
            beyond_greedy += found != greedy
    assert beyond_greedy


CONSTRAINTS = [
    dict(forced_bos_token_id=7),
    dict(forced_eos_token_id=0),
    dict(forced_bos_token_id=7, forced_eos_token_id=0, min_length=5),
    dict(no_repeat_ngram_size=2, min_new_tokens=8),
    dict(no_repeat_ngram_size=1, min_new_tokens=8),
    dict(repetition_penalty=1.7),
    dict(suppress_tokens=[5, 6, 8, 20, 21], begin_suppress_tokens=[30, 31, 32, 33]),
    dict(forced_bos_token_id=7, begin_suppress_tokens=list(range(20, 50))),
]


@pytest.mark.parametrize("constraints", CONSTRAINTS, ids=str)
def test_a_folders_constraints_are_followed(constraints, tmp_path):
    model = reference("bart", 3)
    model.save_pretrained(tmp_path)
    changed = 0
    plain = zoo.load(tmp_path)
    edit(tmp_path / "generation_config.json", lambda values: values.update(constraints))
    loaded = zoo.load(tmp_path)
    for key, value in constraints.items():
        setattr(model.generation_config, key, value)
    for beams in (1, 4):
        for seed in range(3):
            expected, found = both(model, loaded, texts(seed, 1, 12), 12, num_beams=beams)
            assert found == expected
            without = zoo.generate(plain, texts(seed, 1, 12)[0].tolist(), max_tokens=12, beams=beams)
            changed += found != without.tokens
    assert changed


def test_words_of_one_token_and_more_are_kept_out(tmp_path):
    model = reference("bart", 3)
    model.save_pretrained(tmp_path)
    source = texts(0, 1, 12)
    plain = zoo.generate(zoo.load(tmp_path), source[0].tolist(), max_tokens=12, beams=4).tokens
    words = [[plain[0]], plain[1:3], plain[-4:-1], [0]]  # the end token by itself cannot be kept out
    edit(tmp_path / "generation_config.json", lambda values: values.update(bad_words_ids=words))
    model.generation_config.bad_words_ids = words
    for beams in (1, 4):
        expected, found = both(model, zoo.load(tmp_path), source, 12, num_beams=beams)
        assert found == expected
    assert found != plain and plain[0] not in found


def test_a_folders_search_is_the_default(tmp_path):
    model = reference("bart", 1)
    model.save_pretrained(tmp_path)
    search = dict(num_beams=4, length_penalty=2.0, early_stopping=True, max_length=9, min_length=5)
    edit(tmp_path / "generation_config.json", lambda values: values.update(search))
    for seed in range(3):
        source = texts(seed, 1, 12)
        expected = model.generate(torch.tensor(source), **search)[0, 1:].tolist()
        assert zoo.generate(zoo.load(tmp_path), source[0].tolist()).tokens == expected
    # Folders older than generation_config.json keep the same keys in config.json.
    (tmp_path / "generation_config.json").unlink()
    edit(tmp_path / "config.json", lambda values: values.update(search))
    assert zoo.generate(zoo.load(tmp_path), source[0].tolist()).tokens == expected


@pytest.mark.parametrize("family", ["GPT2", "Mistral"])
def test_beams_continue_a_text_too(family, tmp_path):
    numbers = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    numbers |= (
        dict(intermediate_size=48, num_key_value_heads=2, sliding_window=5) if family == "Mistral" else {}
    )
    config = getattr(transformers, f"{family}Config")(
        **numbers, bos_token_id=0, eos_token_id=0, pad_token_id=0
    )
    torch.manual_seed(0)
    name = "GPT2LMHeadModel" if family == "GPT2" else "MistralForCausalLM"
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((parameter.ndim == 1) + 0.3 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    beyond_greedy = 0
    for seed in range(3):
        for search in SEARCHES:
            expected, found = both(model, loaded, texts(seed, 1, 9), 14, **search)
            assert found == expected, (seed, search)
            if search["num_beams"] == 1:
                greedy = found
            beyond_greedy += found != greedy
    assert beyond_greedy
