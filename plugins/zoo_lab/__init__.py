"""`zoo lab`, and the zoo's own experiments, small enough to run in minutes on two cores. Imports no mlx."""

from zoo.architecture import Command, Experiment, hookimpl


@hookimpl
def zoo_commands():
    yield Command(
        "lab",
        "zoo_lab.command:lab",
        "Run experiments that train or run small models.",
        group="Look inside",
    )


@hookimpl
def zoo_experiments():
    yield Experiment(
        name="norm-placement",
        target="zoo_lab.experiments.layers:norm_placement",
        summary="Pre-LN and Post-LN by depth, with and without warm-up",
        question="Does Post-LN need warm-up, the more so the deeper the model, where Pre-LN does not?",
        expected=(
            "Post-LN's gradients are large near the output when training starts, so that a full learning rate from the "
            "first step spoils it unless it is shallow; Pre-LN's are bounded at every depth and warm-up changes little."
        ),
        references=("Xiong et al., 2020, arXiv:2002.04745", "Liu et al., 2020, arXiv:2004.08249"),
        seconds=3129,
    )
    yield Experiment(
        name="norm",
        target="zoo_lab.experiments.layers:norm",
        summary="LayerNorm and RMSNorm: loss and time",
        question="Does leaving out LayerNorm's centring cost any loss, and does it save time?",
        expected=(
            "RMSNorm reaches the loss of LayerNorm and computes less, so that it takes less time; how much of a whole "
            "model's time that is depends on the model."
        ),
        references=("Zhang and Sennrich, 2019, arXiv:1910.07467", "Ba et al., 2016, arXiv:1607.06450"),
        seeds=5,
        seconds=214,
    )
    yield Experiment(
        name="positions",
        target="zoo_lab.experiments.attention:positions",
        summary="learned, sinusoidal, rotary and no positions, beyond the trained length",
        question="Which positions still work on texts longer than those of training?",
        expected=(
            "Learned positions past the trained ones were never updated and fail at once; sinusoidal ones fail soon, "
            "rotary ones later; a causal decoder without positions loses least there. Within the trained length rotary "
            "positions reach the lowest loss, and a model without positions the highest, by a small margin."
        ),
        references=(
            "Press et al., 2022, arXiv:2108.12409",
            "Kazemnejad et al., 2023, arXiv:2305.19466",
            "Haviv et al., 2022, arXiv:2203.16634",
            "Su et al., 2021, arXiv:2104.09864",
        ),
        seconds=357,
    )
    yield Experiment(
        name="feedforward",
        target="zoo_lab.experiments.layers:feedforward",
        summary="GELU, GEGLU and SwiGLU at equal parameters",
        question="At equal parameters, is a gated feed-forward better than one with GELU?",
        expected="Both gated ones reach a lower loss than GELU, and hardly differ from each other.",
        references=("Shazeer, 2020, arXiv:2002.05202",),
        seeds=5,
        seconds=548,
    )
    yield Experiment(
        name="experts",
        target="zoo_lab.experiments.experts:experts",
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
        seconds=438,
    )
    yield Experiment(
        name="heads",
        target="zoo_lab.experiments.attention:heads",
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
        seconds=596,
    )
    yield Experiment(
        name="cache",
        target="zoo_lab.experiments.decoding:cache",
        summary="decoding with and without a cache as the text grows, beside LSTM and Mamba",
        question="How does the time of one more token grow with the text before it?",
        expected=(
            "Without a cache every token costs a pass over the whole text; with one it costs a pass over one token and a "
            "sum over the cache, which grows slowly at this size; LSTM and Mamba keep a state of one size, and their time "
            "does not grow."
        ),
        references=("Pope et al., 2022, arXiv:2211.05102", "Gu and Dao, 2023, arXiv:2312.00752"),
        seeds=5,
        seconds=35,
    )
    yield Experiment(
        name="quantization",
        target="zoo_lab.experiments.pockets:quantization",
        summary="bits against held-out loss and divergence",
        question="How many bits does a weight need?",
        expected=(
            "8 bits change nothing that can be seen, 4 cost a little, and below that the loss grows faster with each bit "
            "that is left out; small models lose more than large ones."
        ),
        references=("Dettmers and Zettlemoyer, 2022, arXiv:2212.09720",),
        seeds=5,
        seconds=149,
    )
    yield Experiment(
        name="teacher-forcing",
        target="zoo_lab.experiments.teacher_forcing:teacher_forcing",
        summary="errors on true text and on own text, trained with and without own tokens",
        question="Does a model that learned from true text err more, the further it goes on from its own?",
        expected=(
            "A model trained by teacher forcing has never seen its own mistakes: on its own text it errs more than on true "
            "text, and more the longer it writes. Training on some of its own tokens makes it err less there, at a price "
            "in its loss on true text."
        ),
        references=(
            "Bengio et al., 2015, arXiv:1506.03099",
            "Ranzato et al., 2016, arXiv:1511.06732",
            "Huszár, 2015, arXiv:1511.05101",
        ),
        seconds=312,
    )
    yield Experiment(
        name="temperature",
        target="zoo_lab.experiments.decoding:temperature",
        summary="temperature against diversity and right answers",
        question="What does a higher temperature give in diversity and cost in right answers?",
        expected=(
            "Texts become more diverse with every step of temperature; answers that the model is sure of stay right up to "
            "about 1 and are lost above it."
        ),
        references=("Holtzman et al., 2020, arXiv:1904.09751", "Li et al., 2016, arXiv:1510.03055"),
        seeds=5,
        seconds=184,
    )
    yield Experiment(
        name="pockets",
        target="zoo_lab.experiments.pockets:pockets",
        summary="every embedded checkpoint: answers and held-out text against active parameters and cache bytes",
        question="What do the embedded checkpoints reach with about a million parameters each?",
        expected=(
            "Attention predicts held-out text better than an LSTM of like size; rotary positions, RMSNorm and SwiGLU "
            "better than GPT-2's parts; where the norm stands hardly matters at four layers; Mamba is close to LLaMA "
            "without a cache that grows. Each is one training: the intervals are over parts of the text, not over "
            "trainings."
        ),
        references=("Touvron et al., 2023, arXiv:2302.13971", "Gu and Dao, 2023, arXiv:2312.00752"),
        seconds=184,
    )
