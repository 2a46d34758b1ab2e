"""A person's own text: what is read, what is held out, and what cannot be used."""

import json
from itertools import islice

import pytest

import zoo
from zoo.errors import ZooError
from zoo.training.corpora import LONGEST, corpus, pieces, read_documents
from zoo.training.record import TrainingSettings
from zoo.training.run import train_folder


def written(path, *lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return path


def test_every_twentieth_line_of_json_lines_is_held_out(tmp_path):
    path = written(tmp_path / "a.jsonl", *({"text": f"document {i}", "other": 1} for i in range(60)))
    found = read_documents(str(path), False)
    assert found.held_out == ("document 19", "document 39", "document 59") and len(found.trained) == 57
    assert not set(found.held_out) & set(found.trained)


def test_a_folder_is_read_in_order_without_what_is_no_text(tmp_path):
    written(tmp_path / "b.md", "second")
    written(tmp_path / "a.txt", "first")
    written(tmp_path / "deep" / "c.jsonl", {"text": "third"}, "", {"text": "fourth"})
    (tmp_path / ".hidden.txt").write_text("never")
    (tmp_path / "image.png").write_bytes(b"\xff\xfe")
    found = read_documents(str(tmp_path), False)
    whole = [head + tail for head, tail in zip(found.trained, found.held_out, strict=True)]
    assert whole == ["first", "second", "third", "fourth"]
    assert read_documents(str(tmp_path / "*.md"), False).trained[0] == "secon"


def test_marks_and_line_ends_of_other_systems_are_no_part_of_the_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree")
    found = read_documents(str(tmp_path / "a.txt"), False)
    assert found.trained[0] + found.held_out[0] == "one\ntwo\nthree"


def test_rounds_are_the_seeds_and_differ(tmp_path):
    path = written(tmp_path / "a.jsonl", *({"text": f"{i}"} for i in range(40)))
    first, second = islice(read_documents(str(path), False).rounds(3), 2)
    assert [first, second] == list(islice(read_documents(str(path), False).rounds(3), 2))
    assert sorted(first) == sorted(second) and first != second


def test_a_tokenizer_is_trained_on_each_document_once(tmp_path):
    path = written(tmp_path / "a.jsonl", *({"text": f"{i}"} for i in range(40)))
    texts = corpus(str(path), "generate")
    assert sorted(texts.sample()) == sorted(texts.user_text.trained)


def test_a_long_document_is_parted_at_a_line(tmp_path):
    line = "x" * 99 + "\n"
    found = read_documents(str(written(tmp_path / "a.txt", line * (LONGEST // 80))), False)
    parts = [head + tail for head, tail in zip(found.trained, found.held_out, strict=True)]
    assert len(parts) == 2 and len(parts[0]) <= LONGEST and parts[0].endswith("x\n")
    assert "".join(parts) == (line * (LONGEST // 80)).strip()


def test_pieces_lose_nothing_but_spaces():
    text = "\n".join(" ".join(f"w{i}" for i in range(k)) for k in range(40)) + "x" * 300
    found = list(pieces(text, lambda piece: len(piece) <= 50))
    assert max(map(len, found)) <= 50
    assert "".join("".join(found).split()) == "".join(text.split())


BAD = {
    "empty.txt": (b" \n ", "empty.txt: is empty"),
    "bytes.txt": (b"fine\nalso fine\nnot \xff fine", "bytes.txt, line 3: not UTF-8 (byte 0xff)"),
    "field.jsonl": (b'{"text": "a"}\n\n{"txt": "b"}', 'field.jsonl, line 3: has no "text"'),
    "blank.jsonl": (b'{"text": " "}', "blank.jsonl: holds no text"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_text_is_one_line_with_file_and_line(tmp_path, name):
    data, words = BAD[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ZooError) as error:
        corpus(str(tmp_path / name), "generate")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(ZooError, match=r"nothing\.txt: no such file or folder to train on"):
        corpus(str(tmp_path / "nothing.txt"), "generate")
    with pytest.raises(ZooError, match="no corpus 'web'; there are: atlas, phrasebook"):
        corpus("web", "generate")
    with pytest.raises(ZooError, match=r"holds no \.txt or \.md or \.jsonl file"):
        corpus(str(tmp_path), "generate")


def test_a_translator_wants_pairs(tmp_path):
    with pytest.raises(ZooError, match=r'a\.txt: a translator learns from a \.jsonl file with a "source"'):
        corpus(str(written(tmp_path / "a.txt", "text")), "translate")
    path = written(tmp_path / "a.jsonl", {"source": "a", "target": "b"}, {"source": "c", "target": " "})
    with pytest.raises(ZooError, match=r'a\.jsonl, line 2: "target" is empty'):
        corpus(str(path), "translate")
    path = written(tmp_path / "a.jsonl", {"source": "a", "target": "b"})
    with pytest.raises(ZooError, match="holds one pair; validation needs another"):
        corpus(str(path), "translate")


def test_a_text_too_short_for_a_row_is_said_before_anything_is_written(tmp_path, tokenizer_folder, numbers):
    path = written(tmp_path / "a.txt", "only a few words " * 5)
    with pytest.raises(ZooError, match=r"a\.txt: too short: \d+ tokens to \w+ \w+, and a row takes 65"):
        train_folder(
            "llama",
            tmp_path / "out",
            TrainingSettings(corpus=str(path)),
            config=numbers,
            tokenizer=tokenizer_folder,
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "prefix-lm", "bert", "llada"])
def test_models_of_each_kind_learn_from_a_persons_text(tmp_path, tokenizer_folder, text, name):
    settings = TrainingSettings(steps=2, batch=2, length=16, corpus=str(text))
    record = train_folder(name, tmp_path / "out", settings, tokenizer=tokenizer_folder)
    assert record.settings["packed"] and record.settings["corpus_sha256"]
    assert 4 < record.validation[-1][1] < 8
    assert zoo.load(tmp_path / "out").architecture.name == name


def test_a_translator_learns_from_pairs_and_leaves_long_ones_out(tmp_path):
    lines = [{"source": f"count {i}", "target": f"zähle {i}"} for i in range(40)]
    lines.insert(7, {"source": "long " * 200, "target": "lang"})
    numbers = dict(d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2)
    numbers |= dict(decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=1)
    settings = TrainingSettings(
        steps=2, batch=2, length=32, corpus=str(written(tmp_path / "a.jsonl", *lines))
    )
    with pytest.warns(UserWarning, match=r"a\.jsonl: leaves out 1 document too long for a row"):
        train_folder("transformer", tmp_path / "out", settings, config=numbers)
    assert (
        zoo.load(tmp_path / "out").tokenizer.decode(zoo.load(tmp_path / "out").tokenizer.encode("ä")) == "ä"
    )


def test_a_given_tokenizer_is_a_folder_or_a_file(tmp_path, tokenizer_folder, text, numbers):
    settings = TrainingSettings(steps=1, batch=2, length=16, corpus=str(text))
    other = tmp_path / "mine.json"
    other.write_bytes((tokenizer_folder / "tokenizer.json").read_bytes())
    for number, given in enumerate((tokenizer_folder, tokenizer_folder / "tokenizer.json", other)):
        out = tmp_path / f"out{number}"
        train_folder("llama", out, settings, config=numbers, tokenizer=given)
        assert (out / "tokenizer.json").read_bytes() == other.read_bytes()
        assert (out / "tokenizer_config.json").exists() == (number < 2)
        assert zoo.load(out).tokenizer.eos_ids == {0}
    with pytest.raises(ZooError, match="holds no tokenizer"):
        train_folder("llama", tmp_path / "x", settings, config=numbers, tokenizer=tmp_path)


def test_a_tokenizers_own_end_closes_a_document(tmp_path, tokenizer_folder, text, numbers):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((tokenizer_folder / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text('{"eos_token": "[SEP]"}')
    settings = TrainingSettings(steps=1, batch=2, length=16, corpus=str(text))
    train_folder("llama", tmp_path / "out", settings, config=numbers, tokenizer=folder)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["eos_token_id"] == zoo.load(tmp_path / "out").tokenizer.id("[SEP]") != 0
