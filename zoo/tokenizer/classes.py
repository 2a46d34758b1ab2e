"""The tokenizer classes of transformers as data: what each takes from the settings beside a `tokenizer.json`.

A class of transformers (5.24) changes the pipeline of a `tokenizer.json` by the arguments in `tokenizer_config.json`, or by
their defaults. Here a class sets the same flags in the file's own parts. Parts that no argument speaks of stay as the file
has them, such as its regular expressions; transformers puts the class's own in their place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from tokenizers import AddedToken as LibraryToken
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

from zoo.errors import warn
from zoo.frozen import Frozen, frozen
from zoo.tokenizer.detokenizer import SPACE, flat
from zoo.tokenizer.settings import FLAGS, AddedToken, TokenizerSettings

# A part of any kind, whose state another replaces.
_MAKERS: dict[str, Callable[[], Any]] = {
    "normalizer": normalizers.NFC,
    "pre_tokenizer": pre_tokenizers.Whitespace,
    "decoder": decoders.Fuse,
}

# The flag that a setting is in a tokenizer.json: the type of the part, and its field.
FLAGS_OF_PARTS = {
    "do_lower_case": ("BertNormalizer", "lowercase"),
    "strip_accents": ("BertNormalizer", "strip_accents"),
    "tokenize_chinese_chars": ("BertNormalizer", "handle_chinese_chars"),
    "add_prefix_space": ("ByteLevel", "add_prefix_space"),
}


@frozen()
class TokenizerClass(Frozen):
    """What a tokenizer class does to a `tokenizer.json` when it is made.

    `special_tokens` are the texts of the named special tokens that the settings leave out. `flags` maps each setting
    that the class reads to its default. `ends` names the special tokens at the start and the end of each text, None
    where the file's post-processor adds them. `unknown`: the named unknown token replaces the file's. `plain` says
    which special tokens lose their flags: "all", or "others" than those that settings name in the usual way. `metaspace`: the class writes
    spaces as "▁", by `legacy` and `add_prefix_space`.
    """

    special_tokens: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, bool | None] = field(default_factory=dict)
    ends: tuple[str | None, str | None] | None = None
    unknown: bool = False
    plain: str = ""
    metaspace: bool = False


def _special(**names: str) -> dict[str, str]:
    return {f"{name}_token": text for name, text in names.items()}


_SPACED = {"add_prefix_space": False}
_ENDOFTEXT = _special(unk="<|endoftext|>", bos="<|endoftext|>", eos="<|endoftext|>")
_FAIRSEQ = _special(bos="<s>", eos="</s>", sep="</s>", cls="<s>", unk="<unk>", pad="<pad>", mask="<mask>")
_BERT = TokenizerClass(
    _special(unk="[UNK]", sep="[SEP]", pad="[PAD]", cls="[CLS]", mask="[MASK]"),
    {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True},
    ends=("cls_token", "sep_token"),
    unknown=True,
)
_GPT2 = TokenizerClass(_ENDOFTEXT, _SPACED)
_ROBERTA = TokenizerClass(_FAIRSEQ, _SPACED, ends=("cls_token", "sep_token"))
_QWEN = _special(unk="<|endoftext|>", eos="<|endoftext|>", pad="<|endoftext|>")
_COHERE = _special(
    unk="<UNK>",
    bos="<BOS_TOKEN>",
    eos="<|END_OF_TURN_TOKEN|>",
    pad="<PAD>",
    cls="<CLS>",
    sep="<SEP>",
    mask="<MASK_TOKEN>",
)

# By name without "Fast". Every other class takes a tokenizer.json as it stands.
CLASSES: dict[str, TokenizerClass] = {
    "BertTokenizer": _BERT,
    "DistilBertTokenizer": _BERT,
    "ElectraTokenizer": _BERT,
    "MobileBertTokenizer": _BERT,
    "GPT2Tokenizer": _GPT2,
    "CodeGenTokenizer": _GPT2,
    "OpenAIGPTTokenizer": TokenizerClass(_special(unk="<unk>"), unknown=True),
    "GPTNeoXTokenizer": TokenizerClass(_ENDOFTEXT | _special(pad="<|padding|>"), _SPACED, ends=(None, None)),
    "RobertaTokenizer": _ROBERTA,
    "BartTokenizer": _ROBERTA,
    "LEDTokenizer": _ROBERTA,
    "Qwen2Tokenizer": TokenizerClass(_QWEN, _SPACED, plain="all"),
    "Qwen3_5Tokenizer": TokenizerClass(_QWEN, _SPACED),
    "CohereTokenizer": TokenizerClass(_COHERE, _SPACED, plain="others"),
    "GemmaTokenizer": TokenizerClass(
        _special(unk="<unk>", bos="<bos>", eos="<eos>", pad="<pad>", mask="<mask>"), unknown=True
    ),
    "LlamaTokenizer": TokenizerClass(_special(unk="<unk>", bos="<s>", eos="</s>"), metaspace=True),
    "T5Tokenizer": TokenizerClass(_special(eos="</s>", unk="<unk>", pad="<pad>"), ends=(None, "eos_token")),
    "NllbTokenizer": TokenizerClass(_FAIRSEQ, unknown=True),
}

# The class of a folder that names none, by the model_type of its config.json.
CLASS_OF_MODEL_TYPE = {
    **dict.fromkeys(("cohere", "cohere2"), "CohereTokenizer"),
    **dict.fromkeys(("dbrx", "gpt2", "gptj", "phi", "starcoder2"), "GPT2Tokenizer"),
    **dict.fromkeys(
        ("gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "recurrent_gemma"),
        "GemmaTokenizer",
    ),
    **dict.fromkeys(("gpt_neox", "mamba", "mamba2", "olmo", "olmoe"), "GPTNeoXTokenizer"),
    **dict.fromkeys(("mt5", "t5"), "T5Tokenizer"),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_moe", "qwen3_next"), "Qwen2Tokenizer"),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe"), "Qwen2Tokenizer"),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text"), "Qwen3_5Tokenizer"),
    **dict.fromkeys(("bart", "roberta"), "RobertaTokenizer"),
    **dict.fromkeys(("bert", "distilbert", "nomic_bert"), "BertTokenizer"),
    "mbart": "MBartTokenizer",
    "mpnet": "MPNetTokenizer",
    "pegasus": "PegasusTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "openai-gpt": "OpenAIGPTTokenizer",
}

# Model types whose folders name a class that is not theirs: their tokenizer.json is taken as it stands.
AS_WRITTEN = """ernie4_5 ernie4_5_moe glm glm4 glm4_moe glm4_moe_lite gpt_bigcode granite granitemoe granitemoehybrid
    internlm2 internlm3 jamba kimi_k25 kimi_linear mimo_v2_flash minicpm3 minimax_m2 ministral3 mistral mistral3 mixtral
    modernbert nemotron olmo2 olmo3 olmo_hybrid phi3 phimoe pixtral stablelm umt5"""


def class_of(settings: TokenizerSettings, tokenizer: Tokenizer) -> TokenizerClass:
    """The class that changes a folder's `tokenizer.json`, one without rules where the file is taken as it stands."""
    name = settings.tokenizer_class or CLASS_OF_MODEL_TYPE.get(settings.model_type or "")
    rules = CLASSES.get(name or "", TokenizerClass())
    # LLaMA 3's kind of file names LLaMA 2's class.
    byte_level = any("ByteLevel" in kinds for kinds in _kinds(_states(tokenizer)).values())
    others = settings.model_type in AS_WRITTEN.split() or (rules.metaspace and byte_level)
    return TokenizerClass() if others else rules


