"""The built-in formats of tool calls, and the markers of the chat templates that use them. Imports no mlx."""

from __future__ import annotations

from zoo.architecture import CallFormat

HERMES = ("hermes",)
LLAMA = ("llama",)


def _format(
    name: str, target: str, *markers: str | tuple[str, ...], over: tuple[str, ...] = (), models: str
) -> CallFormat:
    listed = tuple((marker,) if isinstance(marker, str) else marker for marker in markers)
    return CallFormat(name, f"zoo.generation.chat.formats.{target}", listed, over, models)


CALL_FORMATS = (
    _format("apertus", "json_calls:APERTUS", "<|tools_prefix|>", models="Apertus"),
    _format(
        "command-a",
        "json_calls:COMMAND_A",
        "<|START_ACTION|>",
        over=("command-r",),
        models="Command R7B, Command A",
    ),
    _format(
        "command-r",
        "json_calls:COMMAND_R",
        ("Action:", '"tool_name"', "```json"),
        models="Command R, Command R+",
    ),
    _format(
        "deepseek",
        "sections:DEEPSEEK",
        "<｜tool▁call▁begin｜>",
        models="DeepSeek V3, R1, V3.1 and distillations of R1",
    ),
    _format("dsml", "xml_calls:DSML", "｜DSML｜", models="DeepSeek V3.2, V4"),
    _format("ernie", "json_calls:ERNIE", "</response>", over=HERMES, models="ERNIE 4.5 Thinking"),
    _format("firefunction", "json_calls:FIREFUNCTION", "functools[", over=LLAMA, models="FireFunction"),
    _format("function-gemma", "gemma:FUNCTION_GEMMA", "<start_function_call>", models="FunctionGemma"),
    _format("functionary", "functionary:TAGGED", "<function=", over=LLAMA, models="Functionary 3.1"),
    _format(
        "functionary-recipients", "functionary:RECIPIENTS", ">>>all", over=LLAMA, models="Functionary 3, 3.2"
    ),
    _format("gemma-4", "gemma:GEMMA_4", "<|tool_call>", models="Gemma 4"),
    _format("gigachat", "json_calls:GIGACHAT", ("<|role_sep|>", "function call"), models="GigaChat 3"),
    _format(
        "glm", "xml_calls:GLM", "<arg_key>", over=HERMES, models="GLM 4.5 to 5, Ling 3, Laguna, Spark 2.5"
    ),
    _format("granite", "json_calls:GRANITE", "<|tool_call|>", models="Granite 3, Phi-4-mini"),
    _format("harmony", "harmony:HARMONY", ("<|channel|>", "<|message|>"), models="gpt-oss"),
    _format(
        "hermes",
        "json_calls:HERMES",
        *(("<tool_call>", sign) for sign in ('"arguments', "function | tojson", "function|tojson")),
        models="Qwen 2.5, Qwen 3, QwQ, Hermes, Granite 4, EXAONE 4, Ling 2, MiMo, Reka Edge, Bielik",
    ),
    _format("hunyuan", "xml_calls:HUNYUAN", "<tool_calls{}>", models="Hunyuan 3"),
    _format(
        "hunyuan-a13b",
        "json_calls:HUNYUAN_A13B",
        ("</answer>", "</think>"),
        over=("tool-calls", "hermes"),
        models="Hunyuan A13B, 0.5B to 7B",
    ),
    _format("internlm", "json_calls:INTERNLM", "<|action_start|>", models="InternLM 2.5, 3"),
    _format("kimi-k2", "sections:KIMI_K2", "<|tool_call_argument_begin|>", models="Kimi K2"),
    _format("kimi-k3", "xml_calls:KIMI_K3", ("<|open|>", "<|sep|>"), models="Kimi K3"),
    _format("lfm2", "python_calls:LFM2", "<|tool_call_start|>", "List of tools: ", models="LFM2, LFM2.5"),
    _format(
        "llama",
        "llama:LLAMA",
        *((header, '"parameters"') for header in ("<|start_header_id|>", "<|header_start|>")),
        "func_name1(",
        models="LLaMA 3.1 to 4, and lists of Python's calls",
    ),
    _format("longcat", "xml_calls:LONGCAT", "<longcat_tool_call>", models="LongCat"),
    _format("minicpm", "xml_calls:MINICPM", '<function name="', models="MiniCPM5"),
    _format("minimax-m2", "xml_calls:MINIMAX_M2", "<minimax:tool_call>", models="MiniMax M2"),
    _format("minimax-m3", "minimax_m3:MINIMAX_M3", "]<]minimax[>[", over=HERMES, models="MiniMax M3"),
    _format("mistral", "mistral:MISTRAL", "[TOOL_CALLS]", models="Mistral, Ministral, Devstral, Magistral"),
    _format("nemotron", "json_calls:NEMOTRON", "<TOOLCALL>", over=LLAMA, models="Nemotron, Nemotron Nano 2"),
    _format("olmo", "python_calls:OLMO_3", "<function_calls>", models="OLMo 3"),
    _format(
        "qwen-coder",
        "xml_calls:QWEN_CODER",
        ("<tool_call>", "<function="),
        over=("hermes", "functionary"),
        models="Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5",
    ),
    _format("seed", "xml_calls:SEED", "<seed:tool_call>", over=("functionary",), models="Seed-OSS"),
    _format("solar", "sections:SOLAR", "<|tool_call:begin|>", models="Solar Open"),
    _format(
        "tool-calls",
        "json_calls:TOOL_CALLS",
        "<tool_calls>",
        over=HERMES,
        models="Apriel, MiniMax M1, Jamba",
    ),
)
