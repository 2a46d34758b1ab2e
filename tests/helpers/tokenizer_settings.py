"""Random pairs of `tokenizer.json` and `tokenizer_config.json` that disagree, for each tokenizer class."""

import json
import random

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "Hello World the cat sat on THE mat",
    "naïve Café über Éa",
    "你好世界 hello 你好",
    "a b c 12 345 it's don't",
] * 3
TEXTS = [
    "Hello World  12",
    " the  Café 你好世界é",
    "a <x> b<x>c  <y>  d",
    "Naïve<Q>the <s> cat <q></s> \n<unk> mat",
    "the<|endoftext|>  The [CLS] cat [MASK]the<mask> E",
    "the <f> cat<g> the <h>  E",
    "the<end>\u00a0<bos>\tyou<eos>xthe x the",
]
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<mask>", "<|endoftext|>", "<|padding|>", "<bos>", "<eos>"]
SPECIAL += ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]", "<end>"]
COHERE = ["<UNK>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<PAD>", "<CLS>", "<SEP>", "<MASK_TOKEN>"]
SPECIAL_WITH_FLAGS = ["<f>", "<g>", "<h>"]  # each named once, so that its flags do not contradict one another
LANGUAGES = ["eng_Latn", "fra_Latn"]
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPACE = "\u2581"


