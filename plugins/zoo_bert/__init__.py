"""BERT: an encoder trained to fill in masked tokens, and the sentence encoders made from it. Imports no mlx."""

from zoo.architecture import (
    GGUF,
    Architecture,
    Block,
    Drawing,
    Ignore,
    ModuleProbe,
    OutputHead,
    Preset,
    Rename,
    Rule,
    hookimpl,
    pocket,
)
from zoo.frozen import frozen
from zoo.gguf import DECODER
from zoo.recipe import (
    MLP,
    Attention,
    Embedding,
    Encoder,
    Head,
    Layer,
    LayerNorm,
    LearnedPositions,
    Matrix,
    Spec,
    repeat,
)


@frozen(kw_only=True)
class TypedEmbedding(Embedding):
    """The sum of token, position and token type embeddings; a type says which of two sentences a token is of."""

    kind, name = "embedding", "typed-tokens"
    token_types: int

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (*super().matrices(dim), Matrix("types", dim, self.token_types, uses=0))


@frozen(kw_only=True)
class MaskedHead(Head):
    """The masked language model head: norm(activation(dense(x))), then logits (Devlin et al., 2018)."""

    kind, name = "head", "masked-lm"
    activation: str
    norm: Spec
    dense_bias: bool = True

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (*super().matrices(dim), Matrix("dense", dim, dim, bias=self.dense_bias))


@frozen()
class HeadBias(Rule):
    """One bias under several `names`: of BERT's, `decoder.bias` is the one that is added, `bias` its twin where they are tied."""

    names: tuple[str, ...]

    def forward(self, source, target, recipe, join):
        stored = [source.pop(name, None) for name in self.names]
        bias = next((array for array in stored if array is not None), None)
        if bias is not None:
            target["head.bias" if recipe.head.tied else "head.output.bias"] = bias

    def backward(self, source, target, recipe, join):
        if "head.bias" in source:  # of a tied head, transformers writes the last name alone
            target[self.names[-1]] = source.pop("head.bias")
        if "head.output.bias" in source:
            target |= dict.fromkeys(self.names, source.pop("head.output.bias"))


def bert(config):
    """Token types, learned positions, Post-LN, GELU, bidirectional attention, a masked-LM head (Devlin et al., 2018)."""
    config.refuse("is_decoder", why="is not implemented: only BERT as an encoder is")
    config.refuse("add_cross_attention")
    config.ignore("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
    config.choice("position_embedding_type", ("absolute",), "absolute")
    dim, context = config.count("hidden_size", 768), config.count("max_position_embeddings", 512)
    vocab, activation = config.count("vocab_size", 30522), config.activation("hidden_act", "gelu")
    config.head_width()
    norm = LayerNorm(eps=config.number("layer_norm_eps", 1e-12))
    layer = Layer(
        placement="post",
        mixer=Attention(heads=config.count("num_attention_heads"), bias=True, output_bias=True),
        mixer_norm=norm,
        feedforward=MLP(hidden=config.count("intermediate_size", 3072), activation=activation),
        feedforward_norm=norm,
    )
    return Encoder(
        embedding=TypedEmbedding(
            vocab=vocab,
            dim=dim,
            positions=LearnedPositions(context),
            token_types=config.count("type_vocab_size", 2),
            norm=norm,
        ),
        layers=repeat(layer, config.layers()),
        head=masked_head(config, vocab, activation, norm, "cls.predictions."),
        context=context,
    )


def masked_head(config, vocab, activation, norm, tensors):
    """The masked-LM head, None for a checkpoint without: its `tensors` show it, else the class that it was saved from."""
    classes = config.get("architectures", ["ForMaskedLM"])
    tied = config.flag("tie_word_embeddings", True)
    if not config.has_tensor(tensors, any(str(name).endswith(HEADED) for name in classes)):
        return None
    return MaskedHead(tied=tied, bias=True, vocab=vocab, activation=activation, norm=norm)


HEADED = ("ForMaskedLM", "ForPreTraining", "LMHeadModel")


def norm_rules(source, target):
    """A LayerNorm's rules: `weight` and `bias`, which checkpoints of 2018 call `gamma` and `beta`."""
    spellings = (("weight", "weight"), ("bias", "bias"), ("gamma", "weight"), ("beta", "bias"))
    return (Rename(f"{source}.{old}", f"{target}.{new}") for old, new in spellings)


def encoder_rules(name):
    """The rules of a BERT under the prefix `name`, its pooler left out, which no head but a classifier's uses."""
    layer = f"[{name}.]encoder.layer.{{i}}."
    return (
        Rename(f"[{name}.]embeddings.word_embeddings.*", "embedding.tokens.*"),
        Rename(f"[{name}.]embeddings.position_embeddings.weight", "embedding.positions.weight"),
        Rename(f"[{name}.]embeddings.token_type_embeddings.*", "embedding.types.*"),
        *norm_rules(f"[{name}.]embeddings.LayerNorm", "embedding.norm"),
        Rename(layer + "attention.self.query.*", "layers.{i}.mixer.query.*"),
        Rename(layer + "attention.self.key.*", "layers.{i}.mixer.key.*"),
        Rename(layer + "attention.self.value.*", "layers.{i}.mixer.value.*"),
        Rename(layer + "attention.output.dense.*", "layers.{i}.mixer.output.*"),
        *norm_rules(layer + "attention.output.LayerNorm", "layers.{i}.mixer_norm"),
        Rename(layer + "intermediate.dense.*", "layers.{i}.feedforward.up.*"),
        Rename(layer + "output.dense.*", "layers.{i}.feedforward.down.*"),
        *norm_rules(layer + "output.LayerNorm", "layers.{i}.feedforward_norm"),
        Ignore(f"[{name}.]pooler.dense.*"),
        Ignore(f"[{name}.]embeddings.position_ids"),
    )


WEIGHTS = (
    *encoder_rules("bert"),
    Rename("cls.predictions.transform.dense.*", "head.dense.*"),
    *norm_rules("cls.predictions.transform.LayerNorm", "head.norm"),
    OutputHead("cls.predictions.decoder.weight", "head.output.weight"),
    HeadBias(("cls.predictions.decoder.bias", "cls.predictions.bias")),
    # For BERT's training on whether one sentence follows another; no task of the zoo uses it.
    Ignore("cls.seq_relationship.*"),
)

BERT_GGUF = (
    Rename("position_embd.*", "embedding.positions.*"),
    Rename("token_types.*", "embedding.types.*"),
    Rename("token_embd_norm.*", "embedding.norm.*"),
    Rename("blk.{i}.attn_output_norm.*", "layers.{i}.mixer_norm.*"),
    Rename("blk.{i}.layer_output_norm.*", "layers.{i}.feedforward_norm.*"),
    *DECODER,
)


def token_types(config, tensors):
    """The number of token types, which only the size of their table gives."""
    table = tensors.get("token_types.weight")
    return {} if table is None else dict(type_vocab_size=table.shape[0])


POCKET = dict(
    hidden_size=128,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    max_position_embeddings=128,
    vocab_size=2139,
    hidden_act="relu",  # an exact GELU takes more time on a CPU than all else together
    initializer_range=0.05,  # what 0.02 is at the width of 768, in the measure of 1/√width
)

TINY = POCKET | dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, vocab_size=256)