def apply_class(tokenizer: Tokenizer, rules: TokenizerClass, settings: TokenizerSettings) -> None:
    """Set the flags that a class reads from the settings in the parts of its `tokenizer.json`.

    A setting that contradicts the file, and that the class does not read, is warned of by name.
    """
    states = _states(tokenizer)
    kinds = _kinds(states)
    changed: set[str] = set()
    for key, default in rules.flags.items():
        changed |= _set(states, key, settings.flag(key, default))
    # LLaMA's files write spaces as "▁" by a normalizer or by the pre-tokenizer; others keep their parts.
    spaced = kinds["normalizer"] | kinds["pre_tokenizer"] <= {"Prepend", "Replace", "Metaspace"}
    if rules.metaspace and spaced:
        states = _metaspace(settings)
        changed = set(states)
    for name in changed:
        setattr(tokenizer, name, part_of(name, states[name]))
    unknown = settings.with_defaults(rules.special_tokens).get("unk_token")
    if rules.unknown and unknown is not None and tokenizer.token_to_id(unknown) is not None:
        tokenizer.model.unk_token = unknown
    for key in sorted(FLAGS_OF_PARTS.keys() - rules.flags.keys()):
        value = settings.flag(key, None)
        if value is not None and _set(states, key, value):
            kind, name = FLAGS_OF_PARTS[key]
            warn(
                f"{settings.path}: {key} {str(value).lower()} changes nothing, as in transformers: "
                f"{kind}.{name} of tokenizer.json says otherwise"
            )


