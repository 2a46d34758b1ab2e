"""Examples of a person's own: their kinds, files, folders and datasets, and what is held out."""

import json

import pytest

from tests.helpers.loopback_hub import Repository
from zoo.errors import SourceError, ZooError
from zoo.training.data import read_examples
from zoo.training.examples import (
    Completion,
    Conversation,
    Preference,
    SentencePair,
    TextExample,
    TranslationPair,
)

USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
OTHER = {"role": "assistant", "content": "What?"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
DATASET = "someone/lines"
ANSWERS = {"chosen": "b", "rejected": "c"}
GREETING = {"prompt": "Greet.", "completion": "Hi"}
TRIPLE = {"anchor": "a", "positive": "b", "negative": "c"}


def written(path, *records):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def texts(examples):
    return [example.text for example in examples]


RECORDS = [
    ({"text": " a "}, TextExample, {"text": " a "}),
    ({"prompt": "a", "completion": " b", "text": "c"}, Completion, {"prompt": "a", "completion": " b"}),
    ({"messages": [USER, ANSWER], "prompt": "a"}, Conversation, {"messages": (USER, ANSWER), "tools": ()}),
    (
        {"messages": [USER, ANSWER], "tools": [TOOL]},
        Conversation,
        {"messages": (USER, ANSWER), "tools": (TOOL,)},
    ),
    ({"messages": [USER, ANSWER], "tools": None}, Conversation, {"messages": (USER, ANSWER), "tools": ()}),
    ({"prompt": "a", **ANSWERS}, Preference, {"prompt": "a", **ANSWERS}),
    (
        {"prompt": [USER], "chosen": [ANSWER], "rejected": [OTHER]},
        Preference,
        {"prompt": (USER,), "chosen": "Hello", "rejected": "What?"},
    ),
    ({"messages": [USER], **ANSWERS}, Preference, {"prompt": (USER,), **ANSWERS}),
    (
        {"prompt": "Hi", "messages": [USER, ANSWER], "chosen": [USER, ANSWER], "rejected": [USER, OTHER]},
        Preference,
        {"prompt": (USER,), "chosen": "Hello", "rejected": "What?"},
    ),
    (
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
        Conversation,
        {"messages": (USER, ANSWER), "tools": ()},
    ),
    (
        {"conversations": [{"from": "system", "value": "Be kind."}, USER, ANSWER | {"weight": 1}]},
        Conversation,
        {"messages": ({"role": "system", "content": "Be kind."}, USER, ANSWER | {"weight": 1}), "tools": ()},
    ),
    (
        {"instruction": "Add.", "input": "1 2", "output": "3", "text": "Below is an instruction"},
        Completion,
        {"prompt": "Add.\n\n1 2", "completion": "3"},
    ),
    ({"instruction": "Greet.", "input": "", "output": "Hi"}, Completion, GREETING),
    ({"instruction": "Greet.", "output": "Hi"}, Completion, GREETING),
    ({"source": "a", "target": "b"}, TranslationPair, {"source": "a", "target": "b"}),
    ({"anchor": "a", "positive": "b"}, SentencePair, {"anchor": "a", "positive": "b", "negative": None}),
    (TRIPLE, SentencePair, TRIPLE),
]


@pytest.mark.parametrize(("record", "kind", "values"), RECORDS)
def test_the_keys_of_a_line_decide_its_kind(tmp_path, record, kind, values):
    path = written(tmp_path / "data.jsonl", record | {"id": 7})
    data = read_examples(path)
    assert data.train == (kind(f"{path}, line 1", **values),) and data.valid == () and data.kind is kind


def test_messages_lose_what_is_null(tmp_path):
    calling = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    path = written(tmp_path / "data.jsonl", {"messages": [USER | {"name": None}, calling]})
    (example,) = read_examples(path).train
    assert example.messages == (USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})


@pytest.mark.parametrize(("lines", "held_out"), [(1, []), (2, [2]), (19, [19]), (20, [20]), (45, [20, 40])])
def test_every_twentieth_line_or_the_last_is_held_out(tmp_path, lines, held_out):
    data = read_examples(written(tmp_path / "a.jsonl", *({"text": f"{n}"} for n in range(1, lines + 1))))
    assert texts(data.valid) == [f"{n}" for n in held_out]
    assert texts(data.train) == [f"{n}" for n in range(1, lines + 1) if n not in held_out]


@pytest.mark.parametrize("name", ["valid", "validation", "val", "dev"])
def test_a_folder_has_a_file_for_each_part(tmp_path, name):
    for file in ("train", name, "test"):
        written(tmp_path / f"{file}.jsonl", {"text": file}, {"text": "b"})
    (tmp_path / "README.md").write_text("What this is.")
    data = read_examples(tmp_path)
    assert [texts(part) for part in (data.train, data.valid, data.test)] == [
        ["train", "b"],
        [name, "b"],
        ["test", "b"],
    ]


def test_a_folder_without_validation_has_a_part_held_out(tmp_path):
    written(tmp_path / "data" / "train.jsonl", {"text": "a"}, {"text": "b"})
    written(tmp_path / "data" / "test.json", {"text": "c"})
    data = read_examples(tmp_path)
    assert [texts(part) for part in (data.train, data.valid, data.test)] == [["a"], ["b"], ["c"]]


