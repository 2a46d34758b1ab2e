"""Answers of models by the templates of `call_templates.toml`, and the text, thinking and calls that they are."""

PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome", "days": 3})
SUM, PING = ("add", {"x": 1, "y": 2}), ("ping", {})
PARIS_JSON = '{"name": "weather", "arguments": {"city": "Paris"}}'
SUM_JSON = '{"name": "add", "arguments": {"x": 1, "y": 2}}'
PING_JSON = '{"name": "ping", "arguments": {}}'
LITERALS = ("note", {"tags": ["a", "b"], "data": {"k": [1, None]}, "urgent": True})
HERMES_CALL = f"<tool_call>\n{PARIS_JSON}\n</tool_call>"


def function(name, newline="\n", **values):
    """A call as Qwen3-Coder writes it."""
    inner = "".join(f"<parameter={k}>{newline}{v}{newline}</parameter>\n" for k, v in values.items())
    return f"<function={name}>\n{inner}</function>"


def qwen(name, **values):
    """The same between its tags."""
    return f"<tool_call>\n{function(name, **values)}\n</tool_call>"


def keyed(name, line="\n", prefix="", **values):
    """A call as GLM writes it."""
    inner = "".join(
        f"<{prefix}arg_key>{k}</{prefix}arg_key>{line}<{prefix}arg_value>{v}</{prefix}arg_value>{line}"
        for k, v in values.items()
    )
    return f"<{prefix}tool_call>{name}{line}{inner}</{prefix}tool_call>"


def invoked(section, name, **values):
    """A call as MiniMax M2 writes it."""
    inner = "".join(f'<parameter name="{k}">{v}</parameter>\n' for k, v in values.items())
    return f'<{section}>\n<invoke name="{name}">\n{inner}</invoke>\n</{section}>'


def dsml(*values, section="function_calls", name="weather"):
    """A call as DeepSeek V3.2 writes it; each value has its key, whether it is a string, and its text."""
    mark = "｜DSML｜"
    inner = "".join(f'<{mark}parameter name="{k}" string="{s}">{v}</{mark}parameter>\n' for k, s, v in values)
    return f'<{mark}{section}>\n<{mark}invoke name="{name}">\n{inner}</{mark}invoke>\n</{mark}{section}>'


DEEPSEEK = "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>"
DEEPSEEK_CALL = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
FENCED = "{}\n```json\n{}\n```"
KIMI = "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>"
KIMI_CALL = "<|tool_call_begin|>functions.{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
K3 = "<|close|>think<|sep|><|open|>response<|sep|>{}<|close|>response<|sep|>"
K3_CALL = (
    '<|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>'
    'Rome<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>"
)
M3 = "]<]minimax[>["
M3_CALL = f'{M3}<tool_call>\n{M3}<invoke name="note">{M3}<msg>3.10{M3}</msg>{M3}<tags>{M3}<item>a{M3}</item>{M3}</tags>{M3}</invoke>\n{M3}</tool_call>'
CHANNEL = "<|channel|>commentary to={} <|constrain|>json<|message|>{}"
ACTION = '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Paris"}}\n]<|END_ACTION|>'
PARAMETERS_JSON = '{"name": "weather", "parameters": {"city": "Paris"}}'
SOLAR = "<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>weather<|tool_call:args|>{}<|tool_call:end|><|calls|>"

