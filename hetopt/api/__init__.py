"""The front door: load, plan, solve, provision, compare, judge, recover and schedule.

Every function takes an instance as a name of the library, a path, or an `Instance`, and
`limits` and `progress` as `calling` says. What few calls need is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ..portfolio import options_of as options_of
from .calling import Listener as Listener
from .calling import Progress as Progress
from .comparing import compare as compare
from .executing import run as run
from .judging import load as load
from .judging import no_plan_is_shorter as no_plan_is_shorter
from .judging import posed as posed
from .judging import posed_plan as posed_plan
from .judging import posed_training as posed_training
from .nodes import choose_nodes as choose_nodes
from .planning import plan as plan
from .provisioning import frontier as frontier
from .provisioning import provision as provision
from .runs import run_of as run_of
from .solving import carriers as carriers
from .solving import methods_for as methods_for
from .solving import solve as solve
from .solving import write_statement as write_statement
from .targets import compare_targets as compare_targets

if TYPE_CHECKING:
    from .checking import check as check
    from .exchange import assemble as assemble
    from .exchange import capabilities as capabilities
    from .exchange import explain as explain
    from .exchange import export as export
    from .exchange import simulate as simulate
    from .fitting import fit as fit
    from .posing import options_of_problem as options_of_problem
    from .posing import pose as pose
    from .predicting import calibrate as calibrate
    from .predicting import predict as predict
    from .proving import bound_checked as bound_checked
    from .proving import check_bound as check_bound
    from .recovering import recover as recover
    from .renting import rent as rent
    from .replaying import replay as replay
    from .scaling import scale as scale
    from .scheduling import schedule as schedule

_HOME = {
    "checking": ("check",),
    "exchange": ("assemble", "capabilities", "explain", "export", "simulate"),
    "fitting": ("fit",),
    "posing": ("options_of_problem", "pose"),
    "predicting": ("calibrate", "predict"),
    "proving": ("bound_checked", "check_bound"),
    "recovering": ("recover",),
    "renting": ("rent",),
    "replaying": ("replay",),
    "scaling": ("scale",),
    "scheduling": ("schedule",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
