"""The experts of a mixture, in each form in which folders hold them. Imports no mlx.

`module` is the prefix of the mixture's tensors, `target` that of the experts' parameters.

Axes: E experts, D the model's width, H hidden units of an expert.
"""

from __future__ import annotations

from zoo.weights import Rename, Rule, Split, Stack

NAMES = ("gate_proj", "up_proj", "down_proj")


def expert_rules(
    module: str, target: str, names: tuple[str, str, str] = NAMES, stacked: str | None = None
) -> tuple[Rule, ...]:
    """The rules for gated experts as they are released, and as transformers 5 holds them. Saving writes the first form.

    Released: `experts.{e}.NAME.weight` of each expert, the `names` those of gate, up and down. transformers' own form, whose
    prefix is `stacked` where it is not `module`: `experts.gate_up_proj` and `experts.down_proj`.
    """
    parts = zip(names, ("gate", "up", "down"), strict=True)
    held = f"{module if stacked is None else stacked}experts."
    return (
        *(Stack(f"{module}experts.{{e}}.{name}.*", f"{target}{part}.*") for name, part in parts),
        *stacked_expert_rules(held + "gate_up_proj", held + "down_proj", target),
    )


def stacked_expert_rules(gate_up: str, down: str, target: str) -> tuple[Rule, ...]:
    """The rules for experts in two tensors: gate and up one after the other, (E, 2H, D), and down, (E, D, H)."""
    return (
        Split(gate_up, (f"{target}gate.weight", f"{target}up.weight"), axis=1),
        Rename(down, f"{target}down.weight"),
    )


def mlx_expert_rule(module: str, target: str) -> Rule:
    """The rule for experts as MLX conversions hold them: `switch_mlp.gate_proj` (E, H, D), and so on."""
    return Rename(f"{module}switch_mlp.{{p}}_proj.*", f"{target}{{p}}.*")
