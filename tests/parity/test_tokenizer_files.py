"""Folders without `tokenizer.json`: ids and text are those of transformers, mistral-common and tiktoken."""

import json
import unicodedata

import pytest
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from transformers import AutoTokenizer
from transformers.integrations.mistral.tokenizer import convert_tekken_tokenizer

from tests.helpers import ranked_tokenizers as files
from zoo.tokenizer import load_tokenizer
from zoo.tokenizer.pretokenizers import PRE_TOKENIZERS

TEXTS = 5000
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
QWEN = {
    "added_tokens_decoder": {
        str(400 + n): {"content": text, "special": special, "normalized": False}
        for n, (text, special) in enumerate(
            [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<tool_call>", False)]
        )
    },
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "unk_token": None,
}
COHERE = ("<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>")
MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "special": True, "normalized": False}
MERGES = {
    "gpt2": ("GPT2Tokenizer", "gpt-2", ["<|endoftext|>"], {}),
    "codegen": ("CodeGenTokenizer", "gpt-2", ["<|endoftext|>"], {"add_prefix_space": True}),
    "neox": ("GPTNeoXTokenizer", "olmo", ["<|endoftext|>", "<|padding|>"], {}),
    "roberta": ("RobertaTokenizer", "gpt-2", FAIRSEQ, {"mask_token": MASK}),
    "roberta spaced": ("RobertaTokenizerFast", "gpt-2", FAIRSEQ, {"add_prefix_space": True}),
    "bart": ("BartTokenizer", "gpt-2", FAIRSEQ, {}),
    "longformer": ("LongformerTokenizer", "gpt-2", FAIRSEQ, {}),
    "cohere": ("CohereTokenizer", "command-r", COHERE, {"add_bos_token": True}),
    "cohere, bare": ("CohereTokenizerFast", "command-r", COHERE, {}),
    "qwen2": ("Qwen2Tokenizer", "qwen2", [], QWEN),
    "qwen2, end": ("Qwen2TokenizerFast", "qwen2", [], {**QWEN, "add_eos_token": True}),
    "qwen3.5": ("Qwen3_5Tokenizer", "qwen35", [], QWEN),
}


def agree(tokenizer, reference, texts, **options):
    for text in texts:
        for special in (True, False):
            ids = reference.encode(text, add_special_tokens=special)
            assert tokenizer.encode(text, special) == ids, (text, special)
        for skip in (True, False):
            shown = reference.decode(ids, skip_special_tokens=skip)
            assert tokenizer.decode(ids, skip) == shown, (text, skip)


@pytest.mark.parametrize("name", MERGES)
def test_merges_are_read_as_the_class_that_the_folder_names(tmp_path, name):
    kind, rule, special, settings = MERGES[name]
    files.train(PRE_TOKENIZERS[rule].steps, special=special).model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind} | settings))
    # transformers' Qwen3.5 names no files.
    given = dict(vocab=f"{tmp_path}/vocab.json", merges=f"{tmp_path}/merges.txt") if name == "qwen3.5" else {}
    reference = AutoTokenizer.from_pretrained(tmp_path, **given)
    assert reference.init_kwargs.get("tokenizer_file") is None
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == len(reference)
    assert tokenizer.special_tokens.get("eos_token") == reference.eos_token
    added = [token.content for token in reference.added_tokens_decoder.values()]
    agree(tokenizer, reference, files.random_texts(TEXTS, added))


@pytest.mark.parametrize("model_type", ["qwen2", "cohere", "gpt_neox", "bart"])
def test_merges_without_a_named_class_are_read_as_that_of_the_model_type(tmp_path, model_type):
    rule = {"qwen2": "qwen2", "cohere": "command-r", "gpt_neox": "olmo", "bart": "gpt-2"}[model_type]
    special = {"cohere": COHERE, "bart": FAIRSEQ}.get(model_type, ("<|endoftext|>", "<|padding|>"))
    files.train(PRE_TOKENIZERS[rule].steps, special=special).model.save(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    tokenizer = load_tokenizer(tmp_path, {"model_type": model_type})
    agree(tokenizer, AutoTokenizer.from_pretrained(tmp_path), files.random_texts(500))


@pytest.mark.parametrize(
    "special", [("<unk>", "<s>", "</s>", "[INST]", "[/INST]"), None], ids=["listed", "older"]
)
def test_tekken_json_is_read_as_by_mistral_common(tmp_path, special):
    path = tmp_path / "tekken.json"
    files.write_tekken(
        path, files.ranks_of("tekken"), special, **({} if special else {"default_num_special_tokens": 25})
    )
    reference, tokenizer = Tekkenizer.from_file(path), load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == reference.n_words
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (reference.bos_id, {reference.eos_id})
    for text in files.random_texts(TEXTS):
        for start in (True, False):
            assert tokenizer.encode(text, start) == reference.encode(text, bos=start, eos=False), text
        assert tokenizer.decode(tokenizer.encode(text)) == reference.decode(
            reference.encode(text, True, False)
        )


def test_special_tokens_of_tekken_json_are_found_in_texts_as_by_transformers(tmp_path):
    files.write_tekken(tmp_path / "tekken.json", files.ranks_of("tekken"))
    reference, tokenizer = convert_tekken_tokenizer(str(tmp_path / "tekken.json")), load_tokenizer(tmp_path)
    for text in files.random_texts(TEXTS, ["<s>", "</s>", "[INST]", " [/INST]", "<SPECIAL_9>"]):
        ids = reference.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text, False) == ids, text
        for skip in (True, False):
            assert tokenizer.decode(ids, skip) == reference.decode(ids, skip_special_tokens=skip), text


KIMI = {"[BOS]": True, "[EOS]": True, "<|im_end|>": True, "<|tool_call_begin|>": False}


@pytest.mark.parametrize("name", ["qwen", "kimi"])
def test_tiktoken_files_are_read_as_by_tiktoken(tmp_path, name):
    ranks = files.ranks_of(name)
    files.write_tiktoken(tmp_path / {"qwen": "qwen.tiktoken", "kimi": "tiktoken.model"}[name], ranks)
    if name == "qwen":
        texts = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205))]
        settings = {"tokenizer_class": "QWenTokenizer"}
    else:
        first = len(ranks)
        own = {first + 3 * n: text for n, text in enumerate(KIMI)}
        texts = [own.get(id, f"<|reserved_token_{id}|>") for id in range(first, first + 256)]
        decoder = {str(id): {"content": text, "special": KIMI[text]} for id, text in own.items()}
        settings = dict(
            tokenizer_class="TikTokenTokenizer",
            added_tokens_decoder=decoder,
            bos_token="[BOS]",
            eos_token="[EOS]",
        )
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer(tmp_path)
    special = {text: len(ranks) + n for n, text in enumerate(texts)}
    reference = tiktoken.Encoding(
        name,
        pat_str=REFERENCE_PATTERNS[name],
        mergeable_ranks={token: rank for rank, token in enumerate(ranks)},
        special_tokens=special,
    )
    assert tokenizer.vocab_size == reference.n_vocab
    for text in files.random_texts(TEXTS, texts[:6]):
        if name == "qwen":
            text = unicodedata.normalize("NFC", text)
        ids = reference.encode(text, allowed_special="all")
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids, skip_special_tokens=False) == reference.decode(ids), text


# As the code beside the published models has them.
REFERENCE_PATTERNS = {
    "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "kimi": "|".join(
        [
            r"[\p{Han}]+",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
}
