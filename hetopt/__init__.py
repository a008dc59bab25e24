"""hetopt plans the training of large language models on mixed GPUs.

Every plan comes with a proof of how far from optimal it is. The public names are
loaded on first use, so that `import hetopt` stays quick and pulls in no solver.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file():
    # A checkout: `formulations` and `instances` are sibling folders of this one.
    __path__.append(str(_root))

if TYPE_CHECKING:
    from .api import (
        Progress,
        assemble,
        calibrate,
        capabilities,
        check,
        check_bound,
        choose_nodes,
        compare,
        compare_targets,
        explain,
        export,
        fit,
        frontier,
        load,
        plan,
        predict,
        provision,
        recover,
        rent,
        replay,
        run,
        run_of,
        scale,
        schedule,
        simulate,
        solve,
        write_statement,
    )
    from .errors import HetoptError
    from .gaps import GapReport, gap
    from .modelling import Limits
    from .plans import Grouping, Partition, Provisioning, TrainingPlan
    from .result import Bound, Result, Status, Stop
    from .schema import Instance
    from .serving import serve

    __version__: str

_HOME = {
    name: module
    for module, names in {
        "errors": "HetoptError",
        "gaps": "GapReport gap",
        "modelling": "Limits",
        "plans": "Grouping Partition Provisioning TrainingPlan",
        "result": "Bound Result Status Stop",
        "schema": "Instance",
        "serving": "serve",
    }.items()
    for name in names.split()
}  # of all names that the front door has not

__all__ = [
    "Bound",
    "GapReport",
    "Grouping",
    "HetoptError",
    "Instance",
    "Limits",
    "Partition",
    "Progress",
    "Provisioning",
    "Result",
    "Status",
    "Stop",
    "TrainingPlan",
    "assemble",
    "calibrate",
    "capabilities",
    "check",
    "check_bound",
    "choose_nodes",
    "compare",
    "compare_targets",
    "explain",
    "export",
    "fit",
    "frontier",
    "gap",
    "load",
    "plan",
    "predict",
    "provision",
    "recover",
    "rent",
    "replay",
    "run",
    "run_of",
    "scale",
    "schedule",
    "serve",
    "simulate",
    "solve",
    "write_statement",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module(f"{__name__}.registry").version()
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_HOME.get(name, 'api')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and what is loaded of ours; not what this file imports."""
    own = {name for name, value in globals().items() if _is_own(name, value)}
    return sorted({*__all__, *own})


def _is_own(name: str, value: object) -> bool:
    dunder = name.startswith("__")
    return dunder or getattr(value, "__name__", "").startswith(f"{__name__}.")
