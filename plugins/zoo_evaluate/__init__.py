"""`zoo evaluate`: models judged on data, on tasks of lm-eval, or on a corpus's questions. Imports no mlx."""

from zoo.architecture import Command, hookimpl


@hookimpl
def zoo_commands():
    yield Command(
        "evaluate",
        "zoo_evaluate.command:evaluate",
        "Judge models on data, tasks or a corpus's questions.",
        group="Look inside",
        ranks=True,
    )
