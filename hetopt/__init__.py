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
    from .api import Progress as Progress
    from .api import assemble as assemble
    from .api import calibrate as calibrate
    from .api import capabilities as capabilities
    from .api import check as check
    from .api import check_bound as check_bound
    from .api import choose_nodes as choose_nodes
    from .api import compare as compare
    from .api import compare_targets as compare_targets
    from .api import explain as explain
    from .api import export as export
    from .api import fit as fit
    from .api import frontier as frontier
    from .api import load as load
    from .api import plan as plan
    from .api import predict as predict
    from .api import provision as provision
    from .api import recover as recover
    from .api import rent as rent
    from .api import replay as replay
    from .api import run as run
    from .api import run_of as run_of
    from .api import scale as scale
    from .api import schedule as schedule
    from .api import simulate as simulate
    from .api import solve as solve
    from .api import write_statement as write_statement
    from .errors import HetoptError as HetoptError
    from .gaps import GapReport as GapReport
    from .gaps import gap as gap
    from .modelling import Limits as Limits
    from .plans import Grouping as Grouping
    from .plans import Partition as Partition
    from .plans import Provisioning as Provisioning
    from .plans import TrainingPlan as TrainingPlan
    from .result import Bound as Bound
    from .result import Result as Result
    from .result import Status as Status
    from .result import Stop as Stop
    from .schema import Instance as Instance
    from .serving import serve as serve

    __version__: str

_HOME = {
    name: module
    for module, names in {
        "api": "Progress assemble calibrate capabilities check check_bound "
        "choose_nodes compare compare_targets explain export fit "
        "frontier load plan predict provision recover rent replay run "
        "run_of scale schedule simulate solve write_statement",
        "errors": "HetoptError",
        "gaps": "GapReport gap",
        "modelling": "Limits",
        "plans": "Grouping Partition Provisioning TrainingPlan",
        "result": "Bound Result Status Stop",
        "schema": "Instance",
        "serving": "serve",
    }.items()
    for name in names.split()
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module(f"{__name__}.registry").version()
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and what is loaded of ours; not what this file imports."""
    own = {name for name, value in globals().items() if _is_own(name, value)}
    return sorted({*__all__, *own})


def _is_own(name: str, value: object) -> bool:
    dunder = name.startswith("__")
    return dunder or getattr(value, "__name__", "").startswith(f"{__name__}.")
