"""Encoder-decoder models: the Transformer of 2017; Marian, BART, Pegasus, M2M-100 and T5 differ from it. Imports no mlx."""

from zoo.architecture import (
    GGUF,
    Architecture,
    Block,
    Command,
    Drawing,
    ModuleProbe,
    Objective,
    Preset,
    Setting,
    TokenizerFormat,
    hookimpl,
    pocket,
)
from zoo_translation import recipes, rules
from zoo_translation.recipes import RelativeAttention, RelativeBias


def sized(layers, dim, heads, hidden, **numbers):
    """The config numbers of a model whose encoder and decoder are alike."""
    return dict(
        d_model=dim,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=hidden,
        decoder_ffn_dim=hidden,
        **numbers,
    )


POCKET = sized(
    *(2, 128, 4, 384),
    max_position_embeddings=128,
    vocab_size=2048,
    decoder_start_token_id=0,
    pad_token_id=1,
)
# Small enough to build anywhere, for tests and drawings.
TINY = sized(2, 32, 4, 64, max_position_embeddings=64, vocab_size=128, decoder_start_token_id=2)
POCKET_T5 = dict(
    d_model=128,
    d_kv=32,
    d_ff=384,
    num_layers=2,
    num_heads=4,
    vocab_size=2048,
    decoder_start_token_id=0,
    pad_token_id=1,
)
TINY_T5 = dict(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=4, vocab_size=128)


def opus_mt(languages, direction, vocab, licence, download):
    """The preset of an OPUS-MT model between `languages`, "en-de"; a target begins with padding, the last token."""
    name = f"opus-mt-{languages}"
    config = sized(
        *(6, 512, 8, 2048),
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        vocab_size=vocab,
        decoder_start_token_id=vocab - 1,
    )
    hub = f"Helsinki-NLP/{name}"
    return Preset(
        name,
        f"translates {direction}",
        hub=hub,
        config=config,
        licence=licence,
        download=download,
        aliases=(name,),
    )


@hookimpl
def zoo_blocks():
    yield Block(
        RelativeBias, "zoo_translation.block:RelativeBias", "relative position bias by distance buckets (T5)"
    )
    yield Block(
        RelativeAttention,
        "zoo_translation.block:RelativeAttention",
        "attention with a relative bias of its own",
    )


