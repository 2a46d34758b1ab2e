"""Models of random weights that draw at temperature 1 write only what a schema, an expression or a grammar allows.

ZOO_SCHEMAS=300 has them write documents of so many schemas.
"""

import json
import os
import re
from dataclasses import replace

import mlx.core as mx
import pytest
from mlx.utils import tree_map_with_path

import zoo
from tests.helpers import json_schemas
from tests.helpers.tokenizer_kinds import tokenizer_of
from zoo.errors import PromptError
from zoo.tokenizer import Tokenizer

COUNT = int(os.environ.get("ZOO_SCHEMAS", 6))
KINDS = (
    [None, "pieces"] if COUNT < 300 else [None, "pieces", "merges", "byte fallback, stripped", "GGUF, pieces"]
)
PROMPTS = ["The capital city of China is", "a"]
PERSON = json_schemas.closed(
    name={"type": "string", "maxLength": 6}, age={"type": "integer", "maximum": 99, "minimum": 0}
)


def random_model(name, kind=None):
    """A pocket model with random weights, and the tokenizer of a kind, whose vocabulary is smaller than the model's."""
    loaded = zoo.load(name)
    keys = iter(mx.random.split(mx.random.key(5), 1000))
    loaded.model.update(
        tree_map_with_path(
            lambda path, array: 0.1 * mx.random.normal(array.shape, key=next(keys)), loaded.model.parameters()
        )
    )
    return loaded if kind is None else replace(loaded, tokenizer=tokenizer_of(kind))


def written(loaded, prompts, **settings):
    """The text and the finish reason of each prompt's answer, all in one batch."""
    return [(answer.text, answer.finish_reason) for answer in zoo.batch(loaded, prompts, **settings)]


@pytest.fixture(scope="module")
def llama():
    return random_model("llama")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_is_a_document_of_the_schema(kind):
    loaded = random_model("llama", kind)
    wanted = json_schemas.schemas(300)
    finished = total = 0
    for schema in wanted[:: 300 // COUNT]:
        prompts = [[5, 6, 7], [8, 9]]
        answers = written(loaded, prompts, json_schema=schema, temperature=1.0, seed=finished, max_tokens=100)
        for text, reason in answers:
            total += 1
            if reason == "stop":
                json_schemas.check(text, schema)
                finished += 1
            else:
                assert reason == "length"
    assert finished > 0.7 * total


@pytest.mark.parametrize("name", ["mamba", "lstm", "mixtral"])
def test_other_families_are_held_to_it(name):
    for text, reason in written(random_model(name), PROMPTS, json_schema=PERSON, temperature=1.0, seed=1):
        assert reason == "stop"
        json_schemas.check(text, PERSON)


def test_neighbours_have_forms_of_their_own(llama):
    engine = zoo.Engine(llama)
    forms = [
        dict(json_schema=PERSON),
        dict(regex="[0-9]{3,8}"),
        dict(grammar='start: "(" start ")" | "x"'),
        {},
    ]
    handles = {engine.add(PROMPTS[0], temperature=1.0, seed=2, max_tokens=60, **form): form for form in forms}
    texts = dict.fromkeys(handles, "")
    for handle, step in engine.run():
        texts[handle] += step.text
    document, number, nested, free = texts.values()
    json_schemas.check(document, PERSON)
    assert re.fullmatch("[0-9]{3,8}", number) and re.fullmatch(r"\(*x\)*", nested)
    assert free == zoo.generate(llama, PROMPTS[0], temperature=1.0, seed=2, max_tokens=60).text


@pytest.mark.slow
@pytest.mark.parametrize("settings", [dict(), dict(temperature=1.0, seed=4)], ids=["greedy", "drawn"])
def test_drafts_keep_the_form(llama, settings):
    for form in (dict(json_schema=PERSON), dict(regex="(ab){20,30}c")):
        answer = zoo.generate(llama, "ab ab ab ab", prompt_lookup=4, max_tokens=200, **form, **settings)
        assert answer.finish_reason == "stop"
        if "regex" in form:
            assert re.fullmatch(form["regex"], answer.text)
        else:
            json_schemas.check(answer.text, PERSON)
    plain = zoo.generate(llama, "ab ab ab ab", json_schema=PERSON).text
    assert plain == zoo.generate(llama, "ab ab ab ab", json_schema=PERSON, prompt_lookup=4).text


def test_a_text_that_can_only_end_does_though_it_is_short(llama):
    answer = zoo.generate(llama, "a", regex="yes", min_tokens=50)
    assert answer.text == "yes" and answer.finish_reason == "stop"


def test_the_limit_may_come_before_the_end(llama):
    answer = zoo.generate(llama, "a", json_schema=PERSON, max_tokens=4)
    assert answer.finish_reason == "length" and json.dumps({"name": ""}, separators=(",", ":")).startswith(
        answer.text[:8]
    )


def test_a_model_without_an_end_token_ends_when_nothing_can_follow(llama):
    endless = Tokenizer(llama.tokenizer._backend)
    answer = zoo.generate(replace(llama, tokenizer=endless), "a", regex="ab{2}")
    assert answer.text == "abb" and answer.finish_reason == "stop"


def test_settings_that_leave_no_token_are_an_error(llama):
    with pytest.raises(PromptError, match=r"token 1: no token is left to choose: `banned`, `regex`"):
        zoo.generate(llama, "a", regex="x", banned=["x"])


def test_a_form_is_refused_before_anything_runs(llama):
    with pytest.raises(PromptError, match=r"^`json_schema`: no document fits it"):
        zoo.stream(llama, "a", json_schema=False)
    with pytest.raises(
        PromptError, match=r"^`regex`: this tokenizer \(WordPiece\) changes text between tokens"
    ):
        zoo.stream(replace(llama, tokenizer=tokenizer_of("word pieces")), [5], regex="a")
    with pytest.raises(PromptError, match=r"^`grammar`: the model has no tokenizer"):
        zoo.stream(replace(llama, tokenizer=None), [5], grammar='start: "a"')
    with pytest.raises(PromptError, match="`json_schema` and `regex` cannot be given together"):
        zoo.stream(llama, "a", json_schema={}, regex="a")


@pytest.mark.parametrize(
    ("option", "name", "text", "message"),
    [
        ("--json-schema", "bad.json", '{"not": {}}', "--json-schema: bad.json: not is not supported"),
        ("--json-schema", "torn.json", "{", "'--json-schema': torn.json: expected a JSON object"),
        ("--json-schema", "none.json", None, "'--json-schema': none.json: No such file"),
        ("--grammar", "bad.lark", "start: x", "--grammar: bad.lark: line 1, column 8: unknown name"),
        ("--grammar", "bytes.lark", b"\xff", "'--grammar': bytes.lark: not UTF-8 text"),
    ],
)
def test_the_command_line_names_the_file(command, tmp_path, option, name, text, message):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    done = command("run", "llama", "a", option, name)
    assert done.returncode != 0 and message in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_command_line_reads_a_schema_and_a_grammar(command, tmp_path):
    (tmp_path / "person.json").write_text(json.dumps(PERSON))
    json_schemas.check(
        command("run", "llama", "a", "--json-schema", "person.json").stdout.removesuffix("\n"), PERSON
    )
    (tmp_path / "answer.gbnf").write_text('root ::= "yes" | "no"\n')
    assert command("run", "llama", "a", "--grammar", "answer.gbnf").stdout in ("yes\n", "no\n")
    assert command("run", "llama", "a", "--regex", "x{3}").stdout == "xxx\n"
