"""The zoo's own experiments, small enough to run in minutes on two cores. Imports no mlx."""

from zoo.architecture import Experiment, hookimpl


@hookimpl
def zoo_experiments():
    yield Experiment(
        name="norm-placement",
        target="zoo_lab.layers:norm_placement",
        summary="Pre-LN and Post-LN by depth, with and without warm-up",
        question="Does Post-LN need warm-up, the more so the deeper the model, where Pre-LN does not?",
        expected=(
            "Post-LN's gradients are large near the output when training starts, so that a full learning rate from the "
            "first step spoils it unless it is shallow; Pre-LN's are bounded at every depth and warm-up changes little."
        ),
        references=("Xiong et al., 2020, arXiv:2002.04745", "Liu et al., 2020, arXiv:2004.08249"),
    )
    yield Experiment(
        name="norm",
        target="zoo_lab.layers:norm",
        summary="LayerNorm and RMSNorm: loss and time",
        question="Does leaving out LayerNorm's centring cost any loss, and does it save time?",
        expected=(
            "RMSNorm reaches the loss of LayerNorm and computes less, so that it takes less time; how much of a whole "
            "model's time that is depends on the model."
        ),
        references=("Zhang and Sennrich, 2019, arXiv:1910.07467", "Ba et al., 2016, arXiv:1607.06450"),
        seeds=5,
    )
    yield Experiment(
        name="positions",
        target="zoo_lab.attention:positions",
        summary="learned, sinusoidal, rotary and no positions, beyond the trained length",
        question="Which positions still work on texts longer than those of training?",
        expected=(
            "Learned positions past the trained ones were never updated and fail at once; sinusoidal ones fail soon, "
            "rotary ones later; a causal decoder without positions loses least there. Within the trained length rotary "
            "positions are best, and none are worst by little."
        ),
        references=(
            "Press et al., 2022, arXiv:2108.12409",
            "Kazemnejad et al., 2023, arXiv:2305.19466",
            "Haviv et al., 2022, arXiv:2203.16634",
            "Su et al., 2021, arXiv:2104.09864",
        ),
    )
    yield Experiment(
        name="feedforward",
        target="zoo_lab.layers:feedforward",
        summary="GELU, GEGLU and SwiGLU at equal parameters",
        question="At equal parameters, is a gated feed-forward better than one with GELU?",
        expected="Both gated ones reach a lower loss than GELU, and hardly differ from each other.",
        references=("Shazeer, 2020, arXiv:2002.05202",),
        seeds=5,
    )
    yield Experiment(
        name="experts",
        target="zoo_lab.experts:experts",
        summary="dense and experts at equal active parameters; the experts' load over training",
        question="What do experts gain at equal active parameters, and are they used evenly?",
        expected=(
            "More experts reach a lower loss for the same work a token, yet not that of a dense layer as large as all of "
            "them. Without a loss that balances them, a router favours some experts, which then learn more."
        ),
        references=(
            "Shazeer et al., 2017, arXiv:1701.06538",
            "Fedus et al., 2021, arXiv:2101.03961",
            "Jiang et al., 2024, arXiv:2401.04088",
        ),
    )
    yield Experiment(
        name="heads",
        target="zoo_lab.attention:heads",
        summary="multi-head, grouped, one key/value head and latent attention: loss against cache bytes",
        question="What does a smaller cache cost in loss, at equal parameters?",
        expected=(
            "One key/value head for all queries loses a little, two lose almost nothing; latent attention, whose cache is "
            "smaller than that of one head, loses less than it."
        ),
        references=(
            "Shazeer, 2019, arXiv:1911.02150",
            "Ainslie et al., 2023, arXiv:2305.13245",
            "DeepSeek-AI, 2024, arXiv:2405.04434",
        ),
        seeds=5,
    )
