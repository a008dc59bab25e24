"""Priors of constants before a card is measured: value and spread.

What is shipped, and wide ones for a card and for kernels that no run has told yet.
"""

from collections.abc import Iterable, Mapping

from ...costs.constants import Constant
from ...costs.formulas.machine import Machine

_PRECISIONS = ("bf16", "fp8", "tf32", "fp32")
_CHIP, _PRODUCT, _KERNEL = Constant(1.0, 0.1), Constant(1.0, 0.05), Constant(1.0, 0.2)
# Of what no run tells on any card, and of a device without a data sheet.
_SHARE, _ATTENTION, _UNKNOWN = Constant(0.75, 0.3), Constant(0.4, 0.5), Constant(1, 1)


def completed(
    constants: Mapping[str, Constant],
    machine: Machine,
    kernels: Iterable[str],
    *,
    has_sheet: bool,
) -> dict[str, Constant]:
    """Constants, with those of a card and of kernels that no run has told yet."""
    made = dict(constants)
    card, generation = machine.card, machine.generation
    made.setdefault(f"chip@{card}", _CHIP if has_sheet else _UNKNOWN)
    for base in (f"product.{precision}" for precision in _PRECISIONS):
        made.setdefault(f"{base}@{card}", _PRODUCT if base in constants else _SHARE)
    for base in (f"attention.{kernel}" for kernel in kernels):
        known = base in constants
        made.setdefault(f"{base}@{generation}", _KERNEL if known else _ATTENTION)
    return made


def movable(name: str, machine: Machine) -> bool:
    """Tell whether rows of that card may move a constant; others they stand on.

    What is not named by the card or by its generation is true of all, and whole runs
    tell it: files of several cards are in force beside each other.
    """
    base, _, quality = name.partition("@")
    if base == "chip" or base.startswith("product."):
        return quality == machine.card
    return base.startswith("attention.") and quality == machine.generation
