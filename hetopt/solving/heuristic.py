"""The run of a planner or a policy: its plan is judged, and nothing is proved."""

from collections.abc import Callable, Mapping
from typing import Any

from ..modelling import Limits
from ..result import Method
from ..search.attempts import Attempt, judged, tried
from .run import Run


class Heuristic(Run):
    """The heuristic is what one planner or policy, `name`, makes of a problem.

    `part` is what its seconds are called in the result; without it they are not told.
    """

    def __init__(
        self,
        problem: str,
        data: Any,
        name: str,
        limits: Limits = Limits(),  # noqa: B008 -- frozen
        *,
        options: Mapping[str, object] | None = None,
        part: str | None = "solve",
    ) -> None:
        super().__init__(problem, data, limits)
        self.name, self.part, self.options = name, part, dict(options or {})
        self.made: Any | None = None  # not judged yet
        self.refuted = False  # whether the reasons prove that there is no plan

    def ask(self, make: Callable[[], Any], *, several: bool = False) -> None:
        """Judge and keep what `make` makes; None is no plan, its reason is kept.

        Where `several` methods are asked, a failure is a reason as well.
        """

        def work() -> Any:
            self.made = make()
            if self.made is None:
                return None
            return judged(self.problem, self.data, self.name, self.made)

        found = tried(self.name, work, several=several)
        self._judged = found.made or (None, None)
        self.plan = self._judged[0]
        self.note(found)

    def keep(self, plan: object) -> None:
        """Judge a plan and keep it where it is the best so far."""
        self._take(*judged(self.problem, self.data, self.name, plan))

    def note(self, trial: Attempt[Any]) -> None:
        """Keep why a trial made nothing."""
        reasons = () if trial.reason is None else (trial.reason,)
        self.reasons += reasons
        self.failed += reasons if trial.failed else ()

    def method(self) -> Method:
        """Return who was asked, and how."""
        seed = self.limits.seed
        return Method(self.name, "heuristic", seed=seed, options=self.options)

    def parts(self) -> dict[str, float]:
        """Seconds by part."""
        return {} if self.part is None else {self.part: self.wall_s()}

    def infeasible(self) -> bool:
        """Return whether there is no plan, for the reasons given."""
        return self.refuted

    def _unfinished(self) -> tuple[str, ...]:
        return ()
