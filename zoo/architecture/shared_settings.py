"""The settings of generation that strategies share: a strategy names those it takes in its `options`. Imports no mlx."""

from __future__ import annotations

from zoo.architecture.settings import Setting

MOST = 2**31 - 1  # MLX counts in 32 bits

SETTINGS = (
    Setting("max_tokens", int, minimum=1, maximum=MOST, help="Most tokens to generate (256)."),
    Setting(
        "min_tokens", int, minimum=0, maximum=MOST, help="Least tokens to generate, an end token included."
    ),
    Setting(
        "temperature",
        float,
        minimum=0,
        maximum=1e30,
        help="0 is greedy; below 1 sharpens, above 1 flattens.",
    ),
    Setting("top_k", int, minimum=0, maximum=2**63 - 1, help="Draw from the k likeliest tokens (0: all)."),
    Setting(
        "top_p",
        float,
        minimum=0,
        maximum=1,
        help="Draw from the likeliest tokens that reach probability p together.",
    ),
    Setting(
        "min_p",
        float,
        minimum=0,
        maximum=1,
        help="Draw from tokens at least p times as likely as the likeliest.",
    ),
    Setting("seed", int, minimum=0, maximum=2**64 - 1, help="Make draws repeatable."),
    Setting("stop", str, several=True, help="End before this text; may be given several times."),
    Setting("source_language", str, help="The language of the prompt, for models with several."),
    Setting("target_language", str, help="The language to translate into: fra_Latn, fr."),
    Setting(
        "prefill_chunk", int, minimum=1, maximum=MOST, help="Read a long prompt in pieces of so many tokens."
    ),
    Setting(
        "logprobs",
        int,
        minimum=0,
        maximum=MOST,
        also=(True, False),
        help="Give each token's log-probability, and of so many alternatives.",
    ),
    Setting("special_tokens", bool, help="Let the tokenizer add its special tokens to the prompt."),
)

SHARED: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}
