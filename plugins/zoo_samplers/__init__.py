"""Samplers beyond top-k, top-p and min-p: locally typical and top-n-sigma. Imports no mlx."""

from zoo.architecture import Sampler, Setting, hookimpl


@hookimpl
def zoo_samplers():
    yield Sampler(
        name="typical",
        target="zoo_samplers.filters:typical",
        settings=(
            Setting("mass", float, 0.9, minimum=0.0, maximum=1.0, help="The probability that is kept."),
        ),
        summary="tokens about as surprising as the next one is expected to be (Meister et al., 2022)",
    )
    yield Sampler(
        name="top-n-sigma",
        target="zoo_samplers.filters:top_n_sigma",
        settings=(
            Setting("n", float, 1.0, minimum=0.0, help="Standard deviations below the largest logit."),
        ),
        summary="logits within n standard deviations of the largest (Tang et al., 2024)",
    )
