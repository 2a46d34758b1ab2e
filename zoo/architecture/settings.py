"""`Settings`: how one text is generated, as one record whose fields declare the settings. Imports no mlx.

The command line, Python's arguments and the server's fields are made of these declarations. A strategy names those that it
takes in its `settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from zoo.architecture.setting import HUGE, MOST, Setting, count_setting, number_setting
from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.recipe.policy import BITS, GROUP, CachePolicy
from zoo.recipe.policy import GROUPS as GROUP_SIZES

BREAKERS = ("\n", ":", '"', "*")  # those of DRY's author


def _declare(default: object, kind: object, help: str, **declaration: Any) -> Any:
    """A field of `Settings`: its value where none is given, and what its `Setting` declares."""
    return field(default=default, metadata={"kind": kind, "help": help, **declaration})


def _count(default: object, help: str, minimum: int = 0, maximum: int = MOST, **declaration: Any) -> Any:
    return _declare(default, int, help, minimum=minimum, maximum=maximum, **declaration)


def _number(
    default: float | None, help: str, maximum: float = 1, minimum: float | None = 0, **declaration: Any
) -> Any:
    return _declare(default, float, help, minimum=minimum, maximum=maximum, **declaration)


@frozen(kw_only=True)
class Settings(Frozen):
    """How one text is generated: each field has the value of the setting that it declares.

    A field's default is off, or None for what the checkpoint says (`max_tokens`). `samplers` are those of plugins, by name,
    each with its settings. PromptError for settings that do not go together.
    """

    max_tokens: int | None = _count(None, "Maximum number of tokens to generate (256).", 1)
    min_tokens: int = _count(0, "Minimum number of tokens to generate, an end token included.")
    max_time: float | None = _number(None, "Maximum time in seconds, prompt processing included.", HUGE)
    stop: tuple[str, ...] = _declare(
        (), str, "Stop before this text; may be given several times.", several=True
    )
    stop_tokens: tuple[int, ...] = _count(
        (), "Stop at this token id; may be given several times.", several=True
    )

    temperature: float = _number(
        0.0, "Sampling temperature; 0 is greedy decoding.", HUGE, 1 / HUGE, also=(0,)
    )
    top_k: int = _count(0, "Sample from the k likeliest tokens (0: all).", maximum=2**63 - 1)
    top_p: float = _number(
        1.0,
        "Sample from the likeliest tokens that reach probability p together (nucleus sampling).",
        minimum=None,
        above=0,
    )
    min_p: float = _number(0.0, "Sample from tokens at least p times as likely as the likeliest.")
    min_tokens_to_keep: int = _count(1, "Minimum number of tokens that each filter keeps (1).", 1)
    typical_p: float = _number(
        1.0,
        "Locally typical sampling: the tokens whose surprise is closest to the entropy, up to probability p together.",
        minimum=None,
        above=0,
    )
    xtc_probability: float = _number(
        0.0,
        "XTC: probability of a step at which all tokens above `xtc_threshold` but the least likely of them are removed.",
    )
    xtc_threshold: float = _number(0.1, "XTC: the probability above which tokens are removed (0.1).", 0.5)
    top_n_sigma: float = _number(
        0.0, "Sample from the logits within n standard deviations of the largest (0: all).", HUGE
    )
    mirostat: int = _declare(
        0,
        int,
        "2: Mirostat 2, which holds the surprise of the text at `mirostat_tau`; 0: off.",
        choices=(0, 2),
    )
    mirostat_tau: float = _number(5.0, "Mirostat: target surprise in bits (5).", HUGE)
    mirostat_eta: float = _number(0.1, "Mirostat: learning rate (0.1).")
    seed: int | None = _count(None, "Random seed; the same seed gives the same text.", maximum=2**64 - 1)
    samplers: Mapping[str, Mapping[str, Any]] | None = None

    repetition_penalty: float = _number(
        1.0,
        "Penalty on tokens that the text already has: divides positive logits, multiplies negative ones (1: off).",
        1e3,
        1e-3,
    )
    repetition_context_size: int = _count(
        0, "Number of last tokens that the repetition penalty looks at (0: all)."
    )
    presence_penalty: float = _number(
        0.0, "Subtracted from the logit of every token that was generated (0: off).", 100, -100
    )
    frequency_penalty: float = _number(
        0.0, "Subtracted from a token's logit once for each time it was generated (0: off).", 100, -100
    )
    dry_multiplier: float = _number(
        0.0,
        "DRY: penalty on a token that continues a repetition; it grows with the length of the repetition (0: off).",
        100,
    )
    dry_base: float = _number(1.75, "DRY: base of the exponential growth of the penalty (1.75).", 100, 1)
    dry_allowed_length: int = _count(2, "DRY: longest repetition without a penalty (2).", 1)
    dry_breakers: tuple[str, ...] = _declare(
        BREAKERS, str, 'DRY: text at which a repetition ends (line break, ":", \'"\', "*").', several=True
    )
    no_repeat_ngram_size: int = _count(0, "Generate no sequence of this many tokens twice (0: off).")
    exponential_decay_length_penalty: tuple[int, float] | None = _declare(
        None,
        tuple,
        "End tokens become likelier with each token after START, exponentially with the base DECAY.",
        items=(count_setting("start", ""), number_setting("decay", "", 100, None, above=0)),
    )
    logit_bias: Mapping[int, float] | None = _declare(
        None, dict, 'Numbers to add to logits: a JSON object by token id, {"464": -5}.'
    )
    banned: tuple[str, ...] = _declare(
        (), str, "Never generate this text; may be given several times.", several=True
    )
    logits_processors: tuple[Callable[..., Any], ...] = _declare(
        (),
        Callable,
        "Functions (tokens, logits) -> logits, called before each token is chosen.",
        several=True,
    )

    guidance_scale: float = _number(
        1.0,
        "Classifier-free guidance: above 1 favours tokens that the prompt makes likelier than `negative_prompt` does (1: off).",
        100,
    )
    negative_prompt: str | Sequence[int] | None = _declare(
        None,
        object,
        "Prompt that guidance leads away from, as text or token ids (the last token of the prompt).",
        metavar="TEXT",
    )

    json_schema: Mapping[str, Any] | bool | None = _declare(
        None, dict, "Generate JSON that matches this JSON Schema.", file=True, also=(True, False)
    )
    regex: str | None = _declare(None, str, "Generate text that matches this regular expression as a whole.")
    grammar: str | None = _declare(None, str, "Generate text of this grammar, in Lark or GBNF.", file=True)

    logprobs: bool | int = _count(
        False, "Return the log-probability of each token and of this many alternatives.", also=(True, False)
    )
    prompt_logprobs: bool | int = _count(
        False,
        "Return the log-probability of each token of the prompt and of this many alternatives.",
        also=(True, False),
    )

    source_language: str | None = _declare(
        None, str, "Language of the prompt, for models with several: eng_Latn, en."
    )
    target_language: str | None = _declare(None, str, "Language to translate into: fra_Latn, fr.")
    prefill_chunk: int | None = _count(None, "Process a long prompt in chunks of this many tokens.", 1)
    special_tokens: bool = _declare(True, bool, "Add the special tokens of the tokenizer to the prompt.")
    adapter: str | None = _declare(None, str, "Adapter to use, one of those that the model was loaded with.")

    max_kv_size: int | None = _count(
        None, "Maximum number of tokens in the KV cache: the first `keep` and the newest.", 2
    )
    keep: int = _count(0, "Number of first tokens that `max_kv_size` keeps (0).")
    kv_bits: int | None = _declare(None, int, "Quantize the KV cache to 4 or 8 bits.", choices=BITS)
    key_bits: int | None = _declare(None, int, "Bits of the keys, if not those of `kv_bits`.", choices=BITS)
    value_bits: int | None = _declare(
        None, int, "Bits of the values, if not those of `kv_bits`.", choices=BITS
    )
    kv_group_size: int = _declare(
        GROUP, int, "Group size of the quantized KV cache (64).", choices=GROUP_SIZES[::-1]
    )
    kv_start: int = _count(0, "Number of first tokens that are not quantized (0).")

    prompt_lookup: int = _count(
        0,
        "Prompt lookup: draft this many tokens a step from earlier text that ends alike (0: off).",
        maximum=64,
    )
    draft_model: Any = _declare(
        None,
        object,
        "Smaller model that drafts: what `zoo run` takes, or a loaded model.",
        metavar="SOURCE",
    )
    draft_tokens: int | None = _count(None, "Number of tokens in a draft (4).", 1, 64)
    own_draft: bool = _declare(False, bool, "Draft with the checkpoint's multi-token prediction layer.")

    def __post_init__(self) -> None:
        self.policy()
        asked = [setting.name for setting in CONSTRAINTS if getattr(self, setting.name) is not None]
        if len(asked) > 1:
            raise PromptError(f"`{asked[0]}` and `{asked[1]}` cannot be given together")
        if self.negative_prompt is not None and self.guidance_scale == 1:
            raise PromptError("`negative_prompt` needs a `guidance_scale` other than 1")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, and none drawn."""
        return self.temperature == 0

    @property
    def drafts(self) -> bool:
        """Whether speculative decoding is asked for."""
        return bool(self.prompt_lookup or self.draft_model is not None or self.own_draft or self.draft_tokens)

    def policy(self, reserve: int = 0) -> CachePolicy:
        """How caches are made, with room for `reserve` tokens."""
        return CachePolicy.of(reserve=reserve, **{name: getattr(self, name) for name in POLICY})


