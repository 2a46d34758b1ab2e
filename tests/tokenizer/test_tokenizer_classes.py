"""What a tokenizer class takes from `tokenizer_config.json` beside a `tokenizer.json`, and what is named as not read."""

import json
import warnings

import pytest

from tests.helpers import tokenizer_kinds
from tests.helpers.tokenizer_settings import Draw, write
from zoo.errors import TokenizerError
from zoo.tokenizer import load_tokenizer


@pytest.fixture
def load(tmp_path):
    """A function from a kind, changes of its tokenizer.json, and settings, to the tokenizer of such a folder."""

    def loaded(kind, changes, config, **settings):
        file = Draw(kind).json(kind) | {"post_processor": None, "added_tokens": []} | changes
        write(tmp_path, {"tokenizer.json": file, "tokenizer_config.json": settings})
        return load_tokenizer(tmp_path, config)

    return loaded


def words(tokenizer, text, special_tokens=False):
    return [tokenizer.token(id) for id in tokenizer.encode(text, special_tokens)]


def bert_parts(**flags):
    normalizer = dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None)
    return {"normalizer": normalizer | {"lowercase": True} | flags}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["[CLS]", "the", "cat", "[SEP]"]),
        ({"do_lower_case": True}, ["[CLS]", "the", "cat", "[SEP]"]),
        ({"do_lower_case": False}, ["[CLS]", "THE", "cat", "[SEP]"]),
        ({"cls_token": "<s>", "sep_token": "</s>"}, ["<s>", "the", "cat", "</s>"]),
    ],
)
@pytest.mark.parametrize("lowercase", [True, False])
def test_bert_takes_capitals_and_ends_from_the_settings(load, settings, expected, lowercase):
    loaded = load("BERT", bert_parts(lowercase=lowercase), {"model_type": "bert"}, **settings)
    assert words(loaded, "THE cat", special_tokens=True) == expected


def test_bert_takes_chinese_and_accents_from_the_settings(load):
    settings = {
        "tokenizer_class": "BertTokenizerFast",
        "tokenize_chinese_chars": False,
        "strip_accents": False,
    }
    loaded = load("BERT", bert_parts(), {}, **settings)
    assert words(loaded, "naïve 你好世界") == ["naïve", "你好世界"]
    loaded = load("BERT", bert_parts(handle_chinese_chars=False), {}, tokenizer_class="BertTokenizer")
    assert words(loaded, "naïve 你好世界") != ["naïve", "你好世界"]


@pytest.mark.parametrize("kind", ["GPT-2", "RoBERTa", "GPT-NeoX", "Qwen2", "Cohere"])
def test_the_space_before_a_text_is_that_of_the_settings(load, kind):
    name = {"GPT-2": "GPT2Tokenizer", "RoBERTa": "RobertaTokenizer", "GPT-NeoX": "GPTNeoXTokenizer"}.get(
        kind, f"{kind}Tokenizer"
    )
    for spaced in (True, False):
        loaded = load(kind, {}, {}, tokenizer_class=name, add_prefix_space=spaced)
        assert words(loaded, "the") == (["Ġthe"] if spaced else ["the"])
    assert words(load(kind, {}, {}, tokenizer_class=name), "the") == ["the"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["▁the", "<s>", "the"]),
        ({"legacy": False}, ["▁the", "<s>", "the"]),
        ({"legacy": True}, ["▁the", "<s>", "▁the"]),
        ({"add_prefix_space": False}, ["the", "<s>", "the"]),
        ({"legacy": True, "add_prefix_space": False}, ["the", "<s>", "the"]),
    ],
)
def test_llama_takes_its_spaces_from_the_settings(load, settings, expected):
    for seed in range(4):  # spaces by a normalizer, and by the pre-tokenizer
        file = {
            key: value
            for key, value in Draw(seed).json("LLaMA").items()
            if key in ("normalizer", "pre_tokenizer")
        }
        loaded = load("LLaMA", file, {"model_type": "llama"}, tokenizer_class="LlamaTokenizer", **settings)
        assert words(loaded, "the<s>the") == expected
        assert loaded.decode(loaded.encode("the")) == "the"


def test_a_file_of_another_kind_than_its_class_stays_as_it_is(load):
    spaced = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    settings = {"tokenizer_class": "LlamaTokenizerFast", "legacy": True}
    assert words(load("GPT-2", {"pre_tokenizer": spaced}, {}, **settings), "the") == ["Ġthe"]
    # Folders of some families name a class whose rules are not theirs.
    settings["tokenizer_class"] = "GPT2Tokenizer"
    assert words(load("GPT-2", {"pre_tokenizer": spaced}, {"model_type": "olmo2"}, **settings), "the") == [
        "Ġthe"
    ]


def entry(content, **flags):
    return {
        "content": content,
        "special": True,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
    } | flags


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "PreTrainedTokenizerFast"])
def test_flags_of_added_tokens_are_those_of_the_settings(load, name):
    plain = load("GPT-2", {}, {}, tokenizer_class=name)
    end, size = plain.id("<end>"), plain.vocab_size
    changes = {"added_tokens": [{"id": end, "single_word": False, **entry("<end>", lstrip=True)}]}
    settings = {"tokenizer_class": name, "added_tokens_decoder": {str(end): entry("<end>", rstrip=True)}}
    assert words(load("GPT-2", changes, {}, **settings), "a <end> the") == ["a", "Ġ", "<end>", "the"]
    assert words(load("GPT-2", changes, {}, tokenizer_class=name), "a <end> the") == ["a", "<end>", "Ġthe"]
    settings["added_tokens_decoder"][str(size)] = {"content": "<y>", "single_word": True}
    loaded = load("GPT-2", changes, {}, **settings)
    assert words(loaded, "<y>") == ["<y>"] and words(loaded, "a<y>")[-1] == ">"


