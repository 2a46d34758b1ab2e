"""The architectures of mlx-lm, run by its own code: those that the zoo does not have. Imports neither mlx-lm nor mlx.

Each is `mlx-lm::NAME`, NAME a module of `mlx_lm.models`. The names are read from that folder; a module is imported when
a model of it is made.
"""

from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from zoo.architecture import Architecture, Block, Drawing, ModuleProbe, Rename, hookimpl
from zoo_mlx_lm.spec import Bridged

LIBRARY = "mlx-lm"


@cache
def modules():
    """The names of mlx-lm's models: those of its modules that define ModelArgs. None when it is not installed."""
    package = find_spec("mlx_lm")
    folders = (package.submodule_search_locations if package else None) or ()
    files = sorted(file for folder in folders for file in Path(folder, "models").glob("*.py"))
    return tuple(file.stem for file in files if b"\nclass ModelArgs" in file.read_bytes())


def recipe(module, config):
    """The recipe of one model, measured on the model that mlx-lm makes."""
    from zoo_mlx_lm.block import recipe_of

    return recipe_of(module, config)


@hookimpl
def zoo_blocks():
    yield Block(Bridged, "zoo_mlx_lm.block:BridgedDecoder", "a whole model of mlx-lm")


@hookimpl
def zoo_drawings():
    yield Drawing(Bridged, "zoo_mlx_lm.spec:bridged")


@hookimpl
def zoo_architectures():
    for module in modules():
        yield Architecture(
            name=f"{LIBRARY}::{module}",
            summary="run by mlx-lm's own code",
            model_types=(module,),
            recipe=partial(recipe, module),
            weights=(Rename("*", "network.*"),),
        )


@hookimpl
def zoo_resolve(config):
    """The module of a model_type, which mlx-lm gives another name in some cases."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not modules():
        return None
    from zoo_mlx_lm.block import module_of, text_module_of

    module = module_of(model_type, config.get("architectures"))
    module = module if module in modules() else text_module_of(model_type, modules())
    return f"{LIBRARY}::{module}" if module else None


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_mlx_lm.block:BridgedDecoder", "zoo_mlx_lm.probe:BridgedDecoderProbe")
