"""What takes longest, compiled by numba where that is installed."""

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import Any, Literal, NamedTuple, TypeVar, cast

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
_OFF = "NUMBA_DISABLE_JIT"


class Kernels(NamedTuple):
    """Whether what takes longest is compiled, and by what; or why it is not."""

    active: Literal["compiled", "numpy"]
    reason: str


def absence() -> str | None:
    """Why nothing is compiled, as far as that is known without an import."""
    if os.environ.get(_OFF, "0") not in ("", "0"):
        return f"numba is switched off by {_OFF}: unset it"
    if find_spec("numba") is None:
        return "numba is not installed: pip install numba"
    return None


@cache
def kernels() -> Kernels:
    """What proofs run by here; imports the compiler."""
    if (why := absence()) is not None:
        return Kernels("numpy", why)
    try:
        numba = import_module("numba")
    except ImportError as error:
        return Kernels("numpy", f"numba cannot be imported: {error}")
    return Kernels("compiled", f"numba {numba.__version__}")


def compiled(
    number_by_number: Kernel, plainly: Kernel, *parts: Callable[..., Any]
) -> Kernel:
    """A function compiled for this machine where a compiler is, or its plain twin.

    `parts` are the functions of its module that it calls.
    """
    # Plans that need no proof need not wait for the import of a compiler.
    if kernels().active == "numpy":
        return plainly
    from numba import njit

    compile_ = njit(cache=True, nogil=True)
    # What is compiled calls what is compiled: the same names mean that there.
    plain: Any = number_by_number
    names = {part.__name__: compile_(part) for part in parts}
    kernel = FunctionType(plain.__code__, {**plain.__globals__, **names})
    return cast(Kernel, compile_(kernel))


def kernel(plain: Kernel) -> Kernel:
    """Compile a function for this machine where a compiler is, or leave it as it is."""
    if kernels().active == "numpy":
        return plain
    from numba import njit

    return cast(Kernel, njit(cache=True, nogil=True)(plain))
