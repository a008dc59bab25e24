"""Kernels of the compiled core, which fill in tables of whole numbers (`_kernels`).

Tables that are filled in come last and are contiguous; others are made so.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._kernels import core


def compiled(name: str, *given: object) -> None:
    """Run a kernel of the core, which is given the parts of tuples one by one."""
    getattr(core, name)(*_parts(given))


def _parts(given: tuple[object, ...]) -> Iterator[Any]:
    for one in given:
        if isinstance(one, tuple):
            yield from _parts(one)
        elif isinstance(one, np.ndarray) and not one.flags.c_contiguous:
            # Only what is read may be copied: the core refuses to write to this one.
            copied = np.ascontiguousarray(one)
            copied.flags.writeable = False
            yield copied
        else:
            yield one
