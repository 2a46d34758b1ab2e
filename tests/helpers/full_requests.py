"""A request of every endpoint with an object at each place that may have one."""

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
FUNCTION = {"name": "f", "description": "About.", "parameters": SCHEMA, "strict": True}
CALL = {"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
MARK = {"type": "ephemeral"}
TEXT = {"type": "text", "text": "Hi", "cache_control": MARK}
SAID = {"type": "text", "text": "Hi", "citations": []}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}, "caller": {"type": "direct"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [TEXT], "is_error": False}
TOOL = {"name": "f", "input_schema": SCHEMA, "description": "About.", "cache_control": MARK, "strict": True}
CHAT = {
    "messages": [
        {"role": "user", "content": [TEXT], "name": "me"},
        {"role": "assistant", "content": "x", "reasoning_content": "y", "refusal": "n", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "z"},
    ],
    "stream_options": {"include_usage": True},
    "logit_bias": {"1": 2},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
    },
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "chat_template_kwargs": {"x": {}},
    "metadata": {"a": "b"},
}
MESSAGES = {
    "max_tokens": 5,
    "messages": [
        {"role": "user", "content": [TEXT]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}, SAID, USE]},
        {"role": "user", "content": [RESULT]},
    ],
    "system": [TEXT],
    "tools": [TOOL],
    "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "cache_control": MARK,
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
}
RESPONSES = {
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "f",
            "arguments": "{}",
            "caller": {"type": "direct"},
        },
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "z"}]},
    ],
    "stream_options": {"include_obfuscation": False},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}, "verbosity": "medium"},
    "tools": [{"type": "function", **FUNCTION}],
    "tool_choice": {"type": "function", "name": "f"},
    "reasoning": {"effort": "low", "summary": "auto"},
}
OLLAMA = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "x", "thinking": "y", "tool_calls": [CALL]},
        {"role": "tool", "tool_name": "f", "content": "z"},
    ],
    "options": {"num_ctx": 64, "temperature": 0.5, "num_gpu": 1},
    "tools": [{"type": "function", "function": FUNCTION}],
    "format": "json",
    "keep_alive": "5m",
}
FULL = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "Hi", "stream_options": {"include_usage": True}, "logit_bias": {"1": 2}},
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": {name: MESSAGES[name] for name in MESSAGES if name != "max_tokens"},
    "/v1/embeddings": {"input": ["Hi"]},
    "/v1/rerank": {"query": "Hi", "documents": ["Ho"], "top_n": 1},
    "/v2/rerank": {"query": "Hi", "documents": ["Ho"], "top_n": 1},
    "/rerank": {"query": "Hi", "documents": ["Ho"], "top_n": 1},
    "/score": {"text_1": "Hi", "text_2": ["Ho"]},
    "/v1/score": {"text_1": "Hi", "text_2": ["Ho"]},
    "/classify": {"input": ["Hi"]},
    "/tokenize": {name: CHAT[name] for name in ("messages", "tools", "chat_template_kwargs")},
    "/detokenize": {"tokens": [1]},
    "/api/chat": OLLAMA,
    "/api/generate": {"model": "m", "prompt": "Hi", "options": OLLAMA["options"]},
    "/api/embed": {"model": "m", "input": ["Hi"], "options": OLLAMA["options"]},
    "/api/embeddings": {"model": "m", "prompt": "Hi", "options": OLLAMA["options"]},
    "/api/show": {"model": "m"},
}
