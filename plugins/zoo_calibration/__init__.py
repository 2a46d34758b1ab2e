"""Quantization that reads a text: GPTQ, for every architecture. Imports no mlx."""

from zoo.architecture import Quantizer, hookimpl


@hookimpl
def zoo_quantizers():
    yield Quantizer(
        "gptq", "zoo_calibration.gptq:gptq", "rounding that corrects its own errors (Frantar et al., 2022)"
    )
    yield Quantizer(
        "awq", "zoo_calibration.awq:awq", "inputs scaled by their size, and clipped groups (Lin et al., 2023)"
    )
    yield Quantizer(
        "sensitivity",
        "zoo_calibration.sensitivity:sensitivity",
        "more bits for the matrices whose rounding changes the predictions most",
        budget=True,
    )
