"""A plug-in held to what our own entries are held to, on small data that is at hand.

A planner: its plans are valid to the judge, none is better than what is proved, the
same seed gives the same plan, and a time limit is kept; where it has no plan it says
why. A policy: its schedules are valid, and none beats the bound on its queue. A
statement: its optimum is the exact method's.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import process_time
from typing import NamedTuple

from .. import entries, files, portfolio, problems, registry
from ..errors import HetoptError, PluginBroken, UnknownName
from ..modelling import Limits
from ..result import Result, Status, Stop
from ..text.documents import Document
from .plugins import MAKES, Plugin, placed
from .posing import pose
from .scheduling import schedule
from .solving import solve

PLANNED = (
    "tiny/two-nodes",
    *(
        f"generated:{family}/{size}/{seed}"
        for family in ("equal", "unequal", "islands", "steep")
        for size, seed in ((4, 1), (8, 2), (16, 3))
    ),
    "generated:tight_memory/8/1",
    "autohet/5-a100-3-h800-llama-6.7b",
    "metis/t4-v100-4-gpt3-1.3b",
)
STATED = {
    "device_grouping": [f"generated:grouping/{size}/1" for size in (4, 6)],
    "layer_partition": [f"generated:partition/{size}/1" for size in (6, 9)],
    "training_plan": ["generated:equal/2/1", "generated:unequal/2/2"],
    "provisioning": ["generated:offers/tiny/1"],
}
QUEUES = ("generated:queue/8/1", "generated:queue/12/2")
#: What planners of other problems than `training_plan` are tried on.
POSED = {
    "device_grouping": [f"generated:grouping/{size}/1" for size in (6, 12, 24)],
    "layer_partition": [f"generated:partition/{size}/1" for size in (6, 12, 24)],
    "provisioning": ["tiny/offers", "espresso/llama-1.3b"],
    "job_round": [*QUEUES, "tiny/two-nodes"],
    "recovery": ["tiny/two-nodes", "tiny/three-nodes", "tiny/star"],
    "one_pipeline": ["tiny/two-nodes", "metis/t4-v100-4-gpt3-1.3b"],
}
_SECONDS = 2.0  # of a call; an exact method has as many for its bound
_LATE, _SLACK_S = 1.1, 2.0  # what a call may take beyond its limit


class Check(NamedTuple):
    """One rule on one piece of data: whether it is kept, and what was seen."""

    data: str
    rule: str
    passed: bool
    seen: str


class Verified(NamedTuple):
    """The verdict of `verify` on a plug-in of a `kind`, a folder of the registry."""

    name: str
    kind: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Return whether every check is passed."""
        return all(check.passed for check in self.checks)

    def to_json(self) -> Document:
        """The document of `hetopt verify`."""
        return {
            **self._asdict(),
            "passed": self.passed,
            "checks": [check._asdict() for check in self.checks],
        }


def verify(
    plugin: Plugin, tell: Callable[[str], object] = lambda name: None
) -> Verified:
    """Test a planner, policy or statement, given by name, file or function.

    `tell` gets the name of each piece of data before it is tried. Takes a minute or
    two. Raises `PluginBroken` for a file that is none of these.
    """
    kind, name = _kind(plugin)
    checks = {
        "planners": _of_planner,
        "formulations": _of_statement,
        "scheduling.policies": _of_policy,
    }[kind]
    return Verified(name, kind, tuple(checks(name, tell)))


def _kind(plugin: Plugin) -> tuple[str, str]:
    """The folder to which a plug-in belongs, and its name there."""
    folder, name = placed(plugin)
    if folder is not None:
        return folder, name
    name = name.replace("-", "_")
    known = [one for one in MAKES if name in registry.names(one)]
    if not known:
        everything = [each for one in MAKES for each in registry.names(one)]
        raise UnknownName("plug-in", name, everything)
    return known[0], name


# --- planners --------------------------------------------------------------------


def _of_planner(name: str, tell: Callable[[str], object]) -> Iterator[Check]:
    problem = entries.planner(name).problem
    places = PLANNED if problem == "training_plan" else POSED.get(problem, ())
    if not places:
        raise PluginBroken(
            f"{name} plans {problem}, for which hetopt has no small test data"
        )
    found = 0
    for place in places:
        tell(place)
        for check in _plan_checks(name, _data_of(problem, place), place):
            found += check.rule == "valid" and check.passed
            yield check
    yield Check("all", "finds plans", found > 0, f"on {found} of {len(places)}")