# The answer, the text, the thinking, the calls.
ANSWERS = {
    "qwen-2-5": [
        ("Hello <b>there</b>.\n", "Hello <b>there</b>.\n", "", []),
        (f"I look.\n{HERMES_CALL}\n<tool_call>\n{SUM_JSON}\n</tool_call>", "I look.", "", [PARIS, SUM]),
        (
            '<tool_call>\n{"name": "run", "arguments": {"code": "print(\'</tool_call>\')"}}\n</tool_call>',
            "", "", [("run", {"code": "print('</tool_call>')"})],
        ),
        ("Calls stand between <tool_call> and </tool_call>.",) * 2 + ("", []),
        (f"<tool_call>{SUM_JSON}\n{PARIS_JSON}</tool_call>", "", "", [SUM, PARIS]),
        ("<tool_call>\n{'name': 'add', 'arguments': {'x': 1, 'y': 2}}\n</tool_call>", "", "", [SUM]),
        (f"<tool_call>{PING_JSON}</tool_call> Done.", "Done.", "", [PING]),
        ('<tool_call>{"name": "add", "arguments": "{\\"x\\": 1, \\"y\\": 2}"}</tool_call>', "", "", [SUM]),
    ],
    "qwen-3": [
        (f"<think>\nHm, <tool_call>.\n</think>\n\n{HERMES_CALL}", "", "Hm, <tool_call>.", [PARIS]),
        ("<think>\nYes.\n</think>\n\nYes <think> no", "Yes <think> no", "Yes.", []),
        (f"<think>a</think><tool_call>{SUM_JSON}", "", "a", [SUM]),
    ],
    "hermes-3": [(HERMES_CALL, "", "", [PARIS])],
    "granite-4": [(f"{HERMES_CALL}\n<tool_call>\n{SUM_JSON}\n</tool_call>", "", "", [PARIS, SUM])],
    "ernie-4-5-thinking": [
        ("Hm.\n</think>\n\n<response>\nHello.\n</response>\n", "Hello.", "Hm.", []),
        (f"Hm.\n</think>\n\n{HERMES_CALL}\n", "", "Hm.", [PARIS]),
    ],
    "hunyuan-a13b": [
        ("<think>\nHm.\n</think>\n<answer>\nHello.\n</answer>", "Hello.", "Hm.", []),
        (f"<think>\n\n</think>\n<answer>\nI look.\n<tool_calls>[{PARIS_JSON}, {SUM_JSON}]</tool_calls>\n</answer>", "I look.", "", [PARIS, SUM]),
    ],
    "exaone-4": [(f"Yes.<tool_call>{SUM_JSON}</tool_call>", "Yes.", "", [SUM])],
    "reka-edge": [(f"Well.{HERMES_CALL}<tool_call>{PING_JSON}</tool_call>\n\n", "Well.", "", [PARIS, PING])],
    "qwen-3-coder": [
        (qwen("weather", city="Rome", days=3), "", "", [ROME]),
        (qwen("note", msg="3.10"), "", "", [("note", {"msg": "3.10"})]),
        (qwen("note", msg="None", urgent="False"), "", "", [("note", {"msg": None, "urgent": False})]),
        (qwen("note", tags="['a', 'b']", data="{'k': [1, None]}", urgent="True"), "", "", [LITERALS]),
        (f"I look.\n{function('weather', city='Paris')}\n</tool_call>\nWait.", "I look.Wait.", "", [PARIS]),
        (function("weather", city="Paris"), "", "", [PARIS]),
        (qwen("run", code="a = '</tool_call>'\nb = '</parameter>'"), "", "", [("run", {"code": "a = '</tool_call>'\nb = '</parameter>'"})]),
        (qwen("ping") + "\n" + qwen("weather", city="true"), "", "", [PING, ("weather", {"city": "true"})]),
        (qwen("weather", city="\nParis", days="three"), "", "", [("weather", {"city": "\nParis", "days": "three"})]),
    ],
    "qwen-3-5": [
        (f"I see.\n</think>\n\n{qwen('weather', city='Paris')}", "", "I see.", [PARIS]),
        (f"</think>\n\nYes.\n\n{qwen('weather', city='Rome', days=3)}", "Yes.", "", [ROME]),
    ],
    "nemotron-3": [(qwen("note", urgent="True", msg="null"), "", "", [("note", {"urgent": True, "msg": None})])],
    "step-3-5": [(qwen("ping") + qwen("weather", city="Paris"), "", "", [PING, PARIS])],
    "seed-oss": [
        (
            f"<seed:think>Hm.</seed:think>I look.<seed:tool_call>\n{function('weather', '', city='Rome', days=3)}\n</seed:tool_call>",
            "I look.", "Hm.", [ROME],
        ),
        (f"<seed:tool_call>\n{function('note', '', tags=['a', 'b'], data={'k': [1, None]}, urgent=True)}\n</seed:tool_call>", "", "", [LITERALS]),
    ],
    "glm-4-5": [
        (f"<think></think>\nI look.\n{keyed('weather', city='Rome', days=3)}", "I look.", "", [ROME]),
        (keyed("note", msg="3.10", tags='["a", "b"]', data='{"k": [1, null]}', urgent="true"), "", "", [("note", {"msg": "3.10", **LITERALS[1]})]),
        ("Name it between <tool_call>the name</tool_call>.",) * 2 + ("", []),
        (keyed("ping"), "", "", [PING]),
        (keyed("run", code="</tool_call>"), "", "", [("run", {"code": "</tool_call>"})]),
    ],
    "glm-4-7": [(f"Hm.</think>{keyed('weather', '', city='Paris')}{keyed('ping', '')}", "", "Hm.", [PARIS, PING])],
    "ling-3": [(f"Yes.\n{keyed('add', x=1, y=2)}", "Yes.", "", [SUM])],
    "longcat": [(keyed("weather", prefix="longcat_", city="Paris"), "", "", [PARIS])],
    "hunyuan-3": [
        (
            "<tool_calls:opensource>\n<tool_call:opensource>weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n"
            "<arg_value:opensource>Paris</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
            "", "", [PARIS],
        ),
    ],
    "deepseek-r1": [
        (
            "<think>\nHm.\n</think>\n\n"
            + DEEPSEEK.format(
                DEEPSEEK_CALL.format("function", FENCED.format("weather", '{"city": "Paris"}')) + "\n"
                + DEEPSEEK_CALL.format("function", FENCED.format("add", '{"x": 1, "y": 2}'))
            ),
            "", "Hm.", [PARIS, SUM],
        ),
        ("I look. " + DEEPSEEK_CALL.format("function", FENCED.format("ping", "{}")), "I look.", "", [PING]),
    ],
    "deepseek-v3-1": [
        (DEEPSEEK.format(DEEPSEEK_CALL.format("weather", '{"city": "Paris"}') * 2), "", "", [PARIS, PARIS]),
        ("Yes." + DEEPSEEK.format(DEEPSEEK_CALL.format("weather", '{"city": "Paris"}')).removesuffix("<｜tool▁calls▁end｜>"), "Yes.", "", [PARIS]),
    ],
    "deepseek-v3-2": [
        ("Hm.</think>\n\n" + dsml(("city", "true", "Rome"), ("days", "false", "3")), "", "Hm.", [ROME]),
        ("</think>" + dsml(("msg", "true", "3.10"), ("tags", "false", '["a"]'), name="note"), "", "", [("note", {"msg": "3.10", "tags": ["a"]})]),
        ("</think>" + dsml(("n", "true", "5"), ("m", "false", "5"), name="other"), "", "", [("other", {"n": "5", "m": 5})]),
    ],
    "deepseek-v4": [("Yes.\n\n" + dsml(("city", "true", "Paris"), section="tool_calls"), "Yes.", "", [PARIS])],
    "kimi-k2": [
        ("I look." + KIMI.format(KIMI_CALL.format("weather:0", '{"city": "Paris"}') + KIMI_CALL.format("ping:1", "{}")), "I look.", "", [PARIS, PING]),
        (KIMI_CALL.format("add:3", '{"x": 1, "y": 2}'), "", "", [SUM]),
    ],
    "kimi-k2-thinking": [("<think>Hm.</think>" + KIMI.format(KIMI_CALL.format("weather:0", '{"city": "Paris"}')), "", "Hm.", [PARIS])],
    "kimi-k3": [("Hm." + K3.format("I look.") + K3_CALL, "I look.", "Hm.", [ROME]), (K3.format("Hello."), "Hello.", "", [])],
    "minimax-m1": [(f"Yes.\n<tool_calls>\n{PARIS_JSON}\n{SUM_JSON}\n</tool_calls>", "Yes.", "", [PARIS, SUM])],
    "minimax-m2": [
        ("Hm.\n</think>\n\n" + invoked("minimax:tool_call", "weather", city="Rome", days=3), "", "Hm.", [ROME]),
        ("</think>" + invoked("minimax:tool_call", "note", msg="3.10", tags="['a', 'b']"), "", "", [("note", {"msg": "3.10", "tags": ["a", "b"]})]),
    ],
    "minimax-m3": [(f"Yes.{M3_CALL}", "Yes.", "", [("note", {"msg": "3.10", "tags": ["a"]})])],
    "function-gemma": [
        ("<start_function_call>call:weather{city:<escape>Rome<escape>,days:3}<end_function_call>", "", "", [ROME]),
        ("<start_function_call>call:ping{}<end_function_call><start_function_call>call:add{x:1,y:2}<end_function_call>", "", "", [PING, SUM]),
        ("<start_function_call>call:note{msg:3.10,tags:[<escape>a, b}<escape>]}<end_function_call>", "", "", [("note", {"msg": "3.10", "tags": ["a, b}"]})]),
    ],
    "gemma-4": [
        ('<|channel>thought\nHm.\n<channel|>I look.<|tool_call>call:weather{city:<|"|>Rome<|"|>,days:3}<tool_call|>', "I look.", "Hm.", [ROME]),
        ('<|tool_call>call:note{data:{k:[1,null]},tags:[<|"|>a<|"|>,<|"|>b<|"|>],urgent:true}<tool_call|>', "", "", [LITERALS]),
        ('<|tool_call>call:run{code:<|"|>{"x": 1}<tool_call|><|"|>}<tool_call|>', "", "", [("run", {"code": '{"x": 1}<tool_call|>'})]),
    ],
    "command-r-plus": [
        ('I look.\nAction:\n```json\n[\n    {\n        "tool_name": "weather",\n        "parameters": {"city": "Paris"}\n    }\n]\n```', "I look.", "", [PARIS]),
        ("Action: none, (or both) <b>.",) * 2 + ("", []),
        ('Action: ```json\n[{"tool_name": "ping", "parameters": {}}]\n```', "", "", [PING]),
    ],
    "command-r7b": [
        (f"I look.<|END_THINKING|>{ACTION}", "", "I look.", [PARIS]),
        ("Hm.<|END_THINKING|><|START_RESPONSE|>Hello.<|END_RESPONSE|>", "Hello.", "Hm.", []),
    ],
    "granite-3-3": [(f"<|tool_call|>[{PARIS_JSON}, {SUM_JSON}]", "", "", [PARIS, SUM]), (f"<tool_call>[{PARIS_JSON}]</tool_call>", "", "", [PARIS])],
    "phi-4-mini": [(f"<|tool_call|>[{PARIS_JSON}]<|/tool_call|>", "", "", [PARIS])],
    "lfm2": [
        ('<|tool_call_start|>[weather(city="Rome", days=3), ping()]<|tool_call_end|>I looked.', "I looked.", "", [ROME, PING]),
        ("<|tool_call_start|>[note(tags=['a', 'b'], data={'k': [1, null]}, urgent=true)]<|tool_call_end|>", "", "", [LITERALS]),
        (f"<|tool_call_start|>[{PARIS_JSON}]<|tool_call_end|>", "", "", [PARIS]),
        ('<|tool_call_start|>[run(code="it\'s <|tool_call_end|>")]<|tool_call_end|>', "", "", [("run", {"code": "it's <|tool_call_end|>"})]),
    ],
    "lfm2-5": [('<think>Hm.</think><|tool_call_start|>[weather(city="Paris")]<|tool_call_end|>', "", "Hm.", [PARIS])],
    "nemotron-nano-2": [(f"Yes.\n<TOOLCALL>[{PARIS_JSON}, {SUM_JSON}]</TOOLCALL>", "Yes.", "", [PARIS, SUM]), ("<TOOLCALL>[]</TOOLCALL>No.", "No.", "", [])],
    "llama-nemotron": [(f"<TOOLCALL>[{PARIS_JSON}]</TOOLCALL>", "", "", [PARIS])],
    "functionary-3-1": [
        ('<function=weather>{"city": "Paris"}</function><function=ping>{}</function>', "", "", [PARIS, PING]),
        ('So: <function=run>{"code": "</function>"}</function>', "So:", "", [("run", {"code": "</function>"})]),
    ],
    "functionary-3-2": [
        ('all\nI look.>>>weather\n{"city": "Paris"}>>>add\n{"x": 1, "y": 2}', "I look.", "", [PARIS, SUM]),
        ("all\n>>> is a prompt of Python.", ">>> is a prompt of Python.", "", []),
        ('weather\n{"city": "Paris"}', "", "", [PARIS]),
        ("Hello.",) * 2 + ("", []),
    ],
    "firefunction-2": [(f" functools[{PARIS_JSON}, {SUM_JSON}]", "", "", [PARIS, SUM]), ("import functools\n",) * 2 + ("", [])],
    "mistral-nemo": [(f"[TOOL_CALLS] [{PARIS_JSON}, {SUM_JSON}]", "", "", [PARIS, SUM]), ("a [list] of [TOOL",) * 2 + ("", [])],
    "devstral": [
        ('Well. [TOOL_CALLS]weather[ARGS]{"city": "Paris"}[TOOL_CALLS]add[ARGS]{"x": 1, "y": 2}', "Well.", "", [PARIS, SUM]),
    ],
    "magistral": [('[THINK]Hm.[/THINK][TOOL_CALLS]weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Paris"}', "", "Hm.", [PARIS])],
    "llama-3-1": [
        (PARAMETERS_JSON, "", "", [PARIS]),
        (f'\n{PARAMETERS_JSON}; {{"name": "add", "parameters": {{"x": 1, "y": 2}}}}', "", "", [PARIS, SUM]),
        (f"<|python_tag|>{PARAMETERS_JSON}", "", "", [PARIS]),
        ('<|python_tag|>weather.call(city="Paris")', "", "", [PARIS]),
        ('{"type": "function", "function": "weather", "parameters": {"city": "Paris"}}', "", "", [PARIS]),
        ('{"function": "weather", "parameters": {"city": "Paris"}}', "", "", [PARIS]),
        ('{"name": "Bob", "parameters": {}}',) * 2 + ("", []),
        ('{"answer": 1}\n',) * 2 + ("", []),
        ("Use {} there.",) * 2 + ("", []),
        ('<function=weather>{"city": "Paris"}</function>', "", "", [PARIS]),
        ("<|python_tag|>print(1)\n", "", "", [("python", {"code": "print(1)"})]),
    ],
    "llama-3-2-python": [
        ('[weather(city="Rome", days=3), ping()]', "", "", [ROME, PING]),
        ("[A list](of(x=1))",) * 2 + ("", []),
        ("[other(x=1)]",) * 2 + ("", []),
    ],
    "llama-4": [
        (PARAMETERS_JSON, "", "", [PARIS]),
        ('<|python_start|>[weather(city="Paris")]<|python_end|>', "", "", [PARIS]),
    ],
    "gpt-oss": [
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>", "Hi.", "Hm.", []),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + CHANNEL.format("functions.weather", '{"city": "Paris"}') + "<|call|>", "", "Hm.", [PARIS]),
        (CHANNEL.format("weather", '{"city": "Paris"}'), "", "", [PARIS]),
        (' to=functions.add<|channel|>commentary json<|message|>{"x": 1, "y": 2}<|call|>', "", "", [SUM]),
        (' to=ping<|channel|>commentary json<|message|>{}<|call|>', "", "", [PING]),
    ],
    "apriel-1-5": [
        (f"I look.\n<tool_calls>[{PARIS_JSON}, {SUM_JSON}]</tool_calls>", "I look.", "", [PARIS, SUM]),
        ("<tool_calls>[]</tool_calls>Hello.", "Hello.", "", []),
    ],
    "apertus": [
        ("<|inner_prefix|>Hm.<|inner_suffix|>Hello.", "Hello.", "Hm.", []),
        ('Yes.<|tools_prefix|>[{"weather": {"city": "Paris"}}, {"ping": {}}]<|tools_suffix|>', "Yes.", "", [PARIS, PING]),
    ],
    "solar-open": [
        (f"<|think|>Hm.<|end|><|begin|>assistant{SOLAR.format('{}')}".replace("weather", "ping"), "", "Hm.", [PING]),
        (SOLAR.format('{"city": "Paris"}'), "", "", [PARIS]),
        ("<|think|>Hm.<|end|><|begin|>assistant<|content|>Hello.", "Hello.", "Hm.", []),
    ],
    "gigachat-3": [(f"Yes.<|message_sep|>\n\nfunction call<|role_sep|>\n{PARIS_JSON}", "Yes.", "", [PARIS])],
    "gigachat-3-1": [(f"Yes.<|function_call|>{PARIS_JSON}<|message_sep|>", "Yes.", "", [PARIS])],
    "minicpm-5": [
        ('<function name="weather"><param name="city">Paris</param></function>\n<function name="run"><param name="code"><![CDATA[a < b]]></param></function>', "", "", [PARIS, ("run", {"code": "a < b"})]),
    ],
    "olmo-3": [('<function_calls>weather(city="Paris")\nadd(x=1, y=2)</function_calls>', "", "", [PARIS, SUM])],
    "internlm-3": [(f"Yes.<|action_start|><|plugin|>\n{PARAMETERS_JSON}<|action_end|>\n", "Yes.", "", [PARIS])],
}  # fmt: skip

