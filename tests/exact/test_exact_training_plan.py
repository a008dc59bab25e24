"""The bounds against all plans of tiny instances, and good plans of larger ones.

What a bound must never do is refute a time that some plan reaches: every plan that
anybody found is such a time.
"""

from functools import partial
from random import Random

import pytest
from random_alternatives import with_alternatives
from refuters import by_prices, proves
from settings import COSTS
from small_instances import small

import hetopt
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact import training_plan
from hetopt.exact.pipelines.schedule import Schedule, Searching, Shares
from hetopt.modelling import Limits
from hetopt.planners import islands, megatron
from hetopt.result import Status, Stop
from hetopt.schema import Instance
from hetopt.solving.certificates import BoxCertificate
from hetopt.stages import StageTable


@pytest.fixture(autouse=True)
def _short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule(searching=Searching(candidates=3_000))
    solve = partial(training_plan.solve, schedule=schedule)
    monkeypatch.setattr(training_plan, "solve", solve)


@pytest.mark.parametrize(
    "seed",
    [
        5,
        12,
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 6, 19, 25, 36)),
    ],
)
def test_the_bound_ends_just_below_the_proved_optimum_of_eight_gpus(seed: int) -> None:
    instance = eight_gpus(seed)
    result = training_plan.solve(instance, limits=Limits(time_s=100))
    assert result.status is Status.OPTIMAL
    optimum = result.objective
    bound = by_prices(instance, 0.5 * optimum, 1.3 * optimum)
    shares = (0.8, 0.88, 0.94, 1.0)
    proved = [share for share in shares if proves(bound, share * optimum, 60)]
    assert proved
    assert max(proved) < 1.0


def eight_gpus(seed: int) -> Instance:
    """Eight GPUs of up to three types, layers and batches as on real clusters."""
    rng = Random(f"eight GPUs/{seed}")
    types = {"A": (312, 80), "B": (165.2, 24), "C": (80, 24), "D": (56.9, 12)}
    counts = rng.choice([(4, 4), (3, 3, 2), (2, 2, 2, 2), (5, 3), (4, 2, 2), (6, 2)])
    names = [rng.choice("ABCD") for _ in counts]
    hidden, layers = rng.choice([2048, 4096]), rng.choice([12, 16, 24, 32])
    gpus = {
        x: (types[x][0], types[x][1] * rng.choice([1, 2])) for x in sorted({*names})
    }
    return small(
        [
            {"name": f"n{i}", "gpu": name, "count": count}
            | {"intra_gbytes_per_s": rng.choice([24, 200])}
            for i, (name, count) in enumerate(zip(names, counts, strict=True))
        ],
        gpus,
        model={"layers": layers, "hidden": hidden, "heads": 32, "vocabulary": 32000},
        inter=rng.choice([0.3, 0.7, 2, 5]),
        name=f"eight-{seed}",
        sequence_length=4096,
        global_batch=rng.choice([64, 128, 512]),
        costs=COSTS,
    )


def test_setting_1_is_bounded_within_five_per_cent_of_the_best_plan() -> None:
    instance = hetopt.load("hexiscale/setting-1-llama2-7b")
    plan = islands.plan(instance, seed=0, deadline=None)
    result = training_plan.solve(
        instance, limits=Limits(gap=0.05, time_s=100), warm_start=plan
    )
    assert result.status is Status.FEASIBLE
    assert result.stop is Stop.GAP
    assert result.gap <= 0.05
    assert result.bound.value > training_plan_bound(instance).value
    bounds = [point.bound for point in result.trace if point.bound is not None]
    assert bounds == sorted(bounds)


def test_one_pipeline_that_has_room_is_proved_to_be_the_best_plan() -> None:
    instance = hetopt.load("generated:tight_memory/16/2")
    assert StageTable(instance).most_replicas == 1
    result = training_plan.solve(instance, limits=Limits(time_s=60))
    assert result.status is Status.OPTIMAL
    assert isinstance(result.certificate, BoxCertificate)
    bound = result.bound and result.bound.value
    assert training_plan.recheck(instance, result.certificate, bound) == []


def test_settings_are_raced_whatever_plan_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But after a race, which the portfolio has had, the time is for the rest."""
    data = hetopt.load("autohet/a100-h20-4x4-gpt3-6.7b")
    data = with_alternatives(Random(1), data, zeros=(0, 1))
    start, asked = megatron.plan(data), list[Instance]()
    monkeypatch.setattr(training_plan.racing, "raced", lambda x, **_: asked.append(x))
    for shares, races in ((Shares(), 1), (Shares(choices=0), 0)):
        asked.clear()
        schedule = Schedule(searching=Searching(candidates=100), shares=shares)
        limits = Limits(gap=1.0)
        training_plan.solve(data, limits=limits, warm_start=start, schedule=schedule)
        assert len(asked) == races
