"""Kernels of the compiled core that are held to their twins in Python at every call."""

from copy import deepcopy

import numpy as np
import pytest

from hetopt import _kernels
from hetopt.exact.enumeration import completion
from hetopt.exact.pipelines import count_kernels

compiled = pytest.mark.skipif(_kernels.core is None, reason=_kernels.status.reason)

KERNELS = {"completed", "longest", "most_taken"}


def check(monkeypatch):
    """Have every kernel run twice; return the names of those that were called."""
    names = set()
    for module in (count_kernels, completion):
        for name, run in [*vars(module).items()]:
            if name.lstrip("_") in KERNELS and hasattr(run, "__wrapped__"):
                monkeypatch.setattr(module, name, _checked(run, names))
    return names


def _checked(run, called):
    def both(*given):
        copies = deepcopy(given)
        run(*given)
        run.__wrapped__(*copies)
        for one, other in zip(_arrays(given), _arrays(copies), strict=True):
            assert np.array_equal(one, other), run.__name__
        called.add(run.__name__.lstrip("_"))

    return both


def _arrays(given):
    for one in given:
        if isinstance(one, tuple):
            yield from _arrays(one)
        elif isinstance(one, np.ndarray):
            yield one
