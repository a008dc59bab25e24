"""What takes longest, compiled by numba where that is installed."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(number_by_number: Kernel, plainly: Kernel) -> Kernel:
    """A function compiled for this machine where a compiler is, or its plain twin."""
    # Plans that need no proof need not wait for its import.
    try:
        from numba import njit
    except ImportError:
        return plainly
    kernel: Any = njit(cache=True, nogil=True)(number_by_number)
    return cast(Kernel, kernel)
