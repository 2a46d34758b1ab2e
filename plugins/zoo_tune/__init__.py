"""`zoo tune`: an existing model taught by a person's own examples. Imports no mlx."""

from zoo.architecture import Command, hookimpl


@hookimpl
def zoo_commands():
    yield Command("tune", "zoo_tune.command:tune", "Teach a model by examples.", group="Make")
