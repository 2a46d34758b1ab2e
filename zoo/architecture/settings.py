"""Settings: their names, kinds, bounds and defaults. Imports no mlx.

A plugin declares its own for what it brings. The settings of generation are shared: a strategy names those it takes in its
`settings`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

from zoo.architecture.expected_value import HUGE, MOST, expected_value
from zoo.errors import PluginError, PromptError, did_you_mean
from zoo.frozen import Frozen, frozen

KINDS = (int, float, bool, str, dict, tuple, Callable, object)
NAME = re.compile(r"[a-z][a-z0-9_]*")


@frozen()
class Setting(Frozen):
    """One setting: its name in Python, its `kind`, its `default`, bounds and a line of help.

    The kind is int, float, bool, str, dict (a mapping, or a JSON object as text), tuple (a value of each of `items`, as
    text with commas between them), Callable, or object, for what the strategy itself checks: a loaded model for example.
    A number is at least `minimum`, more than `above` and at most `maximum`. `choices` are the only values if there are
    any, `also` values that are allowed beside those of the kind. `several`: one value or a list of them. `file`: on the
    command line its value is the path of a file that holds it. `metavar` is what the help of a command calls the value.
    """

    name: str
    kind: Any
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    help: str = ""
    choices: tuple[Any, ...] = ()
    also: tuple[Any, ...] = ()
    several: bool = False
    file: bool = False
    above: float | None = None
    items: tuple[Setting, ...] = ()
    metavar: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise PluginError(
                f"setting {self.name!r}: a name is small letters, digits and '_', a letter first"
            )
        if self.kind not in KINDS:
            raise PluginError(
                f"setting {self.name}: kind {self.kind!r} is not int, float, bool, str, dict, tuple, Callable or object"
            )
        if (self.kind is tuple) != bool(self.items):
            raise PluginError(f"setting {self.name}: items are those of the kind tuple, which needs them")
        for field, values in (("choices", self.choices), ("also", self.also)):
            if not isinstance(values, tuple):
                raise PluginError(f"setting {self.name}: {field} is a tuple of values, not {values!r:.60}")
        if self.default is not None:
            try:
                self.checked(self.default)
            except PromptError as error:
                raise PluginError(f"setting {self.name}: its default: {error}") from None

    def checked(self, value: Any) -> Any:
        """The value in this setting's kind; PromptError, naming the setting, for another kind or out of bounds."""
        if not self.several:
            return self._checked(value)
        values = value if isinstance(value, list | tuple) else (value,)
        return tuple(self._checked(item) for item in values if item != "")

    def _checked(self, value: Any) -> Any:
        if any(type(value) is type(extra) and value == extra for extra in self.also):
            return value
        converted = self._converted(value)
        if converted is None or not self._within(converted):
            raise PromptError(f"`{self.name}` must be {expected_value(self, converted)}, got {value!r:.60}")
        if isinstance(converted, str):
            try:
                converted.encode()
            except UnicodeEncodeError:
                raise PromptError(f"`{self.name}` must hold no lone surrogate, got {value!r:.60}") from None
        return converted

    def _converted(self, value: Any) -> Any:
        """The value as this kind, numbers of other libraries as Python's; None when it is of another kind."""
        if self.kind is int:
            return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
        if self.kind is float:
            try:
                return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None
            except OverflowError:
                return None
        if self.kind is tuple:
            with suppress(PromptError, TypeError, ValueError):
                return tuple(item.checked(part) for item, part in zip(self.items, value, strict=True))
            return None
        if self.kind is dict and isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        if self.kind is dict and any(value is extra for extra in self.also):
            return value
        if self.kind is dict and isinstance(value, Mapping):
            return dict(value)
        return value if isinstance(value, self.kind) else None

    def parsed(self, text: str) -> Any:
        """The value of a text, "0.5" or "true"; PromptError when it is not of this kind."""
        spelled = {str(extra).lower(): extra for extra in self.also}
        if self.kind is bool:
            spelled |= {"true": True, "false": False}
        value: Any = spelled.get(text.lower(), text)
        if value is text and self.kind in (int, float):
            with suppress(ValueError):
                value = self.kind(text)
        if self.kind is tuple:
            parts = zip(self.items, text.strip("[]").split(","), strict=True)
            with suppress(PromptError, ValueError):
                value = tuple(item.parsed(part.strip()) for item, part in parts)
        return self._checked(value)

    def _within(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.kind not in (int, float) or value in self.also:
            return True
        return (
            math.isfinite(value)
            and (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
        )

    @property
    def expected(self) -> str:
        """What a value must be, in words: "a whole number of at least 1"."""
        return expected_value(self)


def checked_settings(
    owner: str, declared: Iterable[Setting], given: Mapping[str, Any], complete: bool = True
) -> dict[str, Any]:
    """The given settings, checked, and the defaults of the others; PromptError for one that is not declared.

    `owner` is what they belong to, for the message. With `complete`, one that has no default must be given; otherwise it
    may be left out.
    """
    known = {setting.name: setting for setting in declared}
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name), known, f"; it has {', '.join(known) or 'none'}")
            raise PromptError(f"{owner} has no setting {name!r}{hint}")
    values = {name: setting.checked(given[name]) for name, setting in known.items() if name in given}
    missing = next((n for n, setting in known.items() if n not in values and setting.default is None), None)
    if complete and missing is not None:
        raise PromptError(f"{owner} needs its setting {missing}")
    defaults = {name: setting.default for name, setting in known.items() if setting.default is not None}
    return defaults | values


