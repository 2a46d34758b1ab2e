"""The zoo's own corpora, atlas and phrasebook, made here without a download. Imports no mlx."""

from zoo.architecture import Corpus, hookimpl


@hookimpl
def zoo_corpora():
    yield Corpus(
        "atlas",
        "zoo_corpora.atlas:documents",
        tasks=("generate", "fill-mask", "denoise"),
        summary="facts about the world's countries, in English and Chinese",
        questions="zoo_corpora.atlas:examination",
        names="zoo_corpora.atlas:names",
        answers="zoo_corpora.atlas:answers",
        sentences="zoo_corpora.atlas:sentences",
    )
    yield Corpus(
        "phrasebook",
        "zoo_corpora.phrasebook:documents",
        tasks=("translate",),
        summary="English sentences and their Chinese translations",
        questions="zoo_corpora.phrasebook:examination",
    )
