"""MARP's plans, beside a second reading of its rule."""

from fractions import Fraction

import pytest

import hetopt
from hetopt.api import scheduling
from hetopt.costs import marp as formula
from hetopt.errors import NoPlan
from hetopt.planners import marp
from hetopt.problems import training_plan
from hetopt.schema import CostSettings, Instance, ModelSpec, Workload

CLUSTER = scheduling.load_queue("frenzy/simulator-30").cluster


def instance(model: str, batch: int, **costs: object) -> Instance:
    spec: ModelSpec = scheduling.load_model(model)
    usual = {"recompute": "none", "sync_overlap": "backward", **costs}
    return Instance(
        name=model,
        source="a test",
        model=spec,
        cluster=CLUSTER,
        workload=Workload(
            sequence_length=1024,
            global_batch=batch,
            micro_batch_sizes=tuple(b for b in range(1, batch + 1) if batch % b == 0),
            costs=CostSettings(**usual),
        ),
    )


def by_hand(data: Instance) -> set[tuple[str, int, int, int]]:
    """All (type, d, t, b) that fit by the formula of the paper, in fractions."""
    model, s = data.model, data.workload.sequence_length
    h, layers, a = model.hidden, model.layers, model.heads
    w = model.vocabulary * h + layers * (12 * h * h + 13 * h)
    found = set()
    for kind, gpu in data.planned_cluster.gpus.items():
        nodes = [n.count for n in data.planned_cluster.nodes if n.gpu == kind]
        for t in range(1, max(nodes) + 1):
            for d in range(1, sum(n // t for n in nodes) + 1):
                for b in data.workload.micro_batch_sizes:
                    batch = d * b
                    if data.workload.global_batch % batch:
                        continue
                    shape = Fraction(10, d) + Fraction(24, d * t)
                    shape += Fraction(5 * a * s, d * h * t)
                    need = Fraction(20 * w, t) + s * batch * h * layers * shape
                    if need < formula.capacity(gpu):
                        found.add((kind, d, t, b))
    return found


@pytest.mark.parametrize(
    ("model", "batch"), [("gpt2", 8), ("gpt2-large", 8), ("gpt2-7b", 2)]
)
@pytest.mark.parametrize("efficiency", ["per_gpu", "throughput"])
def test_the_plan_is_the_best_of_what_fits_by_the_formula(
    model: str, batch: int, efficiency: str
) -> None:
    data = instance(model, batch)
    plan = marp.plan(data, efficiency=efficiency)
    judged = training_plan.evaluate(data, plan)
    assert judged.valid
    first = plan.pipelines[0]
    replica = first.stages[0].replicas[0]
    d, t, b = len(plan.pipelines), replica.degree, first.micro_batch_size
    kind = data.planned_cluster.node[replica.node].gpu
    fits = by_hand(data)
    assert (kind, d, t, b) in fits
    assert all(len(pipeline.stages) == 1 for pipeline in plan.pipelines)
    kinds = {data.planned_cluster.node[r.node].gpu for r in plan.replicas()}
    assert kinds == {kind}


def test_what_needs_pipelines_or_zero_has_no_plan() -> None:
    data = instance("llama-65b", 4)
    with pytest.raises(NoPlan, match="neither pipelines nor ZeRO"):
        marp.plan(data)
    found = hetopt.plan(data, "marp", limits=5)
    assert found.plan is None
