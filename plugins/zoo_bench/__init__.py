"""`zoo bench`: timed runs of one checkpoint, alone or beside other engines. Imports no mlx."""

from zoo.architecture import Command, hookimpl


@hookimpl
def zoo_commands():
    yield Command(
        "bench",
        "zoo_bench.command:bench",
        "Measure speed and memory, beside other engines.",
        group="This machine",
        ranks=True,
    )
