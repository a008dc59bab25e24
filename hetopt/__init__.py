"""hetopt plans the training of large language models on mixed GPUs.

Every plan comes with a proof of how far from optimal it is. The public names are
loaded on first use, so that `import hetopt` stays quick and pulls in no solver.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from . import errors as errors

_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file():
    # A checkout: `formulations` and `instances` are sibling folders of this one.
    __path__.append(str(_root))

if TYPE_CHECKING:
    from .api.calling import Progress as Progress
    from .api.checking import check as check
    from .api.comparing import compare as compare
    from .api.exchange import assemble as assemble
    from .api.exchange import capabilities as capabilities
    from .api.exchange import explain as explain
    from .api.exchange import export as export
    from .api.exchange import import_file as import_file
    from .api.exchange import runners as runners
    from .api.exchange import simulate as simulate
    from .api.executing import run as run
    from .api.fitting import fit as fit
    from .api.judging import load as load
    from .api.nodes import choose_nodes as choose_nodes
    from .api.planning import plan as plan
    from .api.predicting import calibrate as calibrate
    from .api.predicting import predict as predict
    from .api.profiles import profile as profile
    from .api.proving import check_bound as check_bound
    from .api.provisioning import frontier as frontier
    from .api.provisioning import provision as provision
    from .api.recovering import recover as recover
    from .api.renting import rent as rent
    from .api.replaying import replay as replay
    from .api.runs import run_of as run_of
    from .api.scaling import scale as scale
    from .api.scheduling import schedule as schedule
    from .api.solvers import doctor as doctor
    from .api.solving import solve as solve
    from .api.solving import write_statement as write_statement
    from .api.targets import compare_targets as compare_targets
    from .errors import HetoptError as HetoptError
    from .gaps import GapReport as GapReport
    from .gaps import gap as gap
    from .modelling import Limits as Limits
    from .plans import Grouping as Grouping
    from .plans import Partition as Partition
    from .plans import Provisioning as Provisioning
    from .plans import TrainingPlan as TrainingPlan
    from .queueing.scheduler import Queue as Queue
    from .report.bench import run_suite as run_suite
    from .report.kinds import list_entries as list_entries
    from .result import Bound as Bound
    from .result import Result as Result
    from .result import Status as Status
    from .result import Stop as Stop
    from .runtime.handover import checkpoint as checkpoint
    from .schema import Instance as Instance
    from .serving import serve as serve

    __version__: str

_HOME = {
    name: module
    for module, names in {
        "api.calling": "Progress",
        "api.comparing": "compare",
        "api.executing": "run",
        "api.judging": "load",
        "api.nodes": "choose_nodes",
        "api.planning": "plan",
        "api.provisioning": "frontier provision",
        "api.runs": "run_of",
        "api.solving": "solve write_statement",
        "api.targets": "compare_targets",
        "api.checking": "check",
        "api.exchange": "assemble capabilities explain export import_file runners "
        "simulate",
        "api.fitting": "fit",
        "api.predicting": "calibrate predict",
        "api.profiles": "profile",
        "api.proving": "check_bound",
        "api.recovering": "recover",
        "api.renting": "rent",
        "api.replaying": "replay",
        "api.scaling": "scale",
        "api.scheduling": "schedule",
        "api.solvers": "doctor",
        "runtime.handover": "checkpoint",
        "errors": "HetoptError",
        "gaps": "GapReport gap",
        "modelling": "Limits",
        "plans": "Grouping Partition Provisioning TrainingPlan",
        "queueing.scheduler": "Queue",
        "report.bench": "run_suite",
        "report.kinds": "list_entries",
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
    """The public names; not what this file imports."""
    return [*__all__, "__version__", "errors"]
