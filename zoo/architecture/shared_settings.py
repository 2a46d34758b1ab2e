"""The settings of generation that strategies share: a strategy names those it takes in its `settings`. Imports no mlx."""

from __future__ import annotations

from zoo.architecture.settings import Setting

MOST = 2**31 - 1  # MLX counts in 32 bits
HUGE = 1e30
BITS = (4, 8)
BREAKERS = ("\n", ":", '"', "*")  # those of DRY's author

LIMITS = (
    Setting("max_tokens", int, minimum=1, maximum=MOST, help="Maximum number of tokens to generate (256)."),
    Setting(
        "min_tokens",
        int,
        minimum=0,
        maximum=MOST,
        help="Minimum number of tokens to generate, an end token included.",
    ),
    Setting(
        "max_time",
        float,
        minimum=0,
        maximum=HUGE,
        help="Maximum time in seconds, prompt processing included.",
    ),
    Setting("stop", str, several=True, help="Stop before this text; may be given several times."),
    Setting(
        "stop_tokens",
        int,
        minimum=0,
        maximum=MOST,
        several=True,
        help="Stop at this token id; may be given several times.",
    ),
    Setting("stop_regex", str, help="Stop before text that this regular expression matches."),
)

SAMPLING = (
    Setting(
        "temperature",
        float,
        minimum=1 / HUGE,
        maximum=HUGE,
        also=(0,),
        help="Sampling temperature; 0 is greedy decoding.",
    ),
    Setting("top_k", int, minimum=0, maximum=2**63 - 1, help="Sample from the k likeliest tokens (0: all)."),
    Setting(
        "top_p",
        float,
        above=0,
        maximum=1,
        help="Sample from the likeliest tokens that reach probability p together (nucleus sampling).",
    ),
    Setting(
        "min_p",
        float,
        minimum=0,
        maximum=1,
        help="Sample from tokens at least p times as likely as the likeliest.",
    ),
    Setting(
        "typical_p",
        float,
        above=0,
        maximum=1,
        help="Locally typical sampling: the tokens whose surprise is closest to the entropy, up to probability p together.",
    ),
    Setting(
        "xtc_probability",
        float,
        minimum=0,
        maximum=1,
        help="XTC: probability of a step at which all tokens above `xtc_threshold` but the least likely of them are removed.",
    ),
    Setting(
        "xtc_threshold",
        float,
        minimum=0,
        maximum=0.5,
        help="XTC: the probability above which tokens are removed (0.1).",
    ),
    Setting(
        "top_n_sigma",
        float,
        minimum=0,
        maximum=HUGE,
        help="Sample from the logits within n standard deviations of the largest (0: all).",
    ),
    Setting(
        "mirostat",
        int,
        choices=(0, 2),
        help="2: Mirostat 2, which holds the surprise of the text at `mirostat_tau`; 0: off.",
    ),
    Setting("mirostat_tau", float, minimum=0, maximum=HUGE, help="Mirostat: target surprise in bits (5)."),
    Setting("mirostat_eta", float, minimum=0, maximum=1, help="Mirostat: learning rate (0.1)."),
    Setting(
        "seed", int, minimum=0, maximum=2**64 - 1, help="Random seed; the same seed gives the same text."
    ),
)

