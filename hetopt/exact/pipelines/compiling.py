"""Loops that take longest: in the compiled core, or the same in Python.

A kernel fills in tables of whole numbers, in Python or by numpy. The compiled core (in
C, `hetopt/_kernels`) fills in the same, and runs where it is there. Tables that are
filled in come last and are contiguous; others are made so.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from ... import _kernels

Kernel = TypeVar("Kernel", bound=Callable[..., None])


def is_compiled() -> bool:
    """Tell whether the compiled core is there."""
    return _kernels.core is not None


def compiled(name: str, *given: object) -> None:
    """Run a kernel of the core, which is given the parts of tuples one by one."""
    getattr(_kernels.core, name)(*_parts(given))


def kernel(loops: Kernel) -> Kernel:
    """Make a kernel of its twin in Python, named as in the core but for a `_`."""
    name = loops.__name__.lstrip("_")

    @wraps(loops)
    def run(*given: object) -> None:
        if is_compiled():
            compiled(name, *given)
        else:
            loops(*given)

    return cast(Kernel, run)


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
