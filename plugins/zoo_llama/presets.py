"""Published checkpoints of the LLaMA-like families that people run, under the names that Ollama gives them, too.

A name of an architecture comes before an alias, so "qwen3:8b" is the preset "8b" of qwen3 and needs no alias.
"""

from zoo_llama.sizes import EIGHT_BILLION, LLAMA_3, SMOLLM2, llama3_scaling, published, sized

QWEN = dict(rope_theta=1000000.0)
QWEN_SMALL = QWEN | dict(vocab_size=151936, max_position_embeddings=32768, tie_word_embeddings=True)
QWEN3 = QWEN | dict(head_dim=128, vocab_size=151936, max_position_embeddings=40960)
DISTILLED = dict(rope_theta=10000.0, max_position_embeddings=131072)  # DeepSeek-R1's, of Qwen2.5-Math

LLAMA = (
    published(
        "3b",
        "meta-llama/Llama-3.2-3B-Instruct",
        "Llama 3.2 Community License",
        aliases=("llama3.2", "llama3.2:3b"),
        **sized(layers=28, dim=3072, heads=24, kv_heads=8, hidden=8192, rms_norm_eps=1e-5),
        **LLAMA_3 | dict(rope_scaling=llama3_scaling(32.0), tie_word_embeddings=True),
        head_dim=128,
    ),
    published(
        "8b-instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
        "Llama 3.1 Community License",
        aliases=("llama3.1", "llama3.1:8b"),
        **EIGHT_BILLION,
        **LLAMA_3,
    ),
    published(
        "70b-instruct",
        "meta-llama/Llama-3.3-70B-Instruct",
        "Llama 3.3 Community License",
        aliases=("llama3.3", "llama3.3:70b"),
        **sized(layers=80, dim=8192, heads=64, kv_heads=8, hidden=28672, rms_norm_eps=1e-5),
        **LLAMA_3,
    ),
    published(
        "smollm2-1.7b",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
        "Apache-2.0",
        aliases=("smollm2:1.7b",),
        **sized(layers=24, dim=2048, heads=32, kv_heads=32, hidden=8192),
        **SMOLLM2 | dict(rope_theta=130000.0),
    ),
    published(
        "tinyllama",
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        "Apache-2.0",
        aliases=("tinyllama", "tinyllama:1.1b"),
        **sized(layers=22, dim=2048, heads=32, kv_heads=4, hidden=5632, rms_norm_eps=1e-5),
        vocab_size=32000,
        max_position_embeddings=2048,
    ),
)
MISTRAL = (
    published(
        "7b-instruct",
        "mistralai/Mistral-7B-Instruct-v0.3",
        "Apache-2.0",
        **EIGHT_BILLION,
        vocab_size=32768,
        max_position_embeddings=32768,
        rope_theta=1000000.0,
        sliding_window=None,
    ),
)


def qwen2(name, licence, layers, dim, heads, kv_heads, hidden, **numbers):
    """Return the preset of Qwen2.5-`name`-Instruct, with Ollama's names as aliases."""
    aliases = ("qwen2.5:" + name.lower(), *(("qwen2.5",) if name == "7B" else ()))
    size = sized(layers=layers, dim=dim, heads=heads, kv_heads=kv_heads, hidden=hidden)
    hub = f"Qwen/Qwen2.5-{name}-Instruct"
    return published(f"{name.lower()}-instruct", hub, licence, aliases=aliases, **size, **numbers)


def distilled(name, layers, dim, heads, kv_heads, hidden, **numbers):
    """Return the preset of DeepSeek-R1-Distill-Qwen-`name`."""
    size = sized(layers=layers, dim=dim, heads=heads, kv_heads=kv_heads, hidden=hidden)
    hub, aliases = f"deepseek-ai/DeepSeek-R1-Distill-Qwen-{name}", (f"deepseek-r1:{name.lower()}",)
    return published(f"r1-{name.lower()}", hub, "MIT", aliases=aliases, **size, **DISTILLED, **numbers)


def qwen3(name, layers, dim, heads, hidden, **numbers):
    """Return the preset of Qwen3-`name`."""
    size = sized(layers=layers, dim=dim, heads=heads, kv_heads=8, hidden=hidden)
    return published(name.lower(), f"Qwen/Qwen3-{name}", "Apache-2.0", **size, **QWEN3, **numbers)


QWEN2_5 = (
    qwen2("0.5B", "Apache-2.0", 24, 896, 14, 2, 4864, **QWEN_SMALL),
    qwen2("1.5B", "Apache-2.0", 28, 1536, 12, 2, 8960, **QWEN_SMALL),
    qwen2("3B", "Qwen Research License", 36, 2048, 16, 2, 11008, **QWEN_SMALL),
    qwen2(
        "7B", "Apache-2.0", 28, 3584, 28, 4, 18944, **QWEN, vocab_size=152064, max_position_embeddings=32768
    ),
    distilled("1.5B", 28, 1536, 12, 2, 8960, vocab_size=151936),
    distilled("7B", 28, 3584, 28, 4, 18944, vocab_size=152064),
)
QWEN_3 = (
    qwen3("1.7B", 28, 2048, 16, 6144, tie_word_embeddings=True),
    qwen3("4B", 36, 2560, 32, 9728, tie_word_embeddings=True),
    qwen3("8B", 36, 4096, 32, 12288),
    qwen3("14B", 40, 5120, 40, 17408),
    qwen3("32B", 64, 5120, 64, 25600),
)
