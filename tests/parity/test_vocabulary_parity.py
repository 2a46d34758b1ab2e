"""The trained tokenizer's folder, read by transformers."""

from itertools import islice

import transformers

from zoo.training.vocabulary import save_tokenizer, train_tokenizer
from zoo_corpora.atlas import documents

SAMPLES = [
    "The capital city of China is Beijing.",
    "中国的首都是北京。",
    "mixed 中文 and English，123 + .cn",
    " two  spaces, a tab\tand\n\na line ",
    "emoji 🙂 flags 🇨🇳, accents é ñ, Русский, العربية, 한국어",
]


def test_transformers_reads_the_folder_the_same_way(tmp_path):
    tokenizer = train_tokenizer(islice(documents("train", 0), 3000))
    save_tokenizer(tokenizer, tmp_path)
    read = transformers.AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in SAMPLES:
        assert read.encode(text) == tokenizer.encode(text).ids
        assert read.decode(read.encode(text)) == text
    named = ("eos", "pad", "mask", "cls", "sep")
    assert [getattr(read, f"{name}_token_id") for name in named] == [0, 1, 2, 3, 4]
    assert read.bos_token_id == 0
