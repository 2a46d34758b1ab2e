"""Random `tokenizer.json` files: stacks of normalizers, pre-tokenizers, post-processors and decoders, many absurd."""

import random

SPACE = "\u2581"
PIECES = ["", " ", "a", "ab", SPACE, "</w>", "##", "b", "é", "你", "x", "<0xE4>", "n't", ".", "  ", "Ġ"]
EXPRESSIONS = ["[ab]+", r"\s+", "", "a*", ".", "^", "$", r"\b", "(?=a)", r" ?[^\s]+", r"\p{L}+"]
WORDS = [
    "<unk>",
    "<s>",
    "</s>",
    SPACE,
    SPACE * 2,
    "a",
    SPACE + "a",
    "b",
    "ab",
    "abb",
    "你",
    " ",
    "  ",
    "##b",
    "##",
]
WORDS += [
    ".",
    "'",
    "n't",
    " .",
    "a</w>",
    "b</w>",
    "</w>",
    "x</w>y",
    "Ġthe",
    "Ġ",
    "ä½",
    "ł",
    "é",
    "<0x+A>",
    "_a",
    "_",
]
BYTES = [f"<0x{value:02X}>" for value in range(256)]
WAYS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


class Draw(random.Random):
    """Random parts of a tokenizer."""

    def flag(self, share=0.5):
        return self.random() < share

    def piece(self):
        return self.choice(PIECES)

    def pattern(self):
        return {"String": self.piece()} if self.flag() else {"Regex": self.choice(EXPRESSIONS)}

    def stack(self, key, part, depth, most):
        inner = [part(depth + 1) for _ in range(self.randrange(most))] if depth < 2 else []
        return {"type": "Sequence", key: inner}

    def normalizer(self, depth=0):
        plain = ["StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "ByteLevel"]
        kind = self.choice([*plain, "BertNormalizer", "Strip", "Replace", "Prepend", "Sequence"])
        match kind:
            case "Sequence":
                return self.stack("normalizers", self.normalizer, depth, 3)
            case "BertNormalizer":
                names = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
                more = {name: self.flag() for name in names}
            case "Strip":
                more = dict(strip_left=self.flag(), strip_right=self.flag())
            case "Replace":
                more = dict(pattern=self.pattern(), content=self.piece())
            case "Prepend":
                more = dict(prepend=self.piece())
            case _:
                more = {}
        return {"type": kind, **more}

    def pre_tokenizer(self, depth=0):
        plain = ["BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts"]
        some = [
            "ByteLevel",
            "CharDelimiterSplit",
            "Metaspace",
            "Split",
            "Punctuation",
            "Digits",
            "FixedLength",
        ]
        kind = self.choice([*plain, *some, "Sequence"])
        match kind:
            case "Sequence":
                return self.stack("pretokenizers", self.pre_tokenizer, depth, 3)
            case "ByteLevel":
                more = {name: self.flag() for name in ("add_prefix_space", "trim_offsets", "use_regex")}
            case "CharDelimiterSplit":
                more = dict(delimiter=self.choice([" ", "a", SPACE]))
            case "Metaspace":
                more = self.metaspace()
            case "Split":
                more = dict(pattern=self.pattern(), behavior=self.choice(WAYS), invert=self.flag())
            case "Punctuation":
                more = dict(behavior=self.choice(WAYS))
            case "Digits":
                more = dict(individual_digits=self.flag())
            case "FixedLength":
                more = dict(length=self.choice([0, 1, 3]))
            case _:
                more = {}
        return {"type": kind, **more}

    def metaspace(self):
        scheme = self.choice(["always", "first", "never"])
        return dict(replacement=self.choice([SPACE, "_", "a"]), prepend_scheme=scheme, split=self.flag())

    def decoder(self, depth=0):
        kinds = [
            "BPEDecoder",
            "ByteLevel",
            "WordPiece",
            "Metaspace",
            "CTC",
            "Replace",
            "Fuse",
            "Strip",
            "ByteFallback",
        ]
        kind = self.choice([*kinds, *["Sequence"] * 6, "BPEDecoder", "Strip"])
        match kind:
            case "Sequence":
                return self.stack("decoders", self.decoder, depth, 6)
            case "BPEDecoder":
                more = dict(suffix=self.choice(["</w>", "a", " ", "", SPACE]))
            case "ByteLevel":
                more = dict(add_prefix_space=True, trim_offsets=True, use_regex=True)
            case "WordPiece":
                more = dict(prefix=self.piece(), cleanup=self.flag())
            case "Metaspace":
                more = self.metaspace()
            case "CTC":
                more = dict(pad_token=self.piece(), word_delimiter_token=self.piece(), cleanup=self.flag())
            case "Replace":
                more = dict(pattern=self.pattern(), content=self.piece())
            case "Strip":
                ends = dict(start=self.choice([0, 0, 1, 2, 5]), stop=self.choice([0, 0, 0, 1, 3]))
                more = dict(content=self.choice([" ", "a", SPACE, "b"]), **ends)
            case _:
                more = {}
        return {"type": kind, **more}

    def post_processor(self, vocabulary):
        def token():
            text = self.choice(list(vocabulary))
            return [text, vocabulary[text] if self.flag(0.8) else self.randrange(600)]

        kind = self.choice(["TemplateProcessing", "ByteLevel", "RobertaProcessing", "BertProcessing"])
        match kind:
            case "TemplateProcessing":
                text, id = token()
                named = "missing" if self.flag(0.1) else text
                single = [{"SpecialToken": {"id": named, "type_id": 0}}]
                single.append({"Sequence": {"id": self.choice("AAB"), "type_id": 0}})
                special = {text: {"id": text, "ids": [id], "tokens": [text] * self.choice([1, 1, 2])}}
                more = dict(single=single, pair=[], special_tokens=special)
            case "ByteLevel":
                more = dict(add_prefix_space=self.flag(), trim_offsets=self.flag(), use_regex=True)
            case "RobertaProcessing":
                more = dict(sep=token(), cls=token(), trim_offsets=self.flag(), add_prefix_space=self.flag())
            case _:
                more = dict(sep=token(), cls=token())
        return {"type": kind, **more}

    def model(self, vocabulary):
        kind = self.choice(["BPE", "BPE", "WordPiece", "WordLevel", "Unigram"])
        unknown = self.choice(["<unk>", "<unk>", "[UNK]"])
        if kind == "Unigram":
            rows = [[word, self.choice([0.0, -1.0, -10.0, 1e30])] for word in vocabulary]
            return dict(
                type=kind, vocab=rows, unk_id=self.choice([None, 0, 1, 10**6]), byte_fallback=self.flag()
            )
        if kind == "WordPiece":
            more = dict(continuing_subword_prefix="##", max_input_chars_per_word=self.choice([0, 2, 100]))
        elif kind == "WordLevel":
            more = {}
        else:
            pairs = [["a", "b"]] if {"a", "b", "ab"} <= vocabulary.keys() else []
            more = dict(merges=pairs, dropout=self.choice([None, None, 0.0, 1.0]), fuse_unk=self.flag())
            more |= dict(continuing_subword_prefix=self.choice([None, "##", ""]), byte_fallback=self.flag())
            more |= dict(end_of_word_suffix=self.choice([None, "</w>"]), ignore_merges=self.flag(0.3))
        return dict(type=kind, vocab=vocabulary, unk_token=unknown, **more)

    def tokenizer(self):
        """The object of a tokenizer.json."""
        words = [word for word in WORDS if self.flag(0.85)] or ["a"]
        words += self.choice([BYTES, BYTES[:200], BYTES[200:], [], []])
        self.shuffle(words)
        vocabulary = {word: id for id, word in enumerate(words)}
        names = ("single_word", "lstrip", "rstrip", "normalized", "special")
        contents = self.sample(["foo", SPACE + "bar", "é你", "<s>x", "zz"], self.randrange(4))
        added = [
            dict(id=len(vocabulary) + place, content=text, **{name: self.flag(0.3) for name in names})
            for place, text in enumerate(contents)
        ]
        return dict(
            version="1.0",
            truncation=None,
            padding=None,
            added_tokens=added,
            normalizer=self.normalizer() if self.flag() else None,
            pre_tokenizer=self.pre_tokenizer() if self.flag() else None,
            post_processor=self.post_processor(vocabulary) if self.flag(0.3) else None,
            decoder=self.decoder() if self.flag(0.95) else None,
            model=self.model(vocabulary),
        )
