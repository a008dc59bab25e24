"""The data sheet that shares of a peak refer to."""

from collections.abc import Iterable

from ... import catalogue
from ...costs.formulas.machine import Machine
from ...errors import InstanceError
from .clock import Row

CPU = "CPU"


def sheet(gpu: str) -> Machine:
    """The card of a name, by itself; `InstanceError` that lists what may be meant."""
    card = catalogue.find_gpu(gpu)
    if card is None:
        near = ", ".join(catalogue.near(gpu))
        raise InstanceError(
            f"found GPU {gpu!r}, expected one of the catalogue: say which data sheet "
            f"holds with --gpu-name, as one of {near}",
            field="gpu-name",
        )
    return _alone(
        card.name,
        card.generation,
        {name: rate * 1e12 for name, rate in card.tflops.items()},
        card.memory_gbytes_per_s * 1e9,
        float(card.memory_gib),
    )


def measured_sheet(rows: Iterable[Row]) -> Machine:
    """A CPU's, which no data sheet is at hand of: the best that was measured."""
    products, copies = [0.0], [0.0]
    for row in rows:
        if row["what"] == "gemm":
            us = min(row["fwd"], row["dx"], row["dw"])
            products.append(2 * row["m"] * row["n"] * row["k"] / us * 1e6)
        elif row["what"] == "copy":
            copies.append(2 * row["bytes"] / row["us"] * 1e6)
    if not max(products) or not max(copies):
        raise InstanceError(
            "found no product or no copy that was measured in time: give more --seconds"
        )
    return _alone(CPU, CPU, {"fp32": max(products)}, max(copies), 1.0)


def _alone(
    card: str, generation: str, flops: dict[str, float], memory: float, gib: float
) -> Machine:
    """One GPU, without links."""
    return Machine(card, generation, flops, memory, gib, 1, 1, 1e9, 1, 1e9)
