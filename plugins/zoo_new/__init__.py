"""`zoo new`: writes a plugin as a complete package. Imports no mlx."""

from zoo.architecture import Command, hookimpl


@hookimpl
def zoo_commands():
    yield Command("new", "zoo_new.command:new", "Write a plugin of your own, as a package.", group="Extend")
