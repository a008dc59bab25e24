"""HexiScale's statement as printed, against trying all and the strengthened one."""

from random import Random

import pytest
from brute_force_training import best_training_plan
from hetopt.formulations import hexiscale_literal, hexiscale_milp
from small_instances import small

from hetopt import registry
from hetopt.errors import Unsupported
from hetopt.files import load_instance
from hetopt.modelling import Limits
from hetopt.problems import training_plan
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.solving import statements

APPENDIX = {
    "bytes_per_parameter": 8,
    "head": "omit",
    "recompute": "full",
    "activations": "checkpoint",
    "in_flight": "one",
    "pipeline_factor": 1,
    "sync_factor": 1,
}

SLOW = {"intra_gbytes_per_s": 2.0, "intra_latency_us": 5.5}
FAST = {"intra_gbytes_per_s": 200.0, "intra_latency_us": 0}
MEMORY_AND_LINKS = [(0.002, SLOW), (0.007, FAST), (0.015, SLOW), (0.5, FAST)]


def tiny(seed: int) -> Instance:
    """Two or three GPUs, two layers, the costs of the appendix.

    In turn no layer fits on a GPU, one, two, and what one likes.
    """
    random = Random(seed)
    counts = ((2,), (1, 1), (2, 1), (1, 2))[seed // 4]
    memory, links = MEMORY_AND_LINKS[seed % 4]
    nodes = [
        {"name": f"n{i}", "gpu": random.choice("AB"), "count": count, **links}
        for i, count in enumerate(counts)
    ]
    used = sorted({str(node["gpu"]) for node in nodes})
    gpus = {name: (random.choice([10.0, 37.5, 165.2]), memory) for name in used}
    batch, inter = random.choice([2, 3]), random.choice([0.7, 3, 50])
    shape = {"layers": 2, "hidden": 256, "heads": 4}
    asked = {"global_batch": batch, "costs": APPENDIX}
    return small(nodes, gpus, model=shape, inter=inter, **asked)


@pytest.mark.parametrize("seed", range(16))
def test_the_printed_equations_have_the_optimum_of_all_plans(seed: int) -> None:
    """So has the strengthened statement: what is ours in it loses no optimum."""
    instance = tiny(seed)
    best = best_training_plan(instance)
    literal, strengthened = (
        statements.solve("training_plan", instance, name, backend)
        for name, backend in (
            ("hexiscale_literal", "scip"),
            ("hexiscale_milp", "cpsat"),
        )
    )
    assert literal.status is strengthened.status
    if best is None:
        assert literal.status is Status.INFEASIBLE
        return
    assert literal.status is Status.OPTIMAL
    assert literal.objective == strengthened.objective == best[0]
    assert training_plan.evaluate(instance, literal.plan).objective == best[0]


@pytest.mark.parametrize("seed", range(16))
def test_a_hint_fixes_the_plan_and_leaves_the_times_to_the_solver(seed: int) -> None:
    instance = tiny(seed)
    best = best_training_plan(instance)
    if best is None:
        return
    model = registry.entry("backends", "scip").backend("fixed")
    read = hexiscale_literal.build(instance, model)
    for variable, fixed in hexiscale_literal.hint(instance, best[1]).items():
        model.add("fixed", variable, model.variables[variable] == fixed)
    answer = model.solve(Limits(), lambda *_: None)
    assert answer.value is not None
    assert training_plan.evaluate(instance, read(answer.value)).objective == best[0]
    times = {"tau", "slow", "span", "each", "sync"}
    free = set(model.variables) - set(hexiscale_literal.hint(instance, best[1]))
    assert {name.partition("[")[0] for name in free} == times


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("tiny/two-nodes-head", "workload.costs.head"),
        ("tiny/two-nodes", "workload.costs.activations"),
        ("tiny/two-nodes-gpipe", "workload.costs.in_flight"),
    ],
)
def test_costs_that_the_appendix_has_not_are_refused_here_alone(
    name: str, field: str
) -> None:
    """The strengthened statement carries them: there the two differ."""
    instance = load_instance(name)
    with pytest.raises(Unsupported, match=field.replace(".", r"\.")):
        statements.solve("training_plan", instance, "hexiscale_literal", "scip")
    assert hexiscale_milp.Tables(instance).kinds