BITS = (4, 8)
BREAKERS = ("\n", ":", '"', "*")  # those of DRY's author


def count_setting(name: str, help: str, minimum: int = 0, maximum: int = MOST, **more: Any) -> Setting:
    """A setting that is a whole number."""
    return Setting(name, int, minimum=minimum, maximum=maximum, help=help, **more)


def number_setting(
    name: str, help: str, maximum: float = 1, minimum: float | None = 0, **more: Any
) -> Setting:
    """A setting that is a number from `minimum` to `maximum`."""
    return Setting(name, float, minimum=minimum, maximum=maximum, help=help, **more)


def _texts(name: str, help: str) -> Setting:
    """A setting that is one text or several."""
    return Setting(name, str, several=True, help=help)


LIMITS = (
    count_setting("max_tokens", "Maximum number of tokens to generate (256).", 1),
    count_setting("min_tokens", "Minimum number of tokens to generate, an end token included."),
    number_setting("max_time", "Maximum time in seconds, prompt processing included.", HUGE),
    _texts("stop", "Stop before this text; may be given several times."),
    count_setting("stop_tokens", "Stop at this token id; may be given several times.", several=True),
)

SAMPLING = (
    number_setting("temperature", "Sampling temperature; 0 is greedy decoding.", HUGE, 1 / HUGE, also=(0,)),
    count_setting("top_k", "Sample from the k likeliest tokens (0: all).", maximum=2**63 - 1),
    number_setting(
        "top_p",
        "Sample from the likeliest tokens that reach probability p together (nucleus sampling).",
        minimum=None,
        above=0,
    ),
    number_setting("min_p", "Sample from tokens at least p times as likely as the likeliest."),
    count_setting("min_tokens_to_keep", "Minimum number of tokens that each filter keeps (1).", 1),
    number_setting(
        "typical_p",
        "Locally typical sampling: the tokens whose surprise is closest to the entropy, up to probability p together.",
        minimum=None,
        above=0,
    ),
    number_setting(
        "xtc_probability",
        "XTC: probability of a step at which all tokens above `xtc_threshold` but the least likely of them are removed.",
    ),
    number_setting("xtc_threshold", "XTC: the probability above which tokens are removed (0.1).", 0.5),
    number_setting(
        "top_n_sigma", "Sample from the logits within n standard deviations of the largest (0: all).", HUGE
    ),
    Setting(
        "mirostat",
        int,
        choices=(0, 2),
        help="2: Mirostat 2, which holds the surprise of the text at `mirostat_tau`; 0: off.",
    ),
    number_setting("mirostat_tau", "Mirostat: target surprise in bits (5).", HUGE),
    number_setting("mirostat_eta", "Mirostat: learning rate (0.1)."),
    count_setting("seed", "Random seed; the same seed gives the same text.", maximum=2**64 - 1),
)

PENALTIES = (
    number_setting(
        "repetition_penalty",
        "Penalty on tokens that the text already has: divides positive logits, multiplies negative ones (1: off).",
        1e3,
        1e-3,
    ),
    count_setting(
        "repetition_context_size", "Number of last tokens that the repetition penalty looks at (0: all)."
    ),
    number_setting(
        "presence_penalty", "Subtracted from the logit of every token that was generated (0: off).", 100, -100
    ),
    number_setting(
        "frequency_penalty",
        "Subtracted from a token's logit once for each time it was generated (0: off).",
        100,
        -100,
    ),
    number_setting(
        "dry_multiplier",
        "DRY: penalty on a token that continues a repetition; it grows with the length of the repetition (0: off).",
        100,
    ),
    number_setting("dry_base", "DRY: base of the exponential growth of the penalty (1.75).", 100, 1),
    count_setting("dry_allowed_length", "DRY: longest repetition without a penalty (2).", 1),
    _texts("dry_breakers", 'DRY: text at which a repetition ends (line break, ":", \'"\', "*").'),
    count_setting("no_repeat_ngram_size", "Generate no sequence of this many tokens twice (0: off)."),
    Setting(
        "exponential_decay_length_penalty",
        tuple,
        items=(count_setting("start", ""), number_setting("decay", "", 100, None, above=0)),
        help="End tokens become likelier with each token after START, exponentially with the base DECAY.",
    ),
    Setting("logit_bias", dict, help='Numbers to add to logits: a JSON object by token id, {"464": -5}.'),
    _texts("banned", "Never generate this text; may be given several times."),
    Setting(
        "logits_processors",
        Callable,
        several=True,
        help="Functions (tokens, logits) -> logits, called before each token is chosen.",
    ),
)

