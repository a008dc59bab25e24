"""Problems: what is wanted, and the judge of plans. One file a problem, no search.

A problem module has

    sense        "minimise" or "maximise"
    unit(data)   of the objective
    Data         the record that a problem file is parsed into
    Plan         the plan type
    data(instance, **options) -> Data    the problem as an instance poses it
    evaluate(data, plan) -> Evaluation   the judge

Every problem is posed of the shared instance by its `data`; post-training of one
whose workload has `generation`. What the instance leaves
open, such as the plan whose pipeline is to be partitioned, is a keyword of it, and an
option of `hetopt solve INSTANCE --problem NAME`:

    device_grouping   tensor_parallel, micro_batch, micro_batches, groups
    layer_partition   plan and pipeline; or stages, tensor_parallel, micro_batch,
                      micro_batches; objective, order
    one_pipeline, training_plan
    post_training     divide: whole nodes, or gpus
    provisioning      deadline_s or budget_usd; of a cluster also usd_per_hour
    recovery          plan, new_plan, lost, storage
    job_round         jobs, batches; of a queue of jobs as well

Groups, partitions and rounds are posed of offers as well: of all their machines. A
queue of jobs (`job_scheduling`) has jobs of its own, which no instance has.

The judge shares no code with statements, exact methods or planners: it recomputes
the objective from the plan alone and names every rule that the plan breaks.
"""

from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Literal, Protocol

from .. import registry
from ..errors import InstanceError
from ..text.documents import Document

Sense = Literal["minimise", "maximise"]
Objective = int | Fraction


@dataclass(frozen=True)
class Violation:
    """A rule that a plan breaks, where, and by how much."""

    rule: str
    where: str
    by: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.by}"


@dataclass(frozen=True)
class Evaluation:
    """An evaluation is the judge's; `objective` is None where it cannot be computed."""

    objective: Objective | None
    violations: tuple[Violation, ...] = ()
    parts: Document = field(default_factory=dict, repr=False)

    @property
    def valid(self) -> bool:
        """Return whether the plan breaks no rule."""
        return not self.violations

    def to_json(self) -> Document:
        """Return the parts, and the violations as objects."""
        return {**self.parts, "violations": [asdict(v) for v in self.violations]}


class Problem(Protocol):
    """A module of this folder offers these parts of a problem."""

    @property
    def sense(self) -> Sense: ...
    @property
    def Data(self) -> type[Any]: ...
    @property
    def Plan(self) -> type[Any]: ...
    def data(self, instance: Any, **options: Any) -> Any: ...
    def unit(self, data: Any) -> str: ...
    def evaluate(self, data: Any, plan: Any) -> Evaluation: ...


def warm_start_objective(problem: str, data: object, plan: object) -> Objective | None:
    """The judge's objective of a warm start; `InstanceError` where it breaks a rule."""
    found = get(problem).evaluate(data, plan)
    if found.violations:
        listed = "; ".join(map(str, found.violations[:5]))
        raise InstanceError(
            f"the warm start breaks rules of {problem}: {listed}; "
            "expected a plan that `hetopt check` accepts"
        )
    return found.objective


def names() -> list[str]:
    """Return the names of all problems."""
    return registry.names("problems")


def get(name: str) -> Problem:
    """Return the problem of that name; `UnknownName` lists the ones there are."""
    problem: Any = registry.entry("problems", name)
    return problem  # type: ignore[no-any-return]
