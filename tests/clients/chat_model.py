"""A small model that chats: the embedded LLaMA, trained until it knows a few conversations by heart.

It thinks, calls a tool and reads its result, as large models do, so that clients are tested with all of it.
"""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import zoo
from zoo.checkpoint.convert import save
from zoo.generation.chat.conversation import chat_prompt

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

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
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
STEPS, RATE = 110, 2e-3


def write(folder):
    """Train the model and write it as a Hugging Face folder."""
    loaded = zoo.load("llama", dtype="float32")
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

    def loss(model):
        return nn.losses.cross_entropy(
            model.head(model.backbone(tokens)[row, column]), mx.array(targets)
        ).mean()

    optimizer = optim.Adam(RATE)
    step = nn.value_and_grad(loaded.model, loss)
    for _ in range(STEPS):
        _, gradients = step(loaded.model)
        optimizer.update(loaded.model, gradients)
        mx.eval(loaded.model.parameters(), optimizer.state)
    numbers = {**loaded.config, "max_position_embeddings": 512}
    save(folder, loaded.model, loaded.architecture, loaded.recipe, numbers)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((loaded.folder / file).read_bytes())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
