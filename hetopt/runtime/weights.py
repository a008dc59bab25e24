"""A rank's part of the weights, and the values that training begins with."""

import hashlib
from collections.abc import Callable, Mapping

from .decoder import Decoder
from .layout import Layout
from .parameters import Parameter
from .pytorch import Device, Dtype, Tensor, torch
from .released import Stored, opened

_STD = 0.02
Source = Callable[[Parameter], Tensor]


def drawn(shape: Decoder, seed: int) -> Source:
    """Whole parameters of a seed: by their names, so that every plan has the same.

    Matrices are normal with deviation 0.02, those that end a residual branch less by
    the root of their number (GPT-2).
    """

    def source(parameter: Parameter) -> Tensor:
        if parameter.start in ("ones", "zeros"):
            make = torch.ones if parameter.start == "ones" else torch.zeros
            return make(parameter.shape)
        text = f"{seed}/{parameter.name}".encode()
        number = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
        values = torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(number)
        )
        ends = (2 * shape.layers) ** 0.5 if parameter.start == "small" else 1.0
        return values * (_STD / ends)

    return source


def released(places: Mapping[str, Stored]) -> Source:
    """Whole parameters of a released model."""

    def source(parameter: Parameter) -> Tensor:
        path, (tensor, third, transposed) = places[parameter.name]
        values = opened(path).get_tensor(tensor)
        if transposed:
            values = values.T
        return values if third is None else values.chunk(3)[third]

    return source


def own_weights(
    layout: Layout, rank: int, source: Source, dtype: Dtype, device: Device
) -> dict[str, Tensor]:
    """The parts of the rank's parameters by their names, ready for gradients."""
    found = {}
    for parameter in layout.held(rank):
        whole = source(parameter)
        if parameter.axis is not None:
            start, stop = layout.span(rank, parameter)
            whole = whole.narrow(parameter.axis, start, stop - start)
        part = whole.to(device, dtype, memory_format=torch.contiguous_format, copy=True)
        found[parameter.name] = part.requires_grad_()
    return found