def _trained(kind):
    """The vocabulary of a model of this kind, as JSON, with the special tokens first."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = dict(show_progress=False, special_tokens=SPECIAL + COHERE + SPECIAL_WITH_FLAGS + LANGUAGES)
    if kind == "words":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=170, **options)
    elif kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, **options)
    elif kind == "word ends":
        tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.BpeTrainer(vocab_size=150, end_of_word_suffix="</w>", **options)
    elif kind == "pieces":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
        options["special_tokens"] = [*options["special_tokens"], *[f"<0x{byte:02X}>" for byte in range(256)]]
        trainer = trainers.BpeTrainer(vocab_size=420, **options)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
        first = ["<pad>", "</s>", "<unk>"]
        options["special_tokens"] = first + [
            text for text in SPECIAL + COHERE + SPECIAL_WITH_FLAGS + LANGUAGES if text not in first
        ]
        trainer = trainers.UnigramTrainer(vocab_size=120, unk_token="<unk>", **options)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model | ({"unk_id": 2} if kind == "unigram" else {})


_MODELS = {}


def model_of(kind):
    if kind not in _MODELS:
        _MODELS[kind] = _trained(kind)
    return _MODELS[kind]


def _stack(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def _byte_level(draw, **more):
    return (
        dict(type="ByteLevel", add_prefix_space=draw.flag(), trim_offsets=draw.flag(), use_regex=True) | more
    )


def _bert(draw):
    normalizer = dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=draw.flag())
    normalizer |= dict(strip_accents=draw.choice([None, True, False]), lowercase=draw.flag())
    return dict(
        normalizer=normalizer,
        pre_tokenizer=dict(type="BertPreTokenizer"),
        decoder=dict(type="WordPiece", prefix="##", cleanup=True),
    )


def _gpt2(draw):
    return dict(normalizer=None, pre_tokenizer=_byte_level(draw), decoder=_byte_level(draw))


def _neox(draw):
    return _gpt2(draw) | dict(normalizer=dict(type="NFC"))


def _qwen(draw):
    split = dict(type="Split", pattern={"Regex": QWEN}, behavior="Isolated", invert=False)
    return _neox(draw) | dict(
        pre_tokenizer=_stack("pretokenizers", split, _byte_level(draw, use_regex=False))
    )


def _cohere(draw):
    digits = dict(type="Digits", individual_digits=True)
    return _neox(draw) | dict(pre_tokenizer=_stack("pretokenizers", digits, _byte_level(draw)))


def _word_ends(draw):
    normalizer = dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True)
    return dict(
        normalizer=normalizer | dict(strip_accents=None, lowercase=True),
        pre_tokenizer=dict(type="BertPreTokenizer"),
        decoder=dict(type="BPEDecoder", suffix="</w>"),
    )


def _spaces(strip):
    replace = dict(type="Replace", pattern={"String": SPACE}, content=" ")
    more = [dict(type="Strip", content=" ", start=1, stop=0)] if strip else []
    return _stack("decoders", replace, dict(type="ByteFallback"), dict(type="Fuse"), *more)


def _metaspace(scheme, split):
    return dict(type="Metaspace", replacement=SPACE, prepend_scheme=scheme, split=split)


def _llama(draw):
    replace = dict(type="Replace", pattern={"String": " "}, content=SPACE)
    older = _stack("normalizers", *([dict(type="Prepend", prepend=SPACE)] if draw.flag() else []), replace)
    scheme = draw.choice(["always", "first", "never"])
    return dict(
        normalizer=(normalizer := older if draw.flag() else None),
        pre_tokenizer=None if normalizer else _metaspace(scheme, False),
        decoder=_spaces(draw.flag()),
    )


def _gemma(draw):
    return dict(
        normalizer=dict(type="Replace", pattern={"String": " "}, content=SPACE),
        pre_tokenizer=dict(
            type="Split", pattern={"String": " "}, behavior="MergedWithPrevious", invert=False
        ),
        decoder=_spaces(False),
    )


def _t5(draw):
    metaspace = _metaspace("always", True)
    return dict(
        normalizer=None,
        pre_tokenizer=_stack("pretokenizers", dict(type="WhitespaceSplit"), metaspace),
        decoder=metaspace,
    )


def _nllb(draw):
    metaspace = _metaspace("always", True)
    return dict(normalizer=None, pre_tokenizer=metaspace, decoder=metaspace)


_LLAMA_MODEL = dict(unk_token=None, fuse_unk=True, byte_fallback=True)

# By name: the classes that a folder may name, the kind of model, its options, and the parts.
KINDS = {
    "BERT": (("BertTokenizer", "DistilBertTokenizerFast"), "words", {}, _bert),
    "GPT-2": (("GPT2Tokenizer", "CodeGenTokenizer"), "bytes", {}, _gpt2),
    "GPT-NeoX": (("GPTNeoXTokenizer",), "bytes", {}, _neox),
    "RoBERTa": (("RobertaTokenizer", "BartTokenizer"), "bytes", {}, _gpt2),
    "Qwen2": (("Qwen2Tokenizer",), "bytes", {}, _qwen),
    "Cohere": (("CohereTokenizerFast",), "bytes", {}, _cohere),
    "GPT-1": (("OpenAIGPTTokenizer",), "word ends", {}, _word_ends),
    "LLaMA": (("LlamaTokenizer", "LlamaTokenizerFast"), "pieces", _LLAMA_MODEL, _llama),
    "Gemma": (("GemmaTokenizer",), "pieces", _LLAMA_MODEL | {"unk_token": "<unk>"}, _gemma),
    "T5": (("T5Tokenizer",), "unigram", {}, _t5),
    "NLLB": (
        ("NllbTokenizer",),
        "pieces",
        dict(unk_token="<unk>", fuse_unk=True, byte_fallback=False),
        _nllb,
    ),
    "as written, bytes": (("PreTrainedTokenizerFast", "LlamaTokenizerFast"), "bytes", {}, _qwen),
    "as written, words": (("TokenizersBackend", "SomeTokenizer"), "words", {}, _bert),
}


class Draw(random.Random):
    """Random settings of a tokenizer."""

    def flag(self, share=0.5):
        return self.random() < share

    def token(self, content):
        return {"content": content, **{name: self.flag(0.3) for name in FLAGS}}

    def json(self, name):
        """The object of a tokenizer.json, which knows some of the special tokens as added ones."""
        _, kind, options, parts = KINDS[name]
        model = model_of(kind) | options
        vocab = model["vocab"]
        ids = {text: id for id, (text, _) in enumerate(vocab)} if kind == "unigram" else vocab
        # Two tokens that a normalizer makes one, such as <unk> and <UNK>, are matched in no certain order.
        self.special = SPECIAL + (COHERE if kind == "bytes" else [])
        added = [
            text
            for text in [*self.special, *SPECIAL_WITH_FLAGS, *LANGUAGES]
            if self.flag(0.4) or text in (*LANGUAGES, "<mask>")
        ]
        tokens = [self.token(text) | {"id": ids[text]} for text in added]
        tokens += [self.token(text) | {"id": len(ids) + place} for place, text in enumerate(["<x>", "<Q>"])]
        first, last = (self.choice([None, None, "<s>", "</s>", "<end>"]) for _ in range(2))
        around = [dict(SpecialToken=dict(id=text, type_id=0)) if text else None for text in (first, last)]
        single = [part for part in (around[0], dict(Sequence=dict(id="A", type_id=0)), around[1]) if part]
        special = {text: dict(id=text, ids=[ids[text]], tokens=[text]) for text in {first, last} - {None}}
        template = dict(type="TemplateProcessing", single=single, pair=single, special_tokens=special)
        return dict(
            version="1.0",
            truncation=None,
            padding=None,
            added_tokens=sorted(tokens, key=lambda token: token["id"]),
            **parts(self),
            post_processor=template if self.flag(0.7) else None,
            model=model,
        )

    def files(self, name):
        """The files of a folder by name, as objects."""
        tokenizer = self.json(name)
        config = {"tokenizer_class": self.choice(KINDS[name][0])}
        for key in ("do_lower_case", "tokenize_chinese_chars", "add_prefix_space", "legacy", "strip_accents"):
            if self.flag():
                config[key] = self.flag()
        for key in ("add_bos_token", "add_eos_token", "clean_up_tokenization_spaces", "split_special_tokens"):
            if self.flag(0.3):
                config[key] = self.flag()
        if name == "NLLB":
            config["src_lang"] = self.choice(LANGUAGES)
        flagged = ["<f>", "<g>"]
        # NLLB's class gives the mask token flags of its own, which its files' added tokens have.
        names = NAMES[:-1] if name == "NLLB" else NAMES
        for key in self.sample(names, len(names)):
            if self.flag(0.25):
                config[key] = self.choice(self.special)
                if flagged and self.flag(0.3):
                    config[key] = self.token(flagged.pop()) | {"__type": "AddedToken"}
        if self.flag():
            key = self.choice(["additional_special_tokens", "extra_special_tokens"])
            config[key] = self.sample(self.special, 2)
        if self.flag(0.2):
            config["image_token"] = "<end>"
        files = {"tokenizer.json": tokenizer, "tokenizer_config.json": config}
        if self.flag(0.7):
            added = {str(token["id"]): self.token(token["content"]) for token in tokenizer["added_tokens"]}
            following = max(map(int, added)) + 1
            added[str(following)] = self.token("<y>")
            if self.flag():
                for token in added.values():
                    for flag in self.sample(FLAGS, self.randrange(4)):
                        token.pop(flag)
            config["added_tokens_decoder"] = added
        elif self.flag():
            files["added_tokens.json"] = {"<y>": tokenizer["added_tokens"][-1]["id"] + 1}
            flags = {"lstrip": self.flag(), "rstrip": self.flag()}
            first, second = self.sample(names, 2)
            files["special_tokens_map.json"] = {first: "<s>", second: {"content": "<h>", **flags}}
        return files


def write(folder, files):
    """Write the files of a folder, and remove those of the one before."""
    for path in folder.iterdir():
        path.unlink()
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
