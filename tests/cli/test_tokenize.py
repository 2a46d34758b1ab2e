"""`zoo tokenize`: what a person sees on a terminal, what a program reads from a pipe."""

import json
import re

import pytest

from tests.helpers.terminal import Terminal
from zoo.cli.terminal import width
from zoo.cli.tokenize import written
from zoo.inspect.tokenization import Piece, tokenize_pieces, tokenizer_of

TEXT = "The ␣ \\n中国\u200d\n\t👩\u200d👧 <|endoftext|>"


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.fixture(scope="module")
def pieces():
    return tokenize_pieces(tokenizer_of("llama"), TEXT)


def test_a_piece_is_written_so_that_its_bytes_can_be_read_back(pieces):
    for piece in pieces:
        shown = written(piece)
        assert shown.isprintable() and " " not in shown
        raw = shown.encode("utf-8").replace("␣".encode(), b" ")
        back = re.sub(
            rb"\\(x..|u....|U.{8}|n|t|\\)",
            lambda found: (
                bytes([int(found[1][1:], 16)])
                if found[1].startswith(b"x") and int(found[1][1:], 16) > 0x7F
                else found[0].decode("unicode_escape").encode("utf-8")
            ),
            raw,
        )
        assert back == piece.bytes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" a b", "␣a␣b"),
        ("␣", "\\u2423"),
        ("a\\n", "a\\\\n"),
        ("\n\t", "\\n\\t"),
        ("\u200d", "\\u200d"),
        ("\u0301", "\\u0301"),
        ("e\u0301", "e\u0301"),
        ("\x1b[1m", "\\x1b[1m"),
        ("中", "中"),
    ],
)
def test_signs_that_cannot_be_seen_are_escapes(text, shown):
    assert written(Piece(0, text, text, text.encode("utf-8"))) == shown


def test_in_a_pipe_each_piece_has_a_line(command, pieces):
    done = command("tokenize", "llama", TEXT)
    assert done.returncode == 0, done.stderr
    head, _, *lines = done.stdout.split("\n\n")[0].splitlines()
    assert head.split() == ["id", "piece", "bytes", "characters", "kind"]
    assert [line.split()[:2] for line in lines] == [[str(p.id), written(p)] for p in pieces]
    assert lines[-1].endswith("special") and "\x1b" not in done.stdout


def test_several_tokenizers_are_counted_side_by_side(command):
    done = command("tokenize", "llama", "bert", "中国 one", "--limit", "1")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[-2:]}
    counts = {name: len(tokenizer_of(name).encode("中国 one")) for name in ("llama", "bert")}
    assert {name: int(row[0]) for name, row in rows.items()} == counts
    assert float(rows["bert"][2]) == round(10 / counts["bert"], 2)
    assert "more pieces" in done.stdout


def test_json_has_numbers_and_bytes(command, pieces):
    values = json.loads(command("tokenize", "llama", "gru", TEXT, "--json").stdout)
    assert [one["source"] for one in values["tokenizers"]] == ["llama", "gru"]
    found = values["tokenizers"][0]
    assert bytes.fromhex("".join(piece["bytes"] for piece in found["pieces"])) == TEXT.encode("utf-8")
    assert found["text_tokens"] == len(pieces) and values["text_bytes"] == len(TEXT.encode("utf-8"))
    assert found["bytes_per_token"] == pytest.approx(values["text_bytes"] / len(pieces))


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_shows_cells_that_fit(columns):
    with Terminal("tokenize", "llama", "bert", TEXT * 3, columns=columns) as terminal:
        seen = plain(terminal.end()[1])
    lines = seen.split("\n")
    assert max(map(width, lines)) <= columns
    assert "special" in seen and "\\xf0" in seen


def test_the_text_may_come_from_a_pipe_or_a_file(command, tmp_path):
    given = command("tokenize", "llama", "one two", "--json").stdout
    assert command("tokenize", "llama", "--json", stdin="one two\n").stdout == given
    assert command("tokenize", "llama", "-", "--json", stdin="one two\n").stdout == given
    (tmp_path / "text").write_text("one two")
    assert command("tokenize", "llama", "--file", "text", "--json").stdout == given


def test_an_empty_text_has_no_tokens(command):
    done = command("tokenize", "llama", "")
    assert done.returncode == 0 and done.stdout.startswith("llama · 0 tokens · 0 bytes")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope", "text"], ["nope", "zoo list"]),
        (["llama", "--file", "absent"], ["absent", "No such file"]),
        (["llama", "--file", "binary"], ["binary", "byte 1"]),
        (["llama", "--file", "."], ["directory"]),
    ],
)
def test_what_cannot_be_is_said_in_one_line(command, tmp_path, arguments, words):
    (tmp_path / "binary").write_bytes(b"a\0b")
    done = command("tokenize", *arguments)
    assert done.returncode != 0 and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr
