"""Whether a text is in the Chinese catalogue, with all texts that it is made of."""

import re

from zoo.describe.language import SEPARATORS, Message, catalogue, key_of

WORD = re.compile(r"[A-Za-z][A-Za-z']+(?:-[A-Za-z]+)*")
# Words that are the same in every language.
NAMES = frozenset(
    (
        # activations, norms, blocks
        *(
            "ReLU",
            "ReLU²",
            "GELU",
            "GEGLU",
            "SwiGLU",
            "xIELU",
            "ReGLU",
            "GLU",
            "SiLU",
            "tanh",
            "sigmoid",
            "softmax",
        ),
        *(
            "Quick",
            "RMSNorm",
            "LayerNorm",
            "RoPE",
            "YaRN",
            "LongRoPE",
            "NTK",
            "LSTM",
            "GRU",
            "MLP",
            "Pre-LN",
            "Post-LN",
        ),
        *("MoE", "MLA", "KV", "LLaMA", "LLaMA-3", "MASK", "FLOPs", "logits", "Logits"),
        *("AltUp", "LAuReL"),
        *("BPE", "Unigram", "WordPiece", "SentencePiece"),
        # units and formats
        *("kB", "MB", "GB", "TB", "bfloat", "float", "mxfp", "nvfp"),
        # licences
        *(
            "Apache",
            "MIT",
            "CC-BY-NC",
            "CC-BY",
            "DeepSeek",
            "Model",
            "License",
            "EXAONE",
            "MiniMax",
            "Qwen",
            "AI",
            "Research",
            "Gemma",
            "Terms",
            "of",
            "Use",
        ),
        *(
            "Llama",
            "Community",
            "Tencent",
            "Hunyuan",
            "A13B",
            "CC-BY-SA",
            "Stability",
            "Tongyi",
            "Qianwen",
            "Modified",
            "BigCode",
            "OpenRAIL-M",
            "LFM",
            "Open",
            "Falcon-LLM",
            "BigScience",
            "RAIL",
            "NVIDIA",
        ),
    )
)


def is_known(text):
    """Whether nothing of it stays English but names."""
    known = catalogue("zh")
    if key_of(text) in known:
        return True
    if isinstance(text, Message):
        whole = text.template in SEPARATORS or key_of(text.template) in known
        return whole and all(is_known(value) for value in text.values.values() if isinstance(value, str))
    return all(word in NAMES for word in WORD.findall(text))