PENALTIES = (
    Setting(
        "repetition_penalty",
        float,
        minimum=1e-3,
        maximum=1e3,
        help="Penalty on tokens that the text already has: divides positive logits, multiplies negative ones (1: off).",
    ),
    Setting(
        "repetition_context_size",
        int,
        minimum=0,
        maximum=MOST,
        help="Number of last tokens that the repetition penalty looks at (0: all).",
    ),
    Setting(
        "presence_penalty",
        float,
        minimum=-100,
        maximum=100,
        help="Subtracted from the logit of every token that was generated (0: off).",
    ),
    Setting(
        "frequency_penalty",
        float,
        minimum=-100,
        maximum=100,
        help="Subtracted from a token's logit once for each time it was generated (0: off).",
    ),
    Setting(
        "dry_multiplier",
        float,
        minimum=0,
        maximum=100,
        help="DRY: penalty on a token that continues a repetition; it grows with the length of the repetition (0: off).",
    ),
    Setting(
        "dry_base",
        float,
        minimum=1,
        maximum=100,
        help="DRY: base of the exponential growth of the penalty (1.75).",
    ),
    Setting(
        "dry_allowed_length",
        int,
        minimum=1,
        maximum=MOST,
        help="DRY: longest repetition without a penalty (2).",
    ),
    Setting(
        "dry_breakers",
        str,
        several=True,
        help='DRY: text at which a repetition ends (line break, ":", \'"\', "*").',
    ),
    Setting(
        "no_repeat_ngram_size",
        int,
        minimum=0,
        maximum=MOST,
        help="Generate no sequence of this many tokens twice (0: off).",
    ),
    Setting("logit_bias", dict, help='Numbers to add to logits: a JSON object by token id, {"464": -5}.'),
    Setting("banned", str, several=True, help="Never generate this text; may be given several times."),
)

CONSTRAINTS = (
    Setting("json_schema", dict, file=True, help="Generate JSON that matches this JSON Schema."),
    Setting("regex", str, help="Generate text that matches this regular expression as a whole."),
    Setting("grammar", str, file=True, help="Generate text of this grammar, in Lark or GBNF."),
)

OUTPUT = (
    Setting(
        "logprobs",
        int,
        minimum=0,
        maximum=MOST,
        also=(True, False),
        help="Return the log-probability of each token and of this many alternatives.",
    ),
    Setting(
        "prompt_logprobs",
        int,
        minimum=0,
        maximum=MOST,
        also=(True, False),
        help="Return the log-probability of each token of the prompt and of this many alternatives.",
    ),
)

PROMPT = (
    Setting("source_language", str, help="Language of the prompt, for models with several: eng_Latn, en."),
    Setting("target_language", str, help="Language to translate into: fra_Latn, fr."),
    Setting(
        "prefill_chunk",
        int,
        minimum=1,
        maximum=MOST,
        help="Process a long prompt in chunks of this many tokens.",
    ),
    Setting("special_tokens", bool, help="Add the special tokens of the tokenizer to the prompt."),
)

CACHE = (
    Setting(
        "max_kv_size",
        int,
        minimum=2,
        maximum=MOST,
        help="Maximum number of tokens in the KV cache: the first `keep` and the newest.",
    ),
    Setting(
        "keep", int, minimum=0, maximum=MOST, help="Number of first tokens that `max_kv_size` keeps (0)."
    ),
    Setting("kv_bits", int, choices=BITS, help="Quantize the KV cache to 4 or 8 bits."),
    Setting("key_bits", int, choices=BITS, help="Bits of the keys, if not those of `kv_bits`."),
    Setting("value_bits", int, choices=BITS, help="Bits of the values, if not those of `kv_bits`."),
    Setting("kv_group_size", int, choices=(32, 64, 128), help="Group size of the quantized KV cache (64)."),
    Setting(
        "kv_start",
        int,
        minimum=0,
        maximum=MOST,
        help="Number of first tokens that are not quantized (0).",
    ),
)

DRAFTING = (
    Setting(
        "prompt_lookup",
        int,
        minimum=0,
        maximum=64,
        help="Prompt lookup: draft this many tokens a step from earlier text that ends alike (0: off).",
    ),
    Setting(
        "draft_model", object, help="Smaller model that drafts: what `zoo run` takes, or a loaded model."
    ),
    Setting("draft_tokens", int, minimum=1, maximum=64, help="Number of tokens in a draft (4)."),
    Setting("own_draft", bool, help="Draft with the checkpoint's multi-token prediction layer."),
)

GROUPS: dict[str, tuple[Setting, ...]] = {
    "Length and stops": LIMITS,
    "Sampling": SAMPLING,
    "Penalties and bans": PENALTIES,
    "Constraints": CONSTRAINTS,
    "Log-probabilities": OUTPUT,
    "Prompt": PROMPT,
    "Cache": CACHE,
    "Speculative decoding": DRAFTING,
}

SETTINGS = tuple(setting for group in GROUPS.values() for setting in group)

SHARED: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}
