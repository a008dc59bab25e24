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
    "bound_checked": "proving",
    "check_bound": "proving",
    "explain": "exchange",
    "assemble": "exchange",
    "export": "exchange",
    "simulate": "exchange",
    "frontier": "provisioning",
    "provision": "provisioning",
    "capabilities": "exchange",
    "calibrate": "predicting",
    "predict": "predicting",
    "choose_nodes": "nodes",
    "options_of_problem": "posing",
    "pose": "posing",
    "run": "executing",
    "run_of": "runs",
    "recover": "recovering",
    "replay": "replaying",
    "fit": "fitting",
    "rent": "renting",
    "scale": "scaling",
    "schedule": "scheduling",
    "compare_targets": "targets",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