@frozen()
class BeamSettings(Frozen):
    """The settings of the beam search alone; of these a generation_config.json has some, too."""

    beams: int = _count(1, "Number of beams (1: greedy).", 1, 256)
    length_penalty: float = _number(1.0, "Above 1 favours longer texts, below 1 shorter ones (1).", 100, -100)
    early_stopping: bool | Literal["never"] = _declare(
        False,
        bool,
        "Stop when as many texts are finished as there are beams (false).",
        also=("never",),
    )
    beam_groups: int = _count(1, "Number of groups of beams that search for different texts (1).", 1, 256)
    diversity_penalty: float = _number(
        0.0, "Subtracted from a token's score for each beam of an earlier group that chose it.", 100
    )
    return_sequences: int = _count(1, "Number of texts to return, best first (1).", 1, 256)


SETTINGS, BEAM_SEARCH = (
    tuple(Setting(name, **field.metadata) for name, field in fields.items() if field.metadata)
    for fields in (Settings.__dataclass_fields__, BeamSettings.__dataclass_fields__)
)
SHARED: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}

# The title of each group of settings, by the group's first setting.
TITLES = {
    "max_tokens": "Length and stops",
    "temperature": "Sampling",
    "repetition_penalty": "Penalties and bans",
    "guidance_scale": "Guidance",
    "json_schema": "Constraints",
    "logprobs": "Log-probabilities",
    "source_language": "Prompt",
    "max_kv_size": "Cache",
    "prompt_lookup": "Speculative decoding",
}


def _group(settings: Sequence[Setting]) -> dict[str, tuple[Setting, ...]]:
    """The settings by the titles of their groups."""
    groups: dict[str, tuple[Setting, ...]] = {}
    title = ""
    for setting in settings:
        title = TITLES.get(setting.name, title)
        groups[title] = (*groups.get(title, ()), setting)
    return groups


GROUPS = _group(SETTINGS)
LIMITS, SAMPLING, PENALTIES, GUIDANCE, CONSTRAINTS, _, PROMPT, CACHE, _ = GROUPS.values()
POLICY = (*(setting.name for setting in CACHE), "adapter")
