"""The settings of generation that strategies share: a strategy names those it takes in its `options`. Imports no mlx."""

from __future__ import annotations

from zoo.architecture.settings import Setting

MOST = 2**31 - 1  # MLX counts in 32 bits
HUGE = 1e30
BITS = (4, 8)
BREAKERS = ("\n", ":", '"', "*")  # those of DRY's author

LIMITS = (
    Setting("max_tokens", int, minimum=1, maximum=MOST, help="Most tokens to generate (256)."),
    Setting(
        "min_tokens", int, minimum=0, maximum=MOST, help="Least tokens to generate, an end token included."
    ),
    Setting(
        "max_time", float, minimum=0, maximum=HUGE, help="Most seconds to generate, the prompt's included."
    ),
    Setting("stop", str, several=True, help="End before this text; may be given several times."),
    Setting(
        "stop_tokens",
        int,
        minimum=0,
        maximum=MOST,
        several=True,
        help="End at this token; may be given several times.",
    ),
    Setting("stop_regex", str, help="End before what this regular expression matches."),
)

SAMPLING = (
    Setting(
        "temperature", float, minimum=0, maximum=HUGE, help="0 is greedy; below 1 sharpens, above 1 flattens."
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
    Setting(
        "typical_p",
        float,
        minimum=0,
        maximum=1,
        help="Draw from the tokens whose surprise is nearest to the entropy and that reach probability p together.",
    ),
    Setting(
        "xtc_probability",
        float,
        minimum=0,
        maximum=1,
        help="How often all tokens above `xtc_threshold` but the least likely of them are left out (XTC).",
    ),
    Setting(
        "xtc_threshold",
        float,
        minimum=0,
        maximum=0.5,
        help="The probability above which XTC leaves out (0.1).",
    ),
    Setting(
        "top_n_sigma",
        float,
        minimum=0,
        maximum=HUGE,
        help="Draw from the logits within n standard deviations of the largest (0: all).",
    ),
    Setting(
        "mirostat",
        int,
        choices=(0, 2),
        help="2: keep the surprise of the text at `mirostat_tau` (Mirostat 2).",
    ),
    Setting("mirostat_tau", float, minimum=0, maximum=HUGE, help="Mirostat's surprise, in bits (5)."),
    Setting("mirostat_eta", float, minimum=0, maximum=1, help="How fast Mirostat learns (0.1)."),
    Setting("seed", int, minimum=0, maximum=2**64 - 1, help="Make draws repeatable."),
)

PENALTIES = (
    Setting(
        "repetition_penalty",
        float,
        minimum=1e-3,
        maximum=1e3,
        help="Divide the positive logits of tokens that the text has by this, multiply the negative ones (1: off).",
    ),
    Setting(
        "repetition_context_size",
        int,
        minimum=0,
        maximum=MOST,
        help="How many of the last tokens the repetition penalty looks at (0: all).",
    ),
    Setting(
        "presence_penalty",
        float,
        minimum=-100,
        maximum=100,
        help="Taken from the logits of tokens that were generated (0: off).",
    ),
    Setting(
        "frequency_penalty",
        float,
        minimum=-100,
        maximum=100,
        help="Taken from the logits of generated tokens as often as they came (0: off).",
    ),
    Setting(
        "dry_multiplier",
        float,
        minimum=0,
        maximum=100,
        help="Penalise what goes on with a repetition, more the longer it is (DRY; 0: off).",
    ),
    Setting(
        "dry_base",
        float,
        minimum=1,
        maximum=100,
        help="How DRY's penalty grows with a repetition's length (1.75).",
    ),
    Setting(
        "dry_allowed_length", int, minimum=1, maximum=MOST, help="The longest repetition that DRY allows (2)."
    ),
    Setting(
        "dry_breakers",
        str,
        several=True,
        help='A text that DRY does not look across (line break, ":", \'"\', "*").',
    ),
    Setting(
        "no_repeat_ngram_size",
        int,
        minimum=0,
        maximum=MOST,
        help="Let no run of so many tokens come twice (0: off).",
    ),
    Setting("logit_bias", dict, help='Add to the logits of tokens: a JSON object of ids, {"464": -5}.'),
    Setting("banned", str, several=True, help="Never generate this text; may be given several times."),
)

CONSTRAINTS = (
    Setting("json_schema", dict, file=True, help="Generate only JSON that this JSON Schema allows."),
    Setting("regex", str, help="Generate only what this regular expression matches as a whole."),
    Setting("grammar", str, file=True, help="Generate only what this grammar, Lark or GBNF, derives."),
)

OUTPUT = (
    Setting(
        "logprobs",
        int,
        minimum=0,
        maximum=MOST,
        also=(True, False),
        help="Give each token's log-probability, and of so many alternatives.",
    ),
    Setting(
        "prompt_logprobs",
        int,
        minimum=0,
        maximum=MOST,
        also=(True, False),
        help="Give the log-probabilities of the prompt's tokens, and of so many alternatives.",
    ),
)

PROMPT = (
    Setting("source_language", str, help="The language of the prompt, for models with several."),
    Setting("target_language", str, help="The language to translate into: fra_Latn, fr."),
    Setting(
        "prefill_chunk", int, minimum=1, maximum=MOST, help="Read a long prompt in pieces of so many tokens."
    ),
    Setting("special_tokens", bool, help="Let the tokenizer add its special tokens to the prompt."),
)

CACHE = (
    Setting(
        "max_kv_size",
        int,
        minimum=2,
        maximum=MOST,
        help="Keep the keys and values of at most so many tokens: the first `keep`, and the newest.",
    ),
    Setting(
        "keep", int, minimum=0, maximum=MOST, help="How many of the first tokens `max_kv_size` keeps (0)."
    ),
    Setting("kv_bits", int, choices=BITS, help="Keep keys and values in 4 or 8 bits."),
    Setting(
        "key_bits", int, choices=BITS, help="The bits of the keys, where they are not those of `kv_bits`."
    ),
    Setting(
        "value_bits", int, choices=BITS, help="The bits of the values, where they are not those of `kv_bits`."
    ),
    Setting(
        "kv_group_size", int, choices=(32, 64, 128), help="How many numbers of the cache share a scale (64)."
    ),
    Setting(
        "kv_start",
        int,
        minimum=0,
        maximum=MOST,
        help="How many of the first tokens keep their full precision (0).",
    ),
)

DRAFTING = (
    Setting(
        "prompt_lookup",
        int,
        minimum=0,
        maximum=64,
        help="Draft so many tokens a step from where the text has its last words before (0: off).",
    ),
    Setting(
        "draft_model", object, help="Draft with this smaller model: what `zoo run` takes, or a loaded model."
    ),
    Setting("draft_tokens", int, minimum=1, maximum=64, help="How many tokens a draft has (4)."),
    Setting("own_draft", bool, help="Draft with the checkpoint's own layer for the tokens after the next."),
)

SETTINGS = (*LIMITS, *SAMPLING, *PENALTIES, *CONSTRAINTS, *OUTPUT, *PROMPT, *CACHE, *DRAFTING)

SHARED: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}
