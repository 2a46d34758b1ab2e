"""Samplers that cut a distribution at a probability: epsilon and eta sampling. Imports no mlx."""

from zoo.architecture import Sampler, Setting, hookimpl


@hookimpl
def zoo_samplers():
    least = "Tokens of a smaller probability are left out."
    keep = Setting(
        "min_tokens_to_keep", int, 1, minimum=1, help="Minimum number of tokens that are kept, the likeliest."
    )
    yield Sampler(
        name="epsilon",
        target="zoo_samplers.filters:epsilon",
        settings=(Setting("cutoff", float, 3e-4, minimum=0.0, maximum=1.0, help=least), keep),
        summary="tokens of at least a given probability (Hewitt et al., 2022)",
    )
    yield Sampler(
        name="eta",
        target="zoo_samplers.filters:eta",
        settings=(
            Setting("cutoff", float, 3e-4, minimum=0.0, maximum=1.0, help="The largest such probability."),
            keep,
        ),
        summary="tokens of at least a probability that falls with the entropy (Hewitt et al., 2022)",
    )
