"""The module says what a run takes, from the judge's iteration: days, money, energy.

A node is paid, and draws power, whole when a plan uses any of its GPUs. Energy is the
GPUs' TDP times the time, more than they draw: an upper estimate, of the GPUs alone.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction

from ..errors import InstanceError
from ..findings import Finding
from ..plans import TrainingPlan
from ..problems import Evaluation, training_plan
from ..schema import Cluster, Instance, exact
from ..text import units
from ..text.documents import Document
from .calling import AnyPlan, AnyProblem
from .judging import posed_training

US_PER_HOUR = 3_600_000_000
#: The field of a type of GPU that says what an hour of one costs, in USD or in Wh.
FIELDS = {"usd": "usd_per_hour", "energy": "watts"}


@dataclass(frozen=True)
class TrainingRun(Finding, layout="runs"):
    """A run of some tokens under one plan.

    `usd` and `kwh` are None where a type of GPU that is used does not say its price or
    its draw: `missing` names these fields. `nodes` and `gpus` count those that are
    paid.
    """

    tokens: int
    iterations: int
    seconds: float
    usd: float | None
    kwh: float | None
    tokens_per_second: float | None
    mfu: float | None
    nodes: int
    gpus: int
    missing: tuple[str, ...]

    @property
    def days(self) -> float:
        """Days of 24 hours."""
        return self.seconds / 86_400

    def to_json(self) -> Document:
        """The fields, and `days`."""
        return {**asdict(self), "days": self.days, "missing": list(self.missing)}


def run_of(
    plan: AnyPlan, instance: AnyProblem | None = None, *, tokens: int | str
) -> TrainingRun:
    """Return how long a run takes under a plan, and what it costs.

    `plan` is a result, a plan file, or a plan with its instance. The run is of so many
    `tokens`; a text may have a unit, `15T`.
    An iteration that is begun is finished. Raises `NoPlan` for a result without a plan,
    `InstanceError` for a plan that cannot be timed or a number that cannot be read,
    `Unsupported` for a plan of another problem.
    """
    length = tokens_of(tokens)
    data, made = posed_training(plan, instance)
    return estimate(data, made, training_plan.evaluate(data, made), length)


def tokens_of(value: int | str) -> int:
    """Return the tokens of a run, from a number or a text such as `15T`."""
    try:
        number = units.parse(value, units.COUNT) if isinstance(value, str) else value
    except ValueError as error:
        raise InstanceError(f"tokens: {error}") from None
    if number < 1 or number != int(number):
        raise InstanceError(f"tokens: found {value}, expected a whole number from 1 on")
    return int(number)


def estimate(
    data: Instance, plan: TrainingPlan, judged: Evaluation, tokens: int
) -> TrainingRun:
    """The run under a plan that was judged; `InstanceError` where it was not timed."""
    if not isinstance(judged.objective, int):
        raise InstanceError(
            f"the plan cannot be timed: {'; '.join(map(str, judged.violations[:5]))}; "
            "correct it"
        )
    workload, cluster = data.workload, data.planned_cluster
    iterations = -(-tokens // (workload.global_batch * workload.sequence_length))
    whole_us = iterations * judged.objective
    nodes = plan.gpus_by_node
    usd, watt_hours = (spent(cluster, nodes, key, whole_us) for key in FIELDS)
    return TrainingRun(
        tokens=tokens,
        iterations=iterations,
        seconds=whole_us / 10**6,
        usd=None if usd is None else float(usd),
        kwh=None if watt_hours is None else float(watt_hours / 1000),
        tokens_per_second=judged.parts["tokens_per_second"],
        mfu=judged.parts["mfu"],
        nodes=len(nodes),
        gpus=sum(cluster.node[name].count for name in nodes),
        missing=tuple(f for key in FIELDS for f in unsaid(cluster, key, nodes)),
    )


# --- what nodes cost -------------------------------------------------------------


def unsaid(cluster: Cluster, objective: str, nodes: Iterable[str]) -> list[str]:
    """Fields of the nodes' types of GPU that would have to say what an hour costs."""
    field = FIELDS[objective]
    types = sorted({cluster.node[name].gpu for name in nodes})
    return [
        f"cluster.gpus.{name}.{field}"
        for name in types
        if getattr(cluster.gpus[name], field) is None
    ]


def spent(
    cluster: Cluster, nodes: Iterable[str], objective: str, us: int
) -> Fraction | None:
    """USD or Wh of all GPUs of the nodes in so many us; None where a type is silent."""
    field, rate = FIELDS[objective], Fraction(0)
    for name in nodes:
        node = cluster.node[name]
        value = getattr(cluster.gpus[node.gpu], field)
        if value is None:
            return None
        rate += node.count * exact(value)
    return rate * us / US_PER_HOUR