def test_a_token_that_the_settings_call_special_is_left_out_of_answers(load):
    plain = load("GPT-2", {}, {}, tokenizer_class="PreTrainedTokenizerFast")
    end = plain.id("<end>")
    changes = {"added_tokens": [{"id": end, "single_word": False, **entry("<end>", special=False)}]}
    for settings in ({"added_tokens_decoder": {str(end): entry("<end>")}}, {"eos_token": "<end>"}):
        loaded = load("GPT-2", changes, {}, tokenizer_class="PreTrainedTokenizerFast", **settings)
        assert loaded.decode(loaded.encode("a<end>")) == "a"
    changes["added_tokens"][0]["special"] = True
    ordinary = {"added_tokens_decoder": {str(end): entry("<end>", special=False)}}
    loaded = load("GPT-2", changes, {}, tokenizer_class="GPT2Tokenizer", **ordinary)
    assert loaded.decode(loaded.encode("a<end>")) == "a<end>"


def test_a_class_has_special_tokens_that_the_settings_leave_out(load):
    loaded = load("LLaMA", {}, {}, tokenizer_class="LlamaTokenizer")
    assert (loaded.bos_id, loaded.eos_ids) == (loaded.id("<s>"), {loaded.id("</s>")})
    loaded = load("LLaMA", {}, {}, tokenizer_class="LlamaTokenizer", eos_token=None, bos_token="<end>")
    assert (loaded.bos_id, loaded.eos_ids) == (loaded.id("<end>"), frozenset())


def test_special_tokens_in_a_text_are_split_where_the_settings_say_so(load):
    loaded = load(
        "GPT-2", {}, {}, tokenizer_class="GPT2Tokenizer", eos_token="<end>", split_special_tokens=True
    )
    assert loaded.id("<end>") not in loaded.encode("a<end>")


@pytest.mark.parametrize(
    ("kind", "settings", "named"),
    [
        ("GPT-2", {"add_prefix_space": None}, r"add_prefix_space (true|false) changes nothing.*ByteLevel"),
        ("BERT", {"do_lower_case": None}, r"do_lower_case (true|false) changes nothing.*BertNormalizer"),
        ("GPT-2", {"add_bos_token": True, "bos_token": "<s>"}, r"add_bos_token true changes nothing"),
    ],
)
def test_a_setting_that_contradicts_the_file_and_is_not_read_is_named(load, kind, settings, named):
    changes = []
    for value in (True, False):
        own = {key: value if wanted is None else wanted for key, wanted in settings.items()}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            load(kind, {}, {}, tokenizer_class="PreTrainedTokenizerFast", **own)
        changes += [str(warning.message) for warning in caught]
    assert len(set(changes)) == 1
    with pytest.raises(UserWarning, match=rf"tokenizer_config\.json: {named}"):
        raise UserWarning(changes[0])


def test_an_added_token_with_another_id_than_the_file_gives_it_is_refused(load):
    settings = {"added_tokens_decoder": {"7": entry("<end>")}}
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json: added token '<end>' has id 7"):
        load("GPT-2", {}, {}, tokenizer_class="GPT2Tokenizer", **settings)


def test_the_class_may_stand_in_the_model_s_config(load):
    loaded = load("GPT-2", {}, {"tokenizer_class": "GPT2Tokenizer"}, add_prefix_space=True)
    assert words(loaded, "the") == ["Ġthe"]


def translation_folder(folder, make, **settings):
    make(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return tokenizer_kinds.load_tokenizer(folder)


@pytest.mark.parametrize("make", [tokenizer_kinds.marian_files, tokenizer_kinds.m2m_files])
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"split_special_tokens": True}, "split_special_tokens"),
        ({"added_tokens_decoder": {"7000": entry("<new>")}}, r"added_tokens_decoder\[7000\] '<new>'"),
        ({"added_tokens_decoder": {"0": entry("</s>", lstrip=True)}}, r"added_tokens_decoder\[0\] '</s>'"),
    ],
)
def test_a_tokenizer_with_a_table_of_ids_refuses_what_it_does_not_follow(tmp_path, make, settings, named):
    with pytest.raises(TokenizerError, match=rf"tokenizer_config\.json: {named}"):
        translation_folder(tmp_path, make, **settings)


def test_byt5_follows_the_flags_of_its_tokens(tmp_path):
    nothing = dict(make=lambda folder: None, tokenizer_class="ByT5Tokenizer")
    assert translation_folder(tmp_path, **nothing).encode("a </s> b", False) == [100, 1, 101]
    end = {"added_tokens_decoder": {"1": entry("</s>"), "259": entry("<extra_id_0>", lstrip=True)}}
    loaded = translation_folder(tmp_path, **nothing, **end)
    assert loaded.encode("a </s> b <extra_id_0>", False) == [100, 35, 1, 35, 101, 259]
    split = translation_folder(tmp_path, **nothing, split_special_tokens=True)
    assert 1 not in split.encode("</s>", False)
