"""HiGHS, as OR-Tools carries it: mixed-integer linear statements."""

from ... import modelling
from .model import Model, mathopt


def backend(name: str = "") -> modelling.Model:
    """A fresh, empty model; `BackendMissing` without OR-Tools."""
    return Model(name)


def version() -> str:
    """Return the version of OR-Tools, which bundles HiGHS and hides HiGHS's own."""
    from importlib.metadata import version as installed

    mathopt()
    return f"{installed('ortools')} (HiGHS within OR-Tools)"
