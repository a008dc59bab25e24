"""CBC, and other solvers that PuLP finds: mixed-integer linear statements."""

from ... import modelling
from . import cbc, solvers


def backend(name: str = "", solver: str | None = None) -> modelling.Model:
    """A fresh, empty model; `BackendMissing` without PuLP.

    `solver` is another solver than CBC, by PuLP's name: see `solvers`.
    """
    return cbc.Model(name) if solver is None else solvers.Model(name, solver)


def version() -> str:
    """Return the version of PuLP, which bundles CBC."""
    return str(cbc.pulp_module().__version__)
