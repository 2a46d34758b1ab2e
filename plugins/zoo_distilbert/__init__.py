"""DistilBERT, as a difference from BERT. Imports no mlx."""

from zoo.architecture import Architecture, Ignore, OutputHead, Preset, Rename, hookimpl
from zoo.recipe import Embedding
from zoo_bert import HeadBias, bert, masked_head, norm_rules


def distilbert(config):
    """BERT with half of its layers and without types of tokens (Sanh et al., 2019)."""
    config.ignore("dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout")
    config.ignore("sinusoidal_pos_embds", "tie_weights_")  # the table is in the files either way
    config = config.with_defaults(
        hidden_size=config.count("dim", 768),
        num_hidden_layers=config.count("n_layers", 6),
        num_attention_heads=config.count("n_heads"),
        hidden_act=config.get("activation", "gelu"),
        type_vocab_size=1,
    ).replaced(intermediate_size=config.count("hidden_dim", 3072))
    recipe = bert(config)
    embedding, activation = recipe.embedding, recipe.layers[0].feedforward.activation
    vocab, norm = embedding.vocab, embedding.norm
    return recipe.change(
        embedding=Embedding(vocab=vocab, dim=embedding.dim, positions=embedding.positions, norm=norm),
        head=masked_head(config, vocab, activation, norm, "vocab_projector."),
    )


LAYER = "[distilbert.]transformer.layer.{i}."
ATTENTION = {"q_lin": "query", "k_lin": "key", "v_lin": "value", "out_lin": "output"}
WEIGHTS = (
    Rename("[distilbert.]embeddings.word_embeddings.*", "embedding.tokens.*"),
    Rename("[distilbert.]embeddings.position_embeddings.weight", "embedding.positions.weight"),
    *norm_rules("[distilbert.]embeddings.LayerNorm", "embedding.norm"),
    *(Rename(f"{LAYER}attention.{own}.*", f"layers.{{i}}.mixer.{name}.*") for own, name in ATTENTION.items()),
    *norm_rules(LAYER + "sa_layer_norm", "layers.{i}.mixer_norm"),
    Rename(LAYER + "ffn.lin1.*", "layers.{i}.feedforward.up.*"),
    Rename(LAYER + "ffn.lin2.*", "layers.{i}.feedforward.down.*"),
    *norm_rules(LAYER + "output_layer_norm", "layers.{i}.feedforward_norm"),
    Rename("vocab_transform.*", "head.dense.*"),
    *norm_rules("vocab_layer_norm", "head.norm"),
    OutputHead("vocab_projector.weight", "head.output.weight"),
    HeadBias(("vocab_projector.bias",)),
    Ignore("[distilbert.]embeddings.position_ids"),
)
BASE = dict(dim=768, hidden_dim=3072, n_layers=6, n_heads=12, vocab_size=30522, max_position_embeddings=512)
POCKET = dict(dim=128, hidden_dim=512, n_layers=3, n_heads=4, vocab_size=2139, max_position_embeddings=128)


@hookimpl
def zoo_architectures():
    """DistilBERT."""
    yield Architecture(
        name="distilbert",
        base="bert",
        summary="BERT with half of its layers, and without types of tokens",
        task="fill-mask",
        causality="full",
        model_types=("distilbert",),
        recipe=distilbert,
        weights=WEIGHTS,
        presets=(
            Preset("base", hub="distilbert/distilbert-base-uncased", config=BASE, licence="Apache-2.0"),
            Preset("pocket", config=POCKET | dict(activation="relu")),
            Preset("tiny", config=POCKET | dict(dim=64, hidden_dim=128, vocab_size=256)),
        ),
        references=("Sanh et al., 2019, arXiv:1910.01108",),
        published="2019-10",
    )
