"""A small model that chats: a LLaMA of two layers, trained until it knows a few conversations by heart.

It thinks, calls a tool and reads its result, as large models do, so that clients are tested with all of it.
"""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import zoo
from zoo.assemble import assemble
from zoo.checkpoint.convert import save
from zoo.config import Config
from zoo.generation.chat.chat_prompt import chat_prompt

TEMPLATE = """\
{% for message in messages %}<|{{ message.role }}|>{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|endoftext|>
{% endfor %}
{%- if tools %}<|tools|>{% for tool in tools %}{{ tool.function.name }} {% endfor %}{% endif %}
{%- if add_generation_prompt %}<|assistant|>
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"""

CITY = {"type": "string", "enum": ["Rome", "Oslo"]}
PARAMETERS = {"type": "object", "properties": {"city": CITY}, "required": ["city"]}
ABOUT = "What the weather will be."
TOOL = {"type": "function", "function": {"name": "weather", "description": ABOUT, "parameters": PARAMETERS}}

QUESTION = {"role": "user", "content": "What will the weather be in Rome?"}
ARGUMENTS = {"city": "Rome"}
CALL = {"id": "call1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
RESULT = {"role": "tool", "tool_call_id": "call1", "content": "Rain."}
FORECAST = "It will rain in Rome."

RIVER = {"role": "user", "content": "Name a river."}
RIVER_THOUGHT, RIVER_ANSWER = "One in Africa.", "The Nile is a long river."
SYSTEM = {"role": "system", "content": "Be brief."}
BRIEF_ANSWER = "The Nile."
SECOND = [SYSTEM, RIVER, {"role": "assistant", "content": BRIEF_ANSWER}, {"role": "user", "content": "Why?"}]
SECOND_ANSWER = "It is long."

WRITTEN_CALL = f'<tool_call>\n{{"name": "weather", "arguments": {json.dumps(ARGUMENTS)}}}\n</tool_call>'
THOUGHT = f"<think>{RIVER_THOUGHT}</think>"
LESSONS = [  # messages, tools, template variables, and the answer
    ([QUESTION], [TOOL], {}, f"<think>A tool knows.</think>{WRITTEN_CALL}"),
    ([QUESTION], [TOOL], {"enable_thinking": False}, WRITTEN_CALL),
    ([QUESTION, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT], [TOOL], {}, FORECAST),
    ([RIVER], [], {}, THOUGHT + RIVER_ANSWER),
    ([RIVER], [TOOL], {}, THOUGHT + RIVER_ANSWER),
    ([RIVER], [], {"enable_thinking": False}, RIVER_ANSWER),
    ([SYSTEM, RIVER], [], {}, BRIEF_ANSWER),
    (SECOND, [], {}, SECOND_ANSWER),
]
STEPS, RATE = 100, 5e-3
NUMBERS = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
    "torch_dtype": "float32",
}


def write(folder):
    """Train the model and write it as a Hugging Face folder, with the tokenizer of the embedded LLaMA."""
    loaded = zoo.load("llama")
    numbers = {**loaded.config, **NUMBERS}
    recipe = loaded.architecture.recipe(Config(numbers))
    mx.random.seed(0)
    trained = assemble(recipe, loaded.registry)
    loaded.tokenizer.chat_template = TEMPLATE
    rows, places, targets = [], [], []
    for number, (messages, tools, variables, answer) in enumerate(LESSONS):
        prompt = chat_prompt(loaded, messages, tools=tools, variables=variables).ids
        ids = [*prompt, *loaded.tokenizer.encode(answer, special_tokens=False), 0]
        rows.append(ids[:-1])
        places += [(number, at - 1) for at in range(len(prompt), len(ids))]
        targets += ids[len(prompt) :]
    length = max(map(len, rows))
    tokens = mx.array([ids + [0] * (length - len(ids)) for ids in rows])  # (B, T)
    row, column = mx.array(places).T  # (N,) each: where the tokens of answers are predicted

    expected = mx.array(targets)

    def answers(model):
        return model.head(model.backbone(tokens)[row, column])  # (N, V)

    def loss(model):
        return nn.losses.cross_entropy(answers(model), expected).mean()

    optimizer = optim.Adam(
        optim.cosine_decay(RATE, STEPS)
    )  # at a constant rate the last loss depends on rounding
    step = nn.value_and_grad(trained, loss)
    for _ in range(STEPS):
        _, gradients = step(trained)
        optimizer.update(trained, gradients)
        mx.eval(trained.parameters(), optimizer.state)
    assert mx.all(answers(trained).argmax(-1) == expected).item(), "the model has not learnt its answers"
    save(folder, trained, loaded.architecture, recipe, numbers)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((loaded.folder / file).read_bytes())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