GUIDANCE = (
    number_setting(
        "guidance_scale",
        "Classifier-free guidance: above 1 favours tokens that the prompt makes likelier than `negative_prompt` does (1: off).",
        100,
    ),
    Setting(
        "negative_prompt",
        object,
        metavar="TEXT",
        help="Prompt that guidance leads away from, as text or token ids (the last token of the prompt).",
    ),
)

CONSTRAINTS = (
    Setting(
        "json_schema",
        dict,
        file=True,
        also=(True, False),
        help="Generate JSON that matches this JSON Schema.",
    ),
    Setting("regex", str, help="Generate text that matches this regular expression as a whole."),
    Setting("grammar", str, file=True, help="Generate text of this grammar, in Lark or GBNF."),
)

OUTPUT = (
    count_setting(
        "logprobs",
        "Return the log-probability of each token and of this many alternatives.",
        also=(True, False),
    ),
    count_setting(
        "prompt_logprobs",
        "Return the log-probability of each token of the prompt and of this many alternatives.",
        also=(True, False),
    ),
)

PROMPT = (
    Setting("source_language", str, help="Language of the prompt, for models with several: eng_Latn, en."),
    Setting("target_language", str, help="Language to translate into: fra_Latn, fr."),
    count_setting("prefill_chunk", "Process a long prompt in chunks of this many tokens.", 1),
    Setting("special_tokens", bool, help="Add the special tokens of the tokenizer to the prompt."),
    Setting("adapter", str, help="Adapter to use, one of those that the model was loaded with."),
)

CACHE = (
    count_setting(
        "max_kv_size", "Maximum number of tokens in the KV cache: the first `keep` and the newest.", 2
    ),
    count_setting("keep", "Number of first tokens that `max_kv_size` keeps (0)."),
    Setting("kv_bits", int, choices=BITS, help="Quantize the KV cache to 4 or 8 bits."),
    Setting("key_bits", int, choices=BITS, help="Bits of the keys, if not those of `kv_bits`."),
    Setting("value_bits", int, choices=BITS, help="Bits of the values, if not those of `kv_bits`."),
    Setting("kv_group_size", int, choices=(32, 64, 128), help="Group size of the quantized KV cache (64)."),
    count_setting("kv_start", "Number of first tokens that are not quantized (0)."),
)

DRAFTING = (
    count_setting(
        "prompt_lookup",
        "Prompt lookup: draft this many tokens a step from earlier text that ends alike (0: off).",
        maximum=64,
    ),
    Setting(
        "draft_model",
        object,
        metavar="SOURCE",
        help="Smaller model that drafts: what `zoo run` takes, or a loaded model.",
    ),
    count_setting("draft_tokens", "Number of tokens in a draft (4).", 1, 64),
    Setting("own_draft", bool, help="Draft with the checkpoint's multi-token prediction layer."),
)

# Those of the beam search alone; of these a generation_config.json has some, too.
BEAM_SEARCH = (
    count_setting("beams", "Number of beams (1: greedy).", 1, 256),
    number_setting("length_penalty", "Above 1 favours longer texts, below 1 shorter ones (1).", 100, -100),
    Setting(
        "early_stopping",
        bool,
        also=("never",),
        help="Stop when as many texts are finished as there are beams (false).",
    ),
    count_setting("beam_groups", "Number of groups of beams that search for different texts (1).", 1, 256),
    number_setting(
        "diversity_penalty",
        "Subtracted from a token's score for each beam of an earlier group that chose it.",
        100,
    ),
    count_setting("return_sequences", "Number of texts to return, best first (1).", 1, 256),
)

GROUPS: dict[str, tuple[Setting, ...]] = {
    "Length and stops": LIMITS,
    "Sampling": SAMPLING,
    "Penalties and bans": PENALTIES,
    "Guidance": GUIDANCE,
    "Constraints": CONSTRAINTS,
    "Log-probabilities": OUTPUT,
    "Prompt": PROMPT,
    "Cache": CACHE,
    "Speculative decoding": DRAFTING,
}

SETTINGS = tuple(setting for group in GROUPS.values() for setting in group)

SHARED: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}