def without_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer of the same model and parts that has no added tokens yet.

    The library keeps what it has once known of an added token: its normalized text, and that it was special.
    """
    new = Tokenizer(tokenizer.model)
    for name in (*_MAKERS, "post_processor"):
        setattr(new, name, getattr(tokenizer, name))
    return new


def library_token(token: AddedToken, special: bool) -> LibraryToken:
    """A token with its flags, as the library takes it."""
    flags = {flag: getattr(token, flag) for flag in FLAGS} | {"special": special}
    return LibraryToken(
        token.content, **flags | ({"normalized": not special} if token.normalized is None else {})
    )


def _states(tokenizer: Tokenizer) -> dict[str, dict[str, Any] | None]:
    """The normalizer, pre-tokenizer and decoder as JSON, None for one that is missing."""
    parts = {name: getattr(tokenizer, name) for name in _MAKERS}
    return {name: None if part is None else json.loads(part.__getstate__()) for name, part in parts.items()}


def _kinds(states: Mapping[str, dict[str, Any] | None]) -> dict[str, set[str]]:
    """The types of what each part is made of."""
    return {
        name: {part["type"] for part in flat(state)} if state else set() for name, state in states.items()
    }


def part_of(name: str, state: Mapping[str, Any] | None) -> Any:
    """The part of a tokenizer that JSON describes."""
    if state is None:
        return None
    part = _MAKERS[name]()
    part.__setstate__(json.dumps(state).encode("utf-8"))
    return part


def _set(parts: Mapping[str, dict[str, Any] | None], key: str, value: bool | None) -> set[str]:
    """Set a setting's flag wherever the normalizer and the pre-tokenizer have it; return which of them this changed."""
    kind, name = FLAGS_OF_PARTS[key]
    changed = set()
    for place in ("normalizer", "pre_tokenizer"):
        state = parts[place]
        for part in flat(state) if state else []:
            if part["type"] == kind and part[name] != value:
                part[name] = value
                changed.add(place)
    return changed


def _metaspace(settings: TokenizerSettings) -> dict[str, dict[str, Any] | None]:
    """LLaMA's parts: a space stands before the text, before each part between added tokens (`legacy`), or nowhere."""
    spaced, legacy = settings.flag("add_prefix_space", True), settings.flag("legacy", False)
    scheme = "never" if not spaced else "always" if legacy else "first"
    stages: list[dict[str, Any]] = [dict(type="Replace", pattern={"String": SPACE}, content=" ")]
    stages += [dict(type="ByteFallback"), dict(type="Fuse")]
    stages += [dict(type="Strip", content=" ", start=1, stop=0)] if spaced else []
    return dict(
        normalizer=None,
        pre_tokenizer=dict(type="Metaspace", replacement=SPACE, prepend_scheme=scheme, split=False),
        decoder=dict(type="Sequence", decoders=stages),
    )
