"""RoBERTa, XLM-R and MPNet, as differences from BERT. Imports no mlx."""

from zoo.architecture import Architecture, OutputHead, Preset, Rename, hookimpl
from zoo.recipe import Embedding, LearnedPositions
from zoo_bert import BASE, POCKET, TINY, HeadBias, bert, encoder_rules, masked_head, norm_rules
from zoo_translation.recipes import RelativeBias


def roberta(config):
    """BERT with one type of token, whose positions begin after the padding's id; XLM-R too (Liu et al., 2019)."""
    config = config.with_defaults(vocab_size=50265, type_vocab_size=2)
    recipe = bert(config)
    context, offset = positions(config, config.count("pad_token_id", 1, least=0))
    head = masked_head(config, recipe.embedding.vocab, "gelu", recipe.embedding.norm, "lm_head.")
    return recipe.change(
        embedding=dict(positions=LearnedPositions(context, offset=offset)), head=head, context=context
    )


def positions(config, pad):
    """How many tokens a table of positions is for, and the rows at its head that are no token's."""
    rows = config.count("max_position_embeddings", 512)
    if rows <= pad + 1:
        raise config.error("max_position_embeddings", f"leaves no position after the padding's id, {pad}")
    return rows - pad - 1, pad + 1


def mpnet(config):
    """RoBERTa without types of tokens, with one relative bias for all layers (Song et al., 2020)."""
    config = config.with_defaults(vocab_size=30527, type_vocab_size=1, pad_token_id=1)
    recipe = roberta(config.replaced(pad_token_id=1))  # whatever the config says
    buckets = config.count("relative_attention_num_buckets", 32)
    if buckets != 32:
        raise config.error("relative_attention_num_buckets", "is not implemented: distances have 32 buckets")
    embedding = recipe.embedding
    return recipe.change(
        embedding=Embedding(
            vocab=embedding.vocab, dim=embedding.dim, positions=embedding.positions, norm=embedding.norm
        ),
        relative=RelativeBias(heads=recipe.layers[0].mixer.heads, buckets=buckets, bidirectional=True),
    )


HEAD = (
    Rename("lm_head.dense.*", "head.dense.*"),
    *norm_rules("lm_head.layer_norm", "head.norm"),
    OutputHead("lm_head.decoder.weight", "head.output.weight"),
    HeadBias(("lm_head.decoder.bias", "lm_head.bias")),
)
WEIGHTS = (*encoder_rules("roberta"), *HEAD)
LAYER = "[mpnet.]encoder.layer.{i}.attention."
MPNET_WEIGHTS = (
    Rename("[mpnet.]encoder.relative_attention_bias.*", "relative.*"),
    *(
        Rename(f"{LAYER}attn.{short}.*", f"layers.{{i}}.mixer.{name}.*")
        for short, name in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output"))
    ),
    *norm_rules(LAYER + "LayerNorm", "layers.{i}.mixer_norm"),
    *encoder_rules("mpnet"),
    *HEAD,
)
ONE_TYPE = dict(type_vocab_size=1, layer_norm_eps=1e-5)


@hookimpl
def zoo_architectures():
    """RoBERTa and MPNet."""
    yield Architecture(
        name="roberta",
        base="bert",
        summary="BERT with one type of token, and positions that begin after the padding's id; XLM-R too",
        task="fill-mask",
        causality="full",
        model_types=("roberta", "xlm-roberta"),
        recipe=roberta,
        weights=WEIGHTS,
        presets=(
            Preset(
                "base",
                hub="FacebookAI/roberta-base",
                config=BASE | ONE_TYPE | dict(vocab_size=50265, max_position_embeddings=514),
                licence="MIT",
            ),
            Preset(
                "xlm-base",
                hub="FacebookAI/xlm-roberta-base",
                config=BASE | ONE_TYPE | dict(vocab_size=250002, max_position_embeddings=514),
                licence="MIT",
            ),
            Preset("pocket", config=POCKET | ONE_TYPE | dict(max_position_embeddings=130)),
            Preset("tiny", config=TINY | ONE_TYPE | dict(max_position_embeddings=130)),
        ),
        references=("Liu et al., 2019, arXiv:1907.11692", "Conneau et al., 2019, arXiv:1911.02116"),
        published="2019-07",
    )
    yield Architecture(
        name="mpnet",
        base="roberta",
        summary="RoBERTa without types of tokens, and with relative positions shared by all layers",
        task="fill-mask",
        causality="full",
        model_types=("mpnet",),
        recipe=mpnet,
        weights=MPNET_WEIGHTS,
        presets=(
            Preset(
                "base",
                hub="sentence-transformers/all-mpnet-base-v2",
                config=BASE
                | dict(architectures=["MPNetModel"], vocab_size=30527, layer_norm_eps=1e-5)
                | dict(max_position_embeddings=514),
                licence="Apache-2.0",
            ),
            Preset("pocket", config=POCKET | dict(max_position_embeddings=130)),
            Preset("tiny", config=TINY | dict(max_position_embeddings=130)),
        ),
        references=("Song et al., 2020, arXiv:2004.09297",),
        published="2020-04",
    )
