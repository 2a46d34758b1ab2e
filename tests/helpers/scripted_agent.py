"""A stand-in for a model that coding agents use: it calls the program's tool once, then says what the tool returned."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import zoo
from tests.clients.chat_model import TEMPLATE
from zoo.architecture import Strategy, hookimpl
from zoo.generation import Step
from zoo.generation.loop.prompt import encode_prompt
from zoo.host.registry import isolated

LINE = "The river is wide."
ANSWER = f"The first line is: {LINE}"
# The tool of each program that reads a file, and its arguments.
TOOLS = {
    "exec_command": {"cmd": "head -n 1 note.txt"},
    "Read": {"file_path": "note.txt"},
    "read": {"filePath": "note.txt"},
}
SETTINGS = ("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "seed", "stop", "adapter")


def answer_of(text):
    """What the model writes after a prompt."""
    *_, tools = text.rpartition("<|tools|>")
    offered = tools.partition("<|assistant|>")[0].split()
    name = next((name for name in TOOLS if name in offered), None)
    if LINE in text:  # a result, or a file within the prompt
        return ANSWER
    if name is None:
        return "A title"
    arguments = {
        key: str(Path.cwd() / value) if key.lower() == "filepath" or key == "file_path" else value
        for key, value in TOOLS[name].items()
    }
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def scripted(loaded, prompt, *, max_tokens=None, **settings):
    """The strategy: the pieces of the answer, a step each."""
    ids = encode_prompt(loaded, prompt)
    text = answer_of(loaded.tokenizer.decode(ids, False))
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    return (Step(1, piece, finish_reason="stop" if piece is pieces[-1] else None) for piece in pieces)


@hookimpl
def zoo_strategies():
    yield Strategy("scripted", f"{__name__}:scripted", ("generate",), SETTINGS)


def load(name):
    """The pocket LLaMA with a chat template, a long context and the strategy; its `name` is not read."""
    loaded = zoo.load("llama", registry=isolated(sys.modules[__name__]))
    loaded.tokenizer.chat_template = TEMPLATE
    return replace(loaded, recipe=replace(loaded.recipe, context=2**17))
