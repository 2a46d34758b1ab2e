"""Files of prompts: what a line may be, and that no file of answers is lost, doubled or mixed."""

import io
import json
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

import zoo
from zoo.errors import PromptError, SourceError
from zoo.files.writing import locked
from zoo.generation.prompts_file import answer_prompts, read_prompts
from zoo.runtime import ranks

PROMPTS = [
    '"The capital city of China is"',
    '{"prompt": "中国的首都是", "id": "zh"}',
    '{"prompt": [1, 2, 3], "id": 7}',
]


@pytest.fixture(scope="module")
def loaded():
    return zoo.load("llama")


@pytest.fixture(scope="module")
def other():
    return zoo.load("qwen3")


@pytest.fixture
def file(tmp_path):
    def write(*lines, name="prompts.jsonl"):
        path = tmp_path / name
        path.write_bytes("\n".join(lines).encode("utf-8", errors="surrogatepass"))
        return path

    return write


def answer(loaded, path, output, keep_going=False, **settings):
    settings = {"max_tokens": 4} | settings
    lines = read_prompts(loaded, path, settings, keep_going=keep_going)
    return list(answer_prompts(loaded, lines, output, keep_going=keep_going, **settings))


def written(output):
    return [json.loads(line) for line in output.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1}',
        b"\x89PNG\r\n\x1a\n\0\0",
        b'{"made_by": "me", "text": "x"}\n',
        b"\n",
        b'{"text": "old", "finish_reason": "stop"}\n',
        b'{"made_by": {"zoo": "x"}}\nand more',
    ],
)
def test_a_file_that_holds_no_answers_is_refused_and_left_alone(loaded, file, tmp_path, content):
    output = tmp_path / "out.jsonl"
    output.write_bytes(content)
    with pytest.raises(PromptError, match=r"out\.jsonl: (holds no answers that the zoo wrote|line 1 )"):
        answer(loaded, file(*PROMPTS), output)
    assert output.read_bytes() == content


def test_the_prompts_are_not_overwritten_by_their_answers(loaded, file):
    path = file(*PROMPTS)
    before = path.read_bytes()
    with pytest.raises(PromptError, match="holds no answers that the zoo wrote"):
        answer(loaded, path, path)
    assert path.read_bytes() == before


def test_links_and_folders_are_refused(loaded, file, tmp_path):
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to("target")
    for name in ("link", "."):
        with pytest.raises(SourceError, match=r"is a link|is a folder"):
            answer(loaded, file(*PROMPTS), tmp_path / name)
    assert (tmp_path / "target").read_text() == ""


def test_a_stopped_run_is_continued_wherever_it_was_stopped(loaded, file, tmp_path):
    path, whole = file(*PROMPTS), tmp_path / "whole.jsonl"
    assert len(answer(loaded, path, whole)) == 3
    data = whole.read_bytes()
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    for size in (0, 1, 20, 90, ends[0] - 1, ends[0], ends[0] + 1, ends[1] + 40, ends[2] - 1, ends[2]):
        output = tmp_path / "out.jsonl"
        output.write_bytes(data[:size])
        count = len(answer(loaded, path, output))
        assert output.read_bytes() == data and count == 3 - sum(end <= size for end in ends)


def test_answers_with_and_without_the_template_are_not_mixed(loaded, file, tmp_path):
    path, output = file(*PROMPTS), tmp_path / "out.jsonl"
    lines = read_prompts(loaded, path, {}, raw=True)
    assert len(list(answer_prompts(loaded, lines, output, raw=True, max_tokens=2))) == 3
    assert list(answer_prompts(loaded, lines, output, raw=True, max_tokens=2)) == []
    with pytest.raises(PromptError, match="other settings"):
        list(answer_prompts(loaded, lines, output, max_tokens=2))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("settings", "other settings"),
        ("model", "another model"),
        ("prompts", "another prompt"),
        ("version", "another version of the zoo"),
        ("fewer", "more than the 1 prompts"),
    ],
)
def test_answers_of_another_run_are_refused_by_name(
    loaded, other, file, tmp_path, monkeypatch, change, words
):
    output = tmp_path / "out.jsonl"
    answer(loaded, file(*PROMPTS), output)
    before = output.read_bytes()
    prompts = {"prompts": ['"Peru"', *PROMPTS[1:]], "fewer": PROMPTS[:1]}.get(change, PROMPTS)
    if change == "version":
        versions = zoo.generation.prompts_file.runtime.versions()
        monkeypatch.setattr(
            "zoo.generation.prompts_file.runtime.versions", lambda: versions | {"mlx-zoo": "0.0.1"}
        )
    settings = {"temperature": 0.5} if change == "settings" else {}
    with pytest.raises(PromptError, match=rf"out\.jsonl: .*{words}"):
        answer(other if change == "model" else loaded, file(*prompts), output, **settings)
    assert output.read_bytes() == before


