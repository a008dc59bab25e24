"""Settings that a plan chooses: which of them stand for others."""

from random import Random

import drawing
from hypothesis import given
from inputs import drawn, examples
from random_plans import any_plan

from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan import settings
from hetopt.problems.training_plan.shapes import split_of
from hetopt.schema import Instance

ZEROS = [0, 1, 2, 3]


def choosing_zero(rng: Random) -> Instance:
    """An instance of few GPUs, whose plans choose the stage of ZeRO."""
    counts = rng.choice([(2, 2), (4,), (2, 1, 1)])
    tree = drawing.instance(rng, counts, layers=4, batch=4, sizes=(1, 2))
    costs, workload = tree["workload"]["costs"], tree["workload"]
    free = not any(row.get("layer_mib") for row in costs.get("profile", ()))
    groups = {costs.get("zero_groups", 1)}
    groups.update(workload.get("alternatives", {}).get("zero_groups", ()))
    if free and groups == {1}:
        zeros = ZEROS if rng.random() < 0.5 else ZEROS[:3]
        workload.setdefault("alternatives", {})["zero"] = zeros
    return drawing.read(tree)


@examples(25)
@given(drawn(lambda rng: (choosing_zero(rng), rng.randrange(10**6))))
def test_what_stands_for_a_choice_has_all_its_plans_no_slower(
    data: tuple[Instance, int],
) -> None:
    instance, seed = data
    every, stands = settings.variants(instance), settings.lightest(instance)
    rng = Random(seed)
    for plan in filter(None, (any_plan(instance, rng) for _ in range(6))):
        judged = judge.evaluate(instance, plan)
        if not judged.valid:
            continue
        own = instance.workload.costs.updates.zero if plan.zero is None else plan.zero
        split = split_of(instance, plan)
        for one, number in zip(every, stands, strict=True):
            costs = one.workload.costs
            if (costs.updates.zero, costs.split) == (own, split):
                other = every[number].workload.costs
                assert other.split == split
                again = plan.model_copy(update={"zero": other.updates.zero})
                found = judge.evaluate(instance, again)
                assert found.valid
                assert found.objective <= judged.objective
