"""A run keeps what a method works with: incumbent, bound, trace and limits.

Every result is made here. Usage:

    run = Run("device_grouping", data, limits, report)
    run.start_from(warm_start)
    with run:                       # ends on limits, Ctrl-C and SIGTERM
        ...
        run.offer(plan)             # judged; kept where it is better
        run.tighten(value, "closed form")
        run.check()                 # raises `Halt` at a limit, caught by `with`
    return run.result()

What `tighten` is told must hold for every plan, whenever the work ends.
"""

import resource
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from .. import problems, registry
from ..clock import monotonic, wall
from ..errors import Ending, Interrupted, PlanRejected
from ..modelling import Limits
from ..problems import Evaluation, Objective
from ..problems.training_plan import hosts
from ..result import Bound, Method, Result, Status, Stop, TracePoint, gap
from ..schema import Record
from ..search.attempts import judged, tried

Report = Callable[[Objective | None, Objective | None], None]

# Looking at the memory of the process is a system call: not at every check.
_CHECKS_PER_LOOK = 32


class Halt(Ending):
    """Leaves a search at a limit; `stop` says which, `done` what was done by then."""

    def __init__(self, stop: Stop, done: str = "") -> None:
        super().__init__(stop.value)
        self.stop, self.done = stop, done


class Run:
    """One run of an exact method; a context manager that turns limits into an end."""

    def __init__(
        self,
        problem: str,
        data: Any,
        limits: Limits,
        report: Report | None = None,
        backend: str | None = None,
    ) -> None:
        self.problem, self.data, self.limits = problem, data, limits
        self.backend = backend
        self.judge = problems.get(problem)
        self.minimise = self.judge.sense == "minimise"
        self.plan: Any | None = None
        self.objective: Objective | None = None
        self.bound: Bound | None = None
        self.reasons: tuple[str, ...] = ()
        self.failed: tuple[str, ...] = ()  # planners that the run started from
        self.cut_short: tuple[str, ...] = ()  # by what, where it was no limit
        self.certificate: Record | None = None
        self.stop: Stop | None = None
        self.done = ""  # by a limit, in words
        self.trace: list[TracePoint] = []
        self.spent: dict[str, float] = {}  # seconds by part, where there are parts
        self._judged: tuple[Any, Evaluation | None] = (None, None)  # the last one kept
        self._report = report
        self._started, self._began = monotonic(), wall()
        self._checks = 0
        self._old_handler: Any = None

    # -- time and limits ---------------------------------------------------------

    def seconds(self) -> float:
        """Seconds of the limits' clock since the start."""
        return monotonic() - self._started

    def wall_s(self) -> float:
        """Seconds of wall time since the start, as results tell them."""
        return wall() - self._began

    def left_s(self) -> float | None:
        """Seconds to the time limit, never negative; None where there is none."""
        if self.limits.time_s is None:
            return None
        return max(0.0, self.limits.time_s - self.seconds())

    def check(self) -> None:
        """Raise `Halt` where the time, the gap target or the memory is reached."""
        if self.left_s() == 0.0:
            raise Halt(Stop.TIME)
        if self._gap_reached():
            raise Halt(Stop.GAP)
        self._checks += 1
        if self.limits.memory_mib is not None and (
            self._checks % _CHECKS_PER_LOOK == 0
            and resident_mib() > self.limits.memory_mib
        ):
            raise Halt(Stop.MEMORY)

    def _gap_reached(self) -> bool:
        if self.limits.gap is None or self.objective is None or self.bound is None:
            return False
        return gap(self.objective, self.bound.value) <= self.limits.gap

    def closed(self) -> bool:
        """Return whether incumbent and bound meet."""
        return self.bound is not None and self.bound.value == self.objective

    # -- incumbent and bound -----------------------------------------------------

    def start_from(self, plan: object | None) -> None:
        """Take a warm start; `InstanceError` where the judge refuses it."""
        if plan is not None:
            judged = problems.warm_start_objective(self.problem, self.data, plan)
            self._keep(plan, judged)

    def offer(self, plan: object) -> bool:
        """Judge a plan and keep it where it is the best so far; whether it was.

        One that is right but for the memory of hosts, which no method looks at, is
        none. `PlanRejected` where it breaks other rules.
        """
        found = self.judge.evaluate(self.data, plan)
        if hosts.alone(found.violations):
            return False
        if found.violations or found.objective is None:
            raise PlanRejected(f"exact {self.problem}: {listed(found)}")
        return self._take(plan, found)

    def _take(self, plan: object, found: Evaluation) -> bool:
        value = found.objective
        if value is None or not (
            self.objective is None or self._better(value, self.objective)
        ):
            return False
        self._keep(plan, value)
        self._judged = plan, found
        return True

    def offer_of(self, name: str, make: Callable[[], object]) -> None:
        """Offer what a planner makes, None for nothing; its failure is only noted.

        Planners know no targets, nor the memory of hosts: a plan that is right but for
        these is no failure.
        """

        def work() -> None:
            if (plan := make()) is not None:
                self._take(*judged(self.problem, self.data, name, plan))

        found = tried(name, work)
        if found.failed:
            self.failed += (str(found.reason),)

    def tighten(self, value: Objective, source: str) -> None:
        """State that no plan is better than `value`; ignored where weaker."""
        # A plan is never better than a true bound; the incumbent is the limit.
        if self.bound is not None and not self._better(self.bound.value, value):
            return
        self.bound = Bound(value, source)
        self._tell()

    def _better(self, one: Objective, other: Objective) -> bool:
        return one < other if self.minimise else one > other

    def _keep(self, plan: object, objective: Objective | None) -> None:
        self.plan, self.objective = plan, objective
        self._tell()

    def _tell(self) -> None:
        self.progress(self.objective, self.bound.value if self.bound else None)

    def progress(self, incumbent: Objective | None, bound: Objective | None) -> None:
        """Trace and report a state."""
        self.trace.append(TracePoint(self.wall_s(), incumbent, bound))
        if self._report is not None:
            self._report(incumbent, bound)

    # -- the end -----------------------------------------------------------------

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> bool:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._old_handler or signal.SIG_DFL)
        if isinstance(error, Halt):
            self.stop, self.done = error.stop, error.done
        elif isinstance(error, KeyboardInterrupt):
            self.stop = Stop.INTERRUPTED
            self._take_along(error)
        elif isinstance(error, MemoryError):
            self.stop = Stop.MEMORY
        else:
            return False
        return True

    def _take_along(self, error: KeyboardInterrupt) -> None:
        """Keep the plan that an interrupted planner had, where it is one of ours."""
        plan = error.best if isinstance(error, Interrupted) else None
        if (
            isinstance(plan, self.judge.Plan)
            and not self.judge.evaluate(self.data, plan).violations
        ):
            self.offer(plan)

    def result(self) -> Result:
        """Return what is known now; proved where the bound meets the incumbent."""
        return Result(
            problem=self.problem,
            data=self.data,
            method=self.method(),
            status=self._status(),
            stop=self._why(),
            plan=self.plan,
            bound=self.bound,
            seconds=self.parts(),
            reasons=self.reasons or self._unfinished() + self.cut_short,
            trace=tuple(self.trace),
            certificate=self.certificate,
            failed=self.failed,
            evaluation=self._judged[1] if self._judged[0] is self.plan else None,
        )

    def parts(self) -> dict[str, float]:
        """Seconds by part."""
        return self.spent or {"solve": self.wall_s()}

    def method(self) -> Method:
        """Return who ran, and how."""
        return Method(
            self.problem,
            "exact",
            backend=self.backend,
            version=registry.version(),
            seed=self.limits.seed,
            threads=self.limits.threads,
        )

    def infeasible(self) -> bool:
        """Return whether there is no plan: an exact method gives its reasons then."""
        return bool(self.reasons)

    def _unfinished(self) -> tuple[str, ...]:
        words = {Stop.TIME: "in time", Stop.MEMORY: "within the memory limit"}
        if self.plan is not None or self._why() not in words:
            return ()
        return (f"no plan was found {words[self._why()]}",)

    def _status(self) -> Status:
        if self.infeasible():
            return Status.INFEASIBLE
        if self.plan is None:
            return Status.UNDECIDED
        return Status.OPTIMAL if self.closed() else Status.FEASIBLE

    def _why(self) -> Stop:
        if self.infeasible() or self.closed():
            return Stop.PROVED
        return self.stop or Stop.FINISHED


def listed(found: Evaluation) -> str:
    """The first rules that a plan breaks."""
    return "; ".join(map(str, found.violations[:5]))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def resident_mib() -> float:
    """Memory of this process in MiB: its peak, so never less than what it holds."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