def test_one_process_at_a_time_writes_the_answers(loaded, file, tmp_path):
    output = tmp_path / "out.jsonl"
    with locked(output), pytest.raises(SourceError, match=r"out\.jsonl: another process is writing it"):
        answer(loaded, file(*PROMPTS), output)
    first = answer_prompts(loaded, read_prompts(loaded, file(*PROMPTS), {}), output, max_tokens=2)
    next(first)
    with pytest.raises(SourceError, match="another process"):
        answer(loaded, file(*PROMPTS), output, max_tokens=2)
    list(first)
    assert len(written(output)) == 3 and sorted(os.listdir(tmp_path)) == ["out.jsonl", "prompts.jsonl"]


def test_answers_go_to_a_stream_and_into_a_pipe(loaded, file, tmp_path):
    stream = io.StringIO()
    found = answer(loaded, file(*PROMPTS), stream)
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == found
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    answer(loaded, file(*PROMPTS), pipe)
    reader.join()
    assert read == [stream.getvalue()] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_full_disk_is_one_line_and_what_was_written_is_kept(loaded, file, tmp_path):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(28, "No space left on device")

        def close(self):  # as a real file: what it holds is written once more, and then it is closed
            if not self.closed:
                super().close()
                self.flush()

    output = tmp_path / "out.jsonl"
    lines = read_prompts(loaded, file(*PROMPTS), {})
    whole = list(answer_prompts(loaded, lines, output, max_tokens=2))
    output.write_text("".join(output.read_text().splitlines(keepends=True)[:1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zoo.generation.prompts_file.open", lambda *_, **__: Full(), raising=False)
        with pytest.raises(SourceError, match=r"out\.jsonl: cannot be written \(No space left on device\)"):
            list(answer_prompts(loaded, lines, output, max_tokens=2))
    assert written(output) == whole[:1]


def test_a_text_may_hold_any_line_separator_but_the_newline(loaded, file):
    texts = ["a\u2028b", "a\u0085b", "a\x0cb".replace("\x0c", "\u2029")]
    lines = read_prompts(loaded, file(*(json.dumps(text, ensure_ascii=False) for text in texts)), {})
    assert [line.values["prompt"] for line in lines] == texts
    assert len(read_prompts(loaded, file('"a"\r', '"b"\r', ""), {})) == 2
    assert len(read_prompts(loaded, file('\ufeff"a"'), {})) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not valid JSON"),
        ('{"prompt": "a", "prompt": "b"}', "the key 'prompt' has two values"),
        ('{"prompt": "a", "id": NaN}', "is not valid JSON"),
        ('{"prompt": "a", "id": Infinity}', "is not valid JSON"),
        (r'"\ud800"', "surrogates"),
        ("3", 'must be a text, a list of token ids, or an object with either "prompt" or "messages"'),
        ('{"prompt": "a", "messages": []}', "either"),
        ('{"prompt": []}', "the prompt is empty"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "has no chat template"),
        ('{"prompt": "a", "temperature": -1}', '"temperature" must be a number of at least 0'),
        ('{"prompt": "a", "promt": "b"}', '"promt": '),
        ("[1, 2, 99999]", "token id 99999 lies outside"),
        ("[true]", "got True"),
    ],
)
def test_an_invalid_line_is_named_and_nothing_runs_unless_errors_are_kept(
    loaded, file, tmp_path, line, words
):
    path, output = file('"Peru"', "", line, '"Chad"'), tmp_path / "out.jsonl"
    with pytest.raises(PromptError) as raised:
        answer(loaded, path, output)
    assert "line 3: " in str(raised.value) and words in str(raised.value) and "`" not in str(raised.value)
    assert not output.exists()
    first, bad, last = answer(loaded, path, output, keep_going=True)
    assert bad["line"] == 3 and words in bad["error"] and "text" not in bad
    assert "text" in first and "text" in last and written(output) == [first, bad, last]
    assert answer(loaded, path, output, keep_going=True) == []


def test_an_error_of_all_lines_is_no_line_s(loaded, file, tmp_path):
    with pytest.raises(PromptError, match=r"^`temperature` must be"):
        answer(loaded, file(*PROMPTS), tmp_path / "out", keep_going=True, temperature=-1)


def test_errors_before_between_and_after_the_answers_keep_their_places(loaded, file, tmp_path):
    lines = ["{", '"Peru"', "{", "{", '"Chad"', "{"]
    found = answer(loaded, file(*lines), tmp_path / "out", keep_going=True)
    assert [one.get("line", 0) for one in found] == [1, 0, 3, 4, 0, 6]
    assert ["error" in one for one in answer(loaded, file("{"), tmp_path / "only", keep_going=True)] == [True]


def test_plain_lines_are_prompts(loaded, file):
    lines = read_prompts(loaded, file('"quoted"', "", "{not json", " Peru\r", name="prompts.txt"), {})
    assert [line.values["prompt"] for line in lines] == ['"quoted"', "{not json", " Peru"]
    assert [line.number for line in lines] == [1, 3, 4]


def test_where_a_folder_has_no_tokenizer_answers_are_ids(command, tmp_path, file):
    folder = tmp_path / "model"
    assert command("convert", "llama", folder).returncode == 0
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    alone = zoo.generate(zoo.load(folder), [1, 2, 3], max_tokens=3).tokens
    path = file("[1, 2, 3]", '{"prompt": [1, 2, 3], "id": "x"}')
    done = command("run", folder, "--prompts", path, "--max-tokens", "3")
    assert [json.loads(line)["tokens"] for line in done.stdout.splitlines()] == [alone, alone]
    assert "2 answers" in done.stderr
    done = command("run", folder, "[1, 2, 3]", "--max-tokens", "3")
    assert [int(id) for id in done.stdout.split()] == alone
    done = command("run", folder, "hello")
    assert done.returncode == 1 and "so the prompt must be a list of token ids" in done.stderr


def test_the_command_writes_to_standard_output_and_names_no_file_dash(command, file, tmp_path):
    path = file(PROMPTS[0])
    plain = command("run", "llama", "--prompts", path, "--max-tokens", "2")
    dash = command("run", "llama", "--prompts", path, "--output", "-", "--max-tokens", "2")
    assert json.loads(plain.stdout) == json.loads(dash.stdout) and "1 answer ·" in plain.stderr
    assert os.listdir(tmp_path) == ["prompts.jsonl"]
    assert "--output goes with --prompts" in command("run", "llama", "x", "--output", "y").stderr


def test_the_command_reads_prompts_from_standard_input(command, file):
    lines = '"Egypt"', "", '"Peru"'
    path, content = file(*lines), "\n".join(lines)
    asked = ["--max-tokens", "2"]
    piped = command("run", "llama", "--prompts", "-", *asked, stdin=content)
    assert piped.stdout == command("run", "llama", "--prompts", path, *asked).stdout
    assert piped.stderr.startswith("standard input: 2 answers")
    bad = command("run", "llama", "--prompts", "-", *asked, stdin="Egypt")
    assert bad.returncode == 1 and "standard input: line 1: is not valid JSON" in bad.stderr
    empty = command("run", "llama", "--prompts", "-", *asked)
    assert empty.returncode == 1 and "standard input: has no prompts" in empty.stderr


def test_several_ranks_refuse_prompts_that_can_be_read_once(loaded, monkeypatch):
    monkeypatch.setattr(ranks, "size", lambda: 2)
    for source, name in ((Path("/dev/stdin"), "/dev/stdin"), (sys.stdin, "standard input")):
        with pytest.raises(PromptError, match=f"^{name}: a pipe can be read once; 2 ranks need a file"):
            read_prompts(loaded, source, {})
