"""What takes longest, compiled by numba where that is installed."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(
    number_by_number: Kernel, plainly: Kernel, *parts: Callable[..., Any]
) -> Kernel:
    """A function compiled for this machine where a compiler is, or its plain twin.

    `parts` are the functions of its module that it calls.
    """
    # Plans that need no proof need not wait for its import.
    try:
        from numba import njit
    except ImportError:
        return plainly
    compile_ = njit(cache=True, nogil=True)
    # What is compiled calls what is compiled: the same names mean that there.
    plain: Any = number_by_number
    names = {part.__name__: compile_(part) for part in parts}
    kernel = FunctionType(plain.__code__, {**plain.__globals__, **names})
    return cast(Kernel, compile_(kernel))
