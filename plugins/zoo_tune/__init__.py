"""`zoo tune`: an existing model taught by examples, and the objectives of tuning that families share. Imports no mlx."""

from zoo.architecture import Command, Objective, Setting, hookimpl

OBJECTIVES = "zoo_tune.objectives"


@hookimpl
def zoo_commands():
    yield Command("tune", "zoo_tune.command:tune", "Teach a model by examples.", group="Make", ranks=True)


@hookimpl
def zoo_objectives():
    yield Objective(
        "dpo",
        f"{OBJECTIVES}.dpo:dpo",
        tasks=("generate",),
        summary="the better of two answers, against the model before tuning",
        settings=(
            Setting(
                "beta",
                float,
                0.1,
                above=0,
                help="DPO: how closely the model stays to what it was; larger is closer.",
            ),
        ),
    )
    yield Objective(
        "orpo",
        f"{OBJECTIVES}.orpo:orpo",
        tasks=("generate",),
        summary="the better of two answers, and the next token of it",
        settings=(
            Setting(
                "beta",
                float,
                0.1,
                minimum=0,
                help="ORPO: weight of the odds ratio (λ), beside the next token's loss.",
            ),
        ),
    )
    yield Objective(
        "distill",
        f"{OBJECTIVES}.distill:distill",
        tasks=("generate",),
        summary="a larger model's distribution of the next token",
        settings=(
            Setting("teacher", object, metavar="SOURCE", help="Model to learn from: what `zoo run` takes."),
            Setting(
                "temperature",
                float,
                1.0,
                above=0,
                help="Distillation: temperature of both models' distributions.",
            ),
        ),
    )
    yield Objective(
        "contrastive",
        f"{OBJECTIVES}.contrastive:contrastive",
        tasks=("fill-mask", "generate", "denoise"),
        causalities=("full", "causal", "prefix"),
        summary="sentence vectors: close for a pair, apart from the others of a batch",
        settings=(
            Setting(
                "temperature",
                float,
                0.05,
                above=0,
                help="Contrastive: what the cosines are divided by.",
            ),
        ),
    )