def _data_of(problem: str, place: str) -> object:
    """Return the problem that a name poses; a recovery after its last node is lost."""
    options: Document = {}
    if problem == "recovery":
        instance = files.load_instance(place)
        options["plan"] = portfolio.ask("autohet", instance, Limits()).plan
        options["lost"] = instance.planned_cluster.nodes[-1].name
    return pose(place, problem, options)[0]


def _plan_checks(name: str, data: object, place: str) -> Iterator[Check]:
    limits, before = Limits(time_s=_SECONDS), process_time()
    try:
        first = portfolio.ask(name, data, limits)
    except HetoptError as error:
        yield Check(place, "valid", passed=False, seen=str(error))
        return
    spent = process_time() - before
    allowed = _LATE * _SECONDS + _SLACK_S
    yield Check(place, "in time", spent <= allowed, f"{spent:.1f} s of {_SECONDS:g} s")
    if first.plan is None:
        told = bool(first.reasons) or first.stop is Stop.TIME
        seen = "; ".join(first.reasons) or f"no plan, no reason ({first.stop})"
        yield Check(place, "says why there is no plan", told, seen)
        return
    yield Check(place, "valid", passed=True, seen=repr(first))
    if first.stop is not Stop.TIME:  # the clock is no seed
        again = portfolio.ask(name, data, replace(limits, time_s=10 * _SECONDS))
        same = again.plan == first.plan
        yield Check(place, "same seed, same plan", same, "" if same else "another plan")
    yield _not_beyond(place, first, data)


def _not_beyond(place: str, result: Result, data: object) -> Check:
    limits = Limits(time_s=_SECONDS)
    proved = portfolio.exactly(result.problem, data, limits, None, None).bound
    seen = f"{result.objective} beside {proved.value if proved else None}"
    ahead = proved is not None and (
        (result.objective or 0) < proved.value
        if result.sense == "minimise"
        else (result.objective or 0) > proved.value
    )
    return Check(place, "never better than a bound", not ahead, seen)


# --- statements and policies -----------------------------------------------------


def _of_statement(name: str, tell: Callable[[str], object]) -> Iterator[Check]:
    problem = entries.statement(name).problem
    places = STATED.get(problem, [])
    if not places:
        raise PluginBroken(
            f"{name} states {problem}, for which hetopt has no small test data"
        )
    for place in places:
        tell(place)
        _, data = files.load_problem(place)
        limits = Limits(time_s=5 * _SECONDS)
        try:
            stated = solve(data, method=name, limits=limits)
        except HetoptError as error:
            yield Check(place, "valid", passed=False, seen=str(error))
            continue
        proved = portfolio.exactly(problem, data, limits, None, None)
        yield _alike(place, stated, proved)


def _alike(place: str, stated: Result, proved: Result) -> Check:
    """The statement's optimum beside the exact one; a bound where it has none."""
    seen = f"{stated!r} beside {proved!r}"
    if Status.OPTIMAL is stated.status is proved.status:
        return Check(
            place, "the exact optimum", stated.objective == proved.objective, seen
        )
    low = problems.get(stated.problem).sense == "minimise"
    crossed = any(
        bound is not None
        and value is not None
        and (value < bound.value if low else value > bound.value)
        for value, bound in (
            (stated.objective, proved.bound),
            (proved.objective, stated.bound),
        )
    )
    unlike = Status.INFEASIBLE in (stated.status, proved.status) and (
        stated.objective is not None or proved.objective is not None
    )
    return Check(place, "no bound is crossed", not (crossed or unlike), seen)


def _of_policy(name: str, tell: Callable[[str], object]) -> Iterator[Check]:
    for place in QUEUES:
        tell(place)
        try:
            (outcome,) = schedule(place, [name])
            (again,) = schedule(place, [name])
        except HetoptError as error:
            yield Check(place, "valid", passed=False, seen=str(error))
            continue
        result = outcome.result
        yield Check(place, "valid", result.plan is not None, repr(result))
        same = again.result.plan == result.plan
        yield Check(place, "same queue, same schedule", same, "")
