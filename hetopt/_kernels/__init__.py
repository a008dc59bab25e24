"""The compiled core: what runs hottest, in C.

`setup.py` says how it is built; in a checkout that is not installed,
`python setup.py build_ext --inplace` builds it.
"""

from importlib import import_module
from typing import Any

try:
    core: Any = import_module("._core", __name__)
except ImportError as error:
    raise ImportError(
        f"the compiled core of hetopt cannot be loaded ({error}): install hetopt again"
    ) from error

__all__ = ["core"]