# Answers with a call that cannot be read: all of it is text, and a warning says so.
MALFORMED = {
    "qwen-2-5": ['so: <tool_call>{"na', '<tool_call>{"name": "add"</tool_call> x', "<tool_call>add(1, 2)</tool_call>"],
    "qwen-3-coder": [function("weather", city="Paris")[:-11], qwen("weather", city="Paris")[:-24], "<tool_call>\n<function=weather>\n<parameter=city>\nPar", "<tool_call>\n<function=weather>Paris</function></tool_call>"],
    "glm-4-5": [keyed("weather", city="Paris")[:-12], "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Par"],
    "deepseek-v3-1": [DEEPSEEK.format(DEEPSEEK_CALL.format("weather", '{"city": '))],
    "kimi-k2": [KIMI_CALL.format("search:0", '{"q": "Ro'), KIMI.format("weather")],
    "minimax-m2": ["</think>" + invoked("minimax:tool_call", "weather", city="Paris")[:-40]],
    "gemma-4": ['<|tool_call>call:weather{city:<|"|>Par'],
    "lfm2": ['<|tool_call_start|>[weather("Paris")]<|tool_call_end|>', "<|tool_call_start|>[weather(city=f())]<|tool_call_end|>"],
    "mistral-nemo": ["[TOOL_CALLS]weather[ARGS]{", "[TOOL_CALLS]weather[ARGS]"],
    "llama-3-1": ['<|python_tag|>brave_search.call(query="Rome")', '{"name": "weather", "parame'],
    "functionary-3-2": ['>>>weather\n{"city": ', ">>>ping\n"],
    "gpt-oss": [CHANNEL.format("functions.weather", '{"city": "Pa'), CHANNEL.format("functions.ping", "")],
}  # fmt: skip
