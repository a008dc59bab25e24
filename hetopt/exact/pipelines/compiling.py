"""What takes longest, compiled by numba where that is installed."""

import os
from collections.abc import Callable, Mapping
from functools import cache, cached_property, update_wrapper
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
    if kernels().active == "numpy":
        return plainly
    names = {part.__name__: _compiled(part, {}) for part in parts}
    return cast(Kernel, _compiled(number_by_number, names))


class _Late:
    """A function that is compiled when it is first called, where a compiler is.

    Without one its `twin` runs. To import the compiler takes longer than many a plan.
    """

    def __init__(self, plain: Any, twin: Callable[..., Any]) -> None:
        self.plain, self.twin = plain, twin
        update_wrapper(self, plain)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function that runs here."""
        active = kernels().active
        return self.twin if active == "numpy" else _compiled(self.plain, {})

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


def kernel(plain: Kernel) -> Kernel:
    """Compile a function for this machine where a compiler is, or leave it as it is.

    It is compiled when it is first called.
    """
    return cast(Kernel, _Late(plain, plain))


def running(number_by_number: Kernel, twin: Kernel) -> Kernel:
    """Return a kernel that is compiled when it is first called, or else its twin."""
    assert isinstance(number_by_number, _Late)
    return cast(Kernel, _Late(number_by_number.plain, twin))


def _compiled(
    plain: Any, names: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any]:
    """Compile a function, in which `names` mean what they are given.

    What is compiled calls what is compiled: the names of kernels mean that there.
    """
    from numba import njit

    known = {name: plain.__globals__.get(name) for name in plain.__code__.co_names}
    others = {name: x.function for name, x in known.items() if isinstance(x, _Late)}
    made = FunctionType(plain.__code__, {**plain.__globals__, **others, **names})
    return cast(Callable[..., Any], njit(cache=True, nogil=True)(made))
