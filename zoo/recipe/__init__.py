"""The vocabulary: frozen dataclasses ("specs") that say what a model is. Imports no mlx.

A recipe is a tree of specs. The path of a field in that tree is the path of its parameters in the running
model and its address in a trace: `layers.3.mixer.query`. A variant differs from another by values only.

Every spec answers two questions in plain arithmetic, for a width `dim`: how many parameters it holds
(`parameters`), and how many numbers it caches for each token generated (`kv_cache_size`). `Spec.to_json` and `from_json`
write a recipe as JSON and read it back.
"""

from zoo.recipe.attention import Attention, CrossAttention
from zoo.recipe.division import Cut, Division, Share, inputs, outputs
from zoo.recipe.experts import Experts, MoE, Router
from zoo.recipe.models import (
    Decoder,
    Encoder,
    EncoderDecoder,
    Model,
    learned_context,
    repeat,
    two_sided,
)
from zoo.recipe.parts import (
    ACTIVATIONS,
    MLP,
    CrossLayer,
    GatedMLP,
    JointRMSNorm,
    JointRMSNormPart,
    Layer,
    LayerNorm,
    LearnedPositions,
    PlainRMSNorm,
    RMSNorm,
    SinusoidalPositions,
)
from zoo.recipe.pipeline import Elsewhere
from zoo.recipe.reading import from_json
from zoo.recipe.rope import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    QueryScale,
    RoPE,
    YarnScaling,
)
from zoo.recipe.shared import KeyValueSource, PerLayerEmbedding, PerLayerInput, SharedKeyValueAttention
from zoo.recipe.spec import Matrix, Spec
from zoo.recipe.tensor_parallel import divided
from zoo.recipe.vocabulary import Embedding, EmbeddingPart, Head, HeadPart

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "Attention",
    "CrossAttention",
    "CrossLayer",
    "Cut",
    "Decoder",
    "Division",
    "DynamicScaling",
    "Elsewhere",
    "Embedding",
    "EmbeddingPart",
    "Encoder",
    "EncoderDecoder",
    "Experts",
    "GatedMLP",
    "Head",
    "HeadPart",
    "JointRMSNorm",
    "JointRMSNormPart",
    "KeyValueSource",
    "Layer",
    "LayerNorm",
    "LearnedPositions",
    "LinearScaling",
    "Llama3Scaling",
    "LongScaling",
    "Matrix",
    "MoE",
    "Model",
    "PerLayerEmbedding",
    "PerLayerInput",
    "PlainRMSNorm",
    "QueryScale",
    "RMSNorm",
    "RoPE",
    "Router",
    "Share",
    "SharedKeyValueAttention",
    "SinusoidalPositions",
    "Spec",
    "YarnScaling",
    "divided",
    "from_json",
    "inputs",
    "learned_context",
    "outputs",
    "repeat",
    "two_sided",
]
