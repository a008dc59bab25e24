"""The compiled core: what runs hottest, in C, where a compiler was at hand.

The extension is optional. What runs without it, or with `HETOPT_CORE=off`, has a twin
in Python that gives the same numbers: callers ask for `core`, and run the twin where
that is None. `setup.py` says how it is built; in a checkout that is not installed,
`python setup.py build_ext --inplace` builds it.
"""

import os
from importlib import import_module
from typing import Any, Literal, NamedTuple

_SWITCH = "HETOPT_CORE"
_REMEDY = "install a C compiler and hetopt again"


class Core(NamedTuple):
    """A note whether the core runs compiled or in Python, and why."""

    active: Literal["compiled", "python"]
    reason: str


def _loaded() -> tuple[Any, Core]:
    if os.environ.get(_SWITCH, "").lower() == "off":
        return None, Core("python", f"switched off by {_SWITCH}: unset it")
    try:
        module = import_module("._core", __name__)
    except ModuleNotFoundError:
        return None, Core("python", f"not built: {_REMEDY}")
    except ImportError as error:
        return None, Core("python", f"cannot be loaded ({error}): {_REMEDY}")
    return module, Core("compiled", "C, built with hetopt")


core, status = _loaded()
