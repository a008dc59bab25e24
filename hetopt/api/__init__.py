"""The front door: load, plan, solve, provision, compare, judge, recover and schedule.

Every function takes an instance as a name of the library, a path, or an `Instance`, and
`limits` and `progress` as `calling` says. What few calls need is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ..portfolio import options_of
from .calling import Listener, Progress
from .comparing import compare
from .judging import (
    check,
    load,
    no_plan_is_shorter,
    posed,
    posed_plan,
    posed_training,
)
from .planning import plan
from .solving import (
    carriers,
    methods_for,
    solve,
    write_statement,
)

if TYPE_CHECKING:
    from .exchange import assemble, capabilities, explain, export, simulate
    from .executing import run
    from .fitting import fit
    from .nodes import choose_nodes
    from .posing import options_of_problem, pose
    from .predicting import calibrate, predict
    from .proving import bound_checked, check_bound
    from .provisioning import frontier, provision
    from .recovering import recover
    from .renting import rent
    from .replaying import replay
    from .runs import run_of
    from .scaling import scale
    from .scheduling import schedule
    from .targets import compare_targets

__all__ = [
    "Listener",
    "Progress",
    "assemble",
    "bound_checked",
    "calibrate",
    "capabilities",
    "carriers",
    "check",
    "check_bound",
    "choose_nodes",
    "compare",
    "compare_targets",
    "explain",
    "export",
    "fit",
    "frontier",
    "load",
    "methods_for",
    "no_plan_is_shorter",
    "options_of",
    "options_of_problem",
    "plan",
    "pose",
    "posed",
    "posed_plan",
    "posed_training",
    "predict",
    "provision",
    "recover",
    "rent",
    "replay",
    "run",
    "run_of",
    "scale",
    "schedule",
    "simulate",
    "solve",
    "write_statement",
]

_HOME = {
    "exchange": ("assemble", "capabilities", "explain", "export", "simulate"),
    "executing": ("run",),
    "fitting": ("fit",),
    "nodes": ("choose_nodes",),
    "posing": ("options_of_problem", "pose"),
    "predicting": ("calibrate", "predict"),
    "proving": ("bound_checked", "check_bound"),
    "provisioning": ("frontier", "provision"),
    "recovering": ("recover",),
    "renting": ("rent",),
    "replaying": ("replay",),
    "runs": ("run_of",),
    "scaling": ("scale",),
    "scheduling": ("schedule",),
    "targets": ("compare_targets",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