MINILM = dict(
    architectures=["BertModel"],
    hidden_size=384,
    intermediate_size=1536,
    num_hidden_layers=6,
    num_attention_heads=12,
)

BASE = dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="bert",
        summary="an encoder that fills in masked tokens; sentence vectors",
        task="fill-mask",
        causality="full",
        model_types=("bert",),
        recipe=bert,
        weights=WEIGHTS,
        gguf=GGUF(
            "bert",
            BERT_GGUF,
            keys=dict.fromkeys(("attention.causal", "pooling_type", "vocab_size")),
            config=token_types,
        ),
        presets=(
            pocket(__file__, "bert", **POCKET),
            Preset(
                "base",
                "fills masks in English",
                hub="google-bert/bert-base-uncased",
                config=BASE,
                licence="Apache-2.0",
                download=440_449_768,
            ),
            Preset(
                "minilm",
                "vectors of English sentences",
                hub="sentence-transformers/all-MiniLM-L6-v2",
                config=MINILM,
                licence="Apache-2.0",
                download=90_868_376,
                aliases=("minilm",),
            ),
            Preset("tiny", config=TINY),
        ),
        references=(
            "Devlin et al., 2018, arXiv:1810.04805",
            "Reimers and Gurevych, 2019, arXiv:1908.10084",
        ),
        published="2018-10",
    )


@hookimpl
def zoo_blocks():
    yield Block(TypedEmbedding, "zoo_bert.block:TypedEmbedding", "token, position and token type embeddings")
    yield Block(MaskedHead, "zoo_bert.block:MaskedHead", "masked language model head")


@hookimpl
def zoo_drawings():
    yield Drawing(TypedEmbedding, "zoo_bert.drawing:typed_embedding")
    yield Drawing(MaskedHead, "zoo_bert.drawing:masked_head")


@hookimpl
def zoo_resolve(config):
    # BERT's own folders, and those made from them at first, are older than the key `model_type`. RoBERTa's have one
    # type of token, ALBERT's and ELECTRA's an embedding of another width.
    makers = config.get("architectures") or ["Bert"]
    if (
        "model_type" not in config
        and config.get("type_vocab_size") == 2
        and "embedding_size" not in config
        and isinstance(makers, list)
        and all(str(maker).startswith("Bert") for maker in makers)
    ):
        return "bert"
    return None


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_bert.block:TypedEmbedding", "zoo_bert.probe:TypedEmbeddingProbe")
    yield ModuleProbe("zoo_bert.block:MaskedHead", "zoo_bert.probe:MaskedHeadProbe")
