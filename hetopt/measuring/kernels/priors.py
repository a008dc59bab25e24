"""What is thought of constants before a card is measured: value and spread.

Deviations of cards that are not named here are one within a tenth; kernels of
generations that are not named, 0.4 within a factor of 1.6.
"""

from collections.abc import Iterable, Mapping

from ...calibration.constants import Constant

_SHIPPED: dict[str, tuple[float, float]] = {
    "product.rows": (1.28, 0.5),
    "product.depth": (0.53, 0.4),
    "product.ragged": (3.0, 0.5),
    "product.bf16": (0.83, 0.05),
    "product.fp8": (0.72, 0.07),
    "product.tf32": (0.7, 0.2),
    "product.fp32": (0.8, 0.2),
    "product.bf16@Volta": (0.92, 0.08),
    "product.bf16@Ampere": (1.08, 0.05),
    "product.bf16@Hopper": (0.97, 0.05),
    "product.fp8@Hopper": (1.08, 0.09),
    "attention": (1.0, 0.05),
    "attention.narrow": (15.7, 0.3),
    "attention.short": (365.0, 0.5),
    "attention.ragged": (1.3, 0.2),
    "attention.odd": (1.1, 0.1),
    "attention@flash1/Ampere": (0.43, 0.11),
    "attention@flash1/Hopper": (0.22, 0.09),
    "attention@flash2/Ampere": (0.61, 0.1),
    "attention@flash2/Hopper": (0.34, 0.08),
    "attention@flash2/Blackwell": (0.25, 0.2),
    "attention@flash2/Ada": (0.6, 0.15),
    "attention@cudnn/Ampere": (0.62, 0.12),
    "attention@cudnn/Hopper": (0.54, 0.1),
    "attention@cudnn/Blackwell": (0.5, 0.15),
    "attention@cudnn/Ada": (0.6, 0.15),
    "traffic": (1.17, 0.12),
    "traffic@torch": (0.97, 0.1),
    "traffic@eager": (1.04, 0.3),
    "traffic@compiled": (0.83, 0.3),
    "head.bytes": (17.9, 0.4),
    "head.bytes@torch": (0.92, 0.3),
    "head.bytes@eager": (1.0, 0.5),
    "head.bytes@compiled": (1.0, 0.5),
    "update": (0.89, 0.4),
    "iteration": (0.048, 0.4),
    "iteration@torch": (0.43, 0.4),
    "launch": (0.00028, 0.4),
    "launch@torch": (1.25, 0.3),
    "launch@eager": (1.37, 0.5),
    "launch@compiled": (0.87, 0.5),
    # Of what one GPU does without: a step asks for them.
    "tp": (0.7, 0.4),
    "dp": (1.0, 0.7),
    "context": (0.5, 0.5),
    "release": (0.95, 0.03),
    "pace": (1.1, 0.05),
}
_STYLES = ("eager", "compiled")
_PRECISIONS = ("bf16", "fp8", "tf32", "fp32")
_CARD, _KERNEL = Constant(1.0, 0.1), Constant(0.4, 0.5)
_UNKNOWN = Constant(1.0, 1.0)  # of a device without a data sheet

#: Names without a quality that one card's rows may move.
_OWN = (
    "product.rows",
    "product.depth",
    "product.ragged",
    "attention.narrow",
    "attention.short",
    "attention.ragged",
    "attention.odd",
    "update",
)


def shipped() -> dict[str, Constant]:
    """The constants that are in force where no file of any is named."""
    return {name: Constant(*both) for name, both in _SHIPPED.items()}


def completed(
    constants: Mapping[str, Constant],
    card: str,
    generation: str,
    kernels: Iterable[str],
    has_sheet: bool,
) -> dict[str, Constant]:
    """Constants, with those of a card and of kernels that no run has told yet."""
    own = _CARD if has_sheet else _UNKNOWN
    made = shipped() | dict(constants)
    for precision in _PRECISIONS:
        made.setdefault(f"product.{precision}@{card}", own)
    made.setdefault(f"attention@{card}", own)
    for kernel in kernels:
        made.setdefault(f"attention@{kernel}/{generation}", _KERNEL)
    for style in _STYLES:
        for name in ("traffic", "head.bytes", "launch"):
            made.setdefault(f"{name}@{style}", Constant(1.0, 0.4))
    return made


def movable(name: str, card: str, generation: str) -> bool:
    """Whether rows of that card may move a constant; others they stand on."""
    base, _, quality = name.partition("@")
    if not quality:
        return name in _OWN
    if base in ("product.bf16", "product.fp8", "product.tf32", "product.fp32"):
        return quality == card
    if base == "attention":
        return quality == card or quality.endswith(f"/{generation}")
    return quality in _STYLES and base in ("traffic", "head.bytes", "launch")
