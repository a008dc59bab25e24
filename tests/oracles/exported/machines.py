"""Machines that a scheduler is asked for, beside those of the plan it carries."""

from typing import NamedTuple

from hetopt.errors import InstanceError
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance
from hetopt.text.complaints import validated
from hetopt.text.parsing import parse_tree

PLAN = "plan.json"


class Share(NamedTuple):
    """Nodes of one GPU type that take part with as many GPUs each."""

    gpu: str
    gpus: int
    nodes: tuple[str, ...]


def _needed(data: Instance, plan: TrainingPlan) -> list[Share]:
    """The machines that the GPUs of a plan lie on, in the cluster's order."""
    used = [gpu.rpartition(":")[0] for one in plan.replicas() for gpu in one.gpus]
    nodes = [node for node in data.planned_cluster.nodes if node.name in used]
    kinds = dict.fromkeys((node.gpu, used.count(node.name)) for node in nodes)
    return [
        Share(
            *kind, tuple(n.name for n in nodes if (n.gpu, used.count(n.name)) == kind)
        )
        for kind in kinds
    ]


def carried(files: dict[str, str]) -> tuple[Instance, TrainingPlan]:
    """The instance and the plan of `plan.json`; `InstanceError` where it is none."""
    tree = parse_tree(files[PLAN], PLAN, is_json=True)
    if not {"instance", "plan"} <= set(tree):
        raise InstanceError(f"{PLAN}: expected a plan file with instance and plan")
    return (
        validated(Instance, tree["instance"], PLAN, ("instance",)),
        validated(TrainingPlan, tree["plan"], PLAN, ("plan",)),
    )


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that travels beside the launch files."""
    return carried(files)[1]


def disagreements(files: dict[str, str], asked: list[Share]) -> list[str]:
    """Where the machines that are asked for are not those of the plan."""
    wanted = _needed(*carried(files))
    if asked == wanted:
        return []
    lacking = [_told(share) for share in wanted if share not in asked]
    needless = [_told(share) for share in asked if share not in wanted]
    parts = []
    if lacking:
        parts.append(f"the plan needs {'; '.join(lacking)}")
    if needless:
        parts.append(f"asked for are {'; '.join(needless)}")
    return parts or ["the machines are asked for in another order than the plan's"]


def _told(share: Share) -> str:
    return f"{share.gpus} {share.gpu} on each of {', '.join(share.nodes)}"