@hookimpl
def zoo_drawings():
    yield Drawing(RelativeAttention, "zoo_translation.drawing:relative_attention")


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="transformer",
        task="translate",
        summary="encoder and decoder, Post-LN, sinusoidal positions, ReLU, as published in 2017",
        model_types=("transformer",),
        recipe=recipes.transformer,
        weights=rules.WITHOUT_POSITIONS,
        presets=(
            pocket(__file__, "transformer", **POCKET),
            Preset("base", config=sized(6, 512, 8, 2048, vocab_size=37000)),
            Preset("big", config=sized(6, 1024, 16, 4096, vocab_size=37000)),
            Preset("tiny", config=TINY),
        ),
        references=("Vaswani et al., 2017, arXiv:1706.03762",),
        published="2017-06",
    )
    yield Architecture(
        name="marian",
        base="transformer",
        task="translate",
        summary="the 2017 Transformer of the OPUS-MT models, with a bias on the logits",
        model_types=("marian",),
        recipe=recipes.marian,
        weights=rules.WITHOUT_POSITIONS,
        presets=(
            opus_mt("en-de", "English to German", 58101, "CC-BY-4.0", 297_928_209),
            opus_mt("en-zh", "English to Chinese", 65001, "Apache-2.0", 312_087_009),
            opus_mt("zh-en", "Chinese to English", 65001, "CC-BY-4.0", 312_087_009),
            Preset("pocket", config=POCKET | dict(scale_embedding=True)),
            Preset("tiny", config=TINY),
        ),
        references=(
            "Junczys-Dowmunt et al., 2018, arXiv:1804.00344",
            "Tiedemann and Thottingal, 2020, OPUS-MT",
        ),
        published="2018-04",
    )
    yield Architecture(
        name="bart",
        base="transformer",
        task="translate",
        summary="the 2017 Transformer with learned positions, a norm after the embedding, GELU",
        model_types=("bart",),
        recipe=recipes.bart,
        weights=rules.WITH_POSITIONS,
        presets=(
            Preset(
                "large",
                hub="facebook/bart-large",
                licence="Apache-2.0",
                config=sized(12, 1024, 16, 4096, vocab_size=50265, max_position_embeddings=1024),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("Lewis et al., 2019, arXiv:1910.13461",),
        published="2019-10",
    )
    yield Architecture(
        name="mbart",
        base="bart",
        task="translate",
        summary="BART with Pre-LN, between languages",
        model_types=("mbart",),
        recipe=recipes.mbart,
        weights=rules.WITH_POSITIONS,
        presets=(
            Preset(
                "large-50",
                hub="facebook/mbart-large-50",
                licence="MIT",
                config=sized(
                    *(12, 1024, 16, 4096),
                    vocab_size=250054,
                    max_position_embeddings=1024,
                    scale_embedding=True,
                ),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("Liu et al., 2020, arXiv:2001.08210", "Tang et al., 2020, arXiv:2008.00401"),
        published="2020-01",
    )
    yield Architecture(
        name="pegasus",
        base="transformer",
        task="translate",
        summary="the 2017 Transformer with Pre-LN, for summaries",
        model_types=("pegasus",),
        recipe=recipes.pegasus,
        weights=rules.WITHOUT_POSITIONS,
        presets=(
            Preset(
                "large",
                hub="google/pegasus-large",
                config=sized(
                    *(16, 1024, 16, 4096),
                    vocab_size=96103,
                    max_position_embeddings=1024,
                    scale_embedding=True,
                    activation_function="relu",
                ),
            ),
            Preset("pocket", config=POCKET | dict(pad_token_id=0)),
            Preset("tiny", config=TINY | dict(decoder_start_token_id=0)),
        ),
        references=("Zhang et al., 2019, arXiv:1912.08777",),
        published="2019-12",
    )
    yield Architecture(
        name="m2m-100",
        base="transformer",
        task="translate",
        summary="the 2017 Transformer with Pre-LN, between many languages; NLLB too",
        model_types=("m2m_100",),
        recipe=recipes.m2m_100,
        weights=rules.WITHOUT_POSITIONS,
        presets=(
            Preset(
                "418m",
                hub="facebook/m2m100_418M",
                licence="MIT",
                config=sized(12, 1024, 16, 4096, vocab_size=128112),
            ),
            Preset(
                "nllb-600m",
                hub="facebook/nllb-200-distilled-600M",
                licence="CC-BY-NC-4.0",
                config=sized(12, 1024, 16, 4096, vocab_size=256206),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("Fan et al., 2020, arXiv:2010.11125", "NLLB Team, 2022, arXiv:2207.04672"),
        published="2020-10",
    )
    yield Architecture(
        name="t5",
        base="transformer",
        task="translate",
        summary="Pre-RMSNorm, relative positions shared by all layers, no biases, unscaled scores",
        model_types=("t5",),
        recipe=recipes.t5,
        weights=rules.T5,
        gguf=GGUF("t5", rules.T5_GGUF, keys=rules.T5_KEYS, config=rules.t5_of_gguf),
        presets=(
            Preset(
                "small",
                hub="google-t5/t5-small",
                licence="Apache-2.0",
                config=dict(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, vocab_size=32128),
            ),
            # With a head of its own, as from T5 1.1 on: a tied one, scaled down, learns next to nothing at this size.
            Preset("pocket", config=POCKET_T5 | dict(tie_word_embeddings=False)),
            Preset("tiny", config=TINY_T5),
        ),
        references=("Raffel et al., 2019, arXiv:1910.10683",),
        published="2019-10",
    )
    yield Architecture(
        name="mt5",
        base="t5",
        task="translate",
        summary="T5 with gated GELU and a head of its own, for 101 languages",
        model_types=("mt5",),
        recipe=recipes.mt5,
        weights=rules.T5,
        presets=(
            Preset(
                "small",
                hub="google/mt5-small",
                licence="Apache-2.0",
                config=dict(d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_heads=6, vocab_size=250112),
            ),
            Preset("pocket", config=POCKET_T5),
            Preset("tiny", config=TINY_T5),
        ),
        references=("Xue et al., 2020, arXiv:2010.11934",),
        published="2020-10",
    )
    yield Architecture(
        name="umt5",
        base="mt5",
        task="translate",
        summary="mT5 whose layers have a relative position bias each",
        model_types=("umt5",),
        recipe=recipes.umt5,
        weights=rules.UMT5,
        presets=(
            Preset(
                "small",
                hub="google/umt5-small",
                licence="Apache-2.0",
                config=dict(
                    **dict(d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_heads=6, vocab_size=256384),
                    tie_word_embeddings=False,
                ),
            ),
            Preset("pocket", config=POCKET_T5 | dict(tie_word_embeddings=False)),
            Preset("tiny", config=TINY_T5),
        ),
        references=("Chung et al., 2023, arXiv:2304.09151",),
        published="2023-04",
    )


@hookimpl
def zoo_tokenizers():
    yield TokenizerFormat(
        "marian",
        "zoo_translation.tokenizers:MarianBackend",
        files=("source.spm", "vocab.json"),
        summary="Marian's, of a sentencepiece model and a table of ids",
    )
    yield TokenizerFormat(
        "m2m-100",
        "zoo_translation.tokenizers:read_m2m",
        files=("vocab.json", "sentencepiece.bpe.model"),
        summary="M2M-100's, with a token for each language",
    )
    yield TokenizerFormat(
        "nllb",
        "zoo_translation.tokenizers:read_nllb",
        files=("tokenizer.json",),
        classes=("NllbTokenizer", "MBart50Tokenizer"),
        summary="NLLB's and mBART-50's, with a token for each language",
    )
    yield TokenizerFormat(
        "byt5",
        "zoo_translation.tokenizers:read_byt5",
        files=("tokenizer_config.json",),
        classes=("ByT5Tokenizer",),
        summary="ByT5's, whose tokens are bytes",
    )


@hookimpl
def zoo_commands():
    yield Command(
        "languages",
        "zoo_translation.command:languages",
        "List the languages that a model translates between.",
        group="Look inside",
    )


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_translation.block:RelativeBias", "zoo_translation.probe:RelativeBiasProbe")


@hookimpl
def zoo_objectives():
    yield Objective(
        "translation",
        "zoo_translation.objective:TRANSLATION",
        tasks=("translate",),
        summary="the next token of a translation",
        settings=(
            Setting(
                "source_language", str, help="Language of the sources, for models with several: eng_Latn."
            ),
            Setting(
                "target_language", str, help="Language of the targets, for models with several: fra_Latn."
            ),
        ),
    )