def test_a_json_file_may_be_an_array(tmp_path):
    path = tmp_path / "alpaca.json"
    path.write_text(
        json.dumps([{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}], indent=1)
    )
    data = read_examples(tmp_path)
    assert data.train == (Completion(f"{path}, item 1", "a", "b"),) and data.valid[0].completion == "d"


def test_a_text_file_is_one_text_whose_last_twentieth_is_held_out(tmp_path):
    words = " ".join(f"word{i}" for i in range(2000))
    (tmp_path / "a.txt").write_text(words)
    for path in (tmp_path / "a.txt", tmp_path):
        data = read_examples(path)
        (head,), (tail,) = data.train, data.valid
        assert head.text + tail.text == words and 0.04 < len(tail.text) / len(words) < 0.06
        assert head.text.endswith(" ")


def test_a_digest_is_that_of_the_examples_and_their_parts(tmp_path):
    lines = [{"messages": [USER, ANSWER]}, {"messages": [USER, OTHER]}]
    digest = read_examples(written(tmp_path / "a.jsonl", *lines)).digest
    assert digest == read_examples(written(tmp_path / "b.jsonl", *lines)).digest
    other = {"messages": [USER, OTHER | {"weight": 1}]}
    assert digest != read_examples(written(tmp_path / "c.jsonl", lines[0], other)).digest
    assert digest != read_examples(written(tmp_path / "d.jsonl", *lines[::-1])).digest
    written(tmp_path / "e" / "train.jsonl", lines[0])
    written(tmp_path / "e" / "test.jsonl", lines[1])
    assert digest != read_examples(tmp_path / "e").digest
    kinds = ({"source": "a", "target": "b"}, {"anchor": "a", "positive": "b"})
    assert len({read_examples(written(tmp_path / "f.jsonl", record)).digest for record in kinds}) == 2


def test_parts_of_two_kinds_are_refused(tmp_path):
    written(tmp_path / "train.jsonl", {"text": "a"})
    valid = written(tmp_path / "valid.jsonl", {"prompt": "a", "completion": "b"})
    with pytest.raises(ZooError) as error:
        read_examples(tmp_path)
    assert str(error.value) == (
        f'{valid}, line 1: is an example of "prompt" and "completion", but '
        f'{tmp_path / "train.jsonl"}, line 1 of "text"'
    )


PATHS = {
    "nothing": ([], "nothing: no such file or folder of data"),
    "folder": (
        ["folder/image.png"],
        "folder: holds no train.jsonl, valid.jsonl or test.jsonl, and no text file",
    ),
    "table.csv": (["table.csv"], "table.csv: data is a .jsonl, .json, .txt or .md file"),
    "a.parquet": (["a.parquet"], "a.parquet is Parquet, which is not read; convert it: pandas.read_parquet("),
    "split": (["split/data/train-0.parquet"], "split: data/train-0.parquet is Parquet"),
    "two": (["two/valid.jsonl", "two/dev.jsonl"], "two: dev.jsonl and valid.jsonl are both for valid"),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_path_without_data_says_what_data_is(tmp_path, name):
    files, words = PATHS[name]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x")
    with pytest.raises(ZooError) as error:
        read_examples(tmp_path / name)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.fixture
def dataset(hub):
    made = Repository()
    files = {"data/train.jsonl": b'{"text": "a"}\n', "data/dev.json": b'[{"text": "b"}]', "README.md": b"x"}
    made.commit(files)
    hub.repositories[DATASET] = made
    return made


def test_of_a_dataset_of_the_hub_its_json_is_fetched(hub, dataset, tmp_path):
    data = read_examples(DATASET)
    assert (texts(data.train), texts(data.valid), data.path) == (["a"], ["b"], DATASET)
    assert sorted(hub.asked()) == ["data/dev.json", "data/train.jsonl"]
    assert (tmp_path / "home" / "hub" / "datasets--someone--lines").is_dir()


def test_a_dataset_in_the_cache_serves_without_the_hub(hub, dataset):
    digest = read_examples(DATASET).digest
    hub.status = 503
    with pytest.warns(UserWarning, match="the copy in the cache serves"):
        assert read_examples(DATASET).digest == digest


def test_a_dataset_of_parquet_says_how_to_convert_it(hub, dataset):
    dataset.commit({"data/train-00000.parquet": b"PAR1"})
    with pytest.raises(ZooError, match=r"^someone/lines: data/train-00000\.parquet is Parquet, .*to_json"):
        read_examples(DATASET)
    assert hub.asked() == []


def test_a_dataset_that_is_not_there_is_said(hub):
    with pytest.raises(
        SourceError, match="someone/lines: no folder of this name, and no such model or dataset"
    ):
        read_examples(DATASET)


def test_an_error_in_a_dataset_names_the_line(hub, dataset):
    dataset.commit({"train.jsonl": b'{"text": "a"}\n{"text": ""}\n'})
    with pytest.raises(ZooError, match=r'train\.jsonl, line 2: "text" is empty$'):
        read_examples(DATASET)
