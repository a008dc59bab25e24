"""GPUs that divide experts: each has whole ones, and all come to what one does."""

from random import Random
from typing import Any

import pytest
from executed import Ranks, difference
from hypothesis import given
from inputs import examples, seeds
from made_plans import pipeline, stage, with_settings
from runnable import RULES, divided, runnable
from small_instances import small

from hetopt.errors import Unsupported
from hetopt.formats import torchrun
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.runtime.jobs import Settings, job
from hetopt.runtime.layout import Layout
from hetopt.runtime.parameters import parameters
from hetopt.schema import Instance
from hetopt.text.complaints import validated

NEAR = 1e-10


@examples(30)
@given(seed=seeds())
def test_every_block_has_every_expert_once(seed: int) -> None:
    one = runnable(Random(f"blocks/{seed}"), 2, 8, True, 1 + seed % 2, True)
    whole = parameters(one.decoder)
    split = one.expert_parallel, one.interleave
    layout = Layout(one.plan, one.gpus, whole, one.zero, *split)
    assert sorted(layout.block_of) == sorted(layout.team_of)
    for block in layout.blocks:
        assert len(block) == one.expert_parallel
        held = [
            [p.name for p in layout.held(rank) if p.expert is not None]
            for rank in block
        ]
        team = layout.team_of[block[0]]
        want = [p for p in layout.parameters if p.expert is not None and team.holds(p)]
        assert sorted(name for names in held for name in names) == sorted(
            p.name for p in want
        )
        assert len({len(names) for names in held}) == 1
    pieces = [p for rank in layout.team_of for p in layout.pieces(rank) if p.owned]
    rows = sum(p.stop - p.start for p in pieces if p.parameter.expert is not None)
    assert rows == sum(
        p.shape[p.axis or 0] for p in layout.parameters if p.expert is not None
    )


@pytest.mark.parametrize("seed", range(4))
def test_random_plans_come_to_what_one_process_does(four: Ranks, seed: int) -> None:
    one = runnable(Random(f"divided/{seed}"), 2, 4, True, 1 + seed // 2, True)
    for errors in four.call(difference, one, 2):
        assert max(errors.values()) < NEAR, (errors, one.plan)


def of(data: Instance, e: int, *pipelines: Any) -> TrainingPlan:
    tree = {"pipelines": pipelines, "expert_parallel": e}
    return validated(TrainingPlan, tree, "plan")


def posed() -> Instance:
    plain = small(
        *("a*4 a*4", {"a": (1, 8)}),
        model={"layers": 2, "hidden": 16, "heads": 4, "vocabulary": 31, "gated": True},
        sequence_length=7,
        global_batch=4,
        costs={"sequence_parallel": True, "zero": 1},
        alternatives={},
    )
    return divided(Random("posed"), plain)


def test_a_run_goes_on_where_others_divide_the_experts(four: Ranks, tmp_path) -> None:
    from executed_runs import weights_after

    data = posed()
    together = of(data, 4, pipeline(2, 2, stage(0, 2, (2, "n0:0 n0:1 n0:2 n0:3"))))
    apart = of(data, 2, pipeline(1, 4, stage(0, 2, (2, "n0:0 n0:1"), (2, "n1:0 n1:1"))))
    settings = Settings(
        **{"steps": 3, "cpu": True, "precision": "fp64", "timeout_s": 30},
        optimiser=RULES.model_copy(update={"decay": "none"}),
    )
    first, second = (job(data, plan, settings) for plan in (together, apart))
    whole = four.call(weights_after, second)
    folder = str(tmp_path)
    four.call(weights_after, with_settings(first, checkpoint=folder, steps=2))
    later = four.call(weights_after, with_settings(second, checkpoint=folder))
    assert len(later[0][0]) == 1
    for (_, mine), (_, other) in zip(later, whole, strict=True):
        assert mine.keys() == other.keys()
        for name in mine:
            assert mine[name][1] == pytest.approx(other[name][1], abs=NEAR), name


def test_pipelines_whose_passes_would_not_meet_are_refused() -> None:
    data = posed()
    rows = [stage(0, 2, (1, "n0:0")), stage(0, 2, (1, "n0:1"))]
    unlike = of(
        data, 2, *(pipeline(n, 1, r) for n, r in zip((1, 3), rows, strict=True))
    )
    broken = training_plan.evaluate(data, unlike).violations
    assert [one.rule for one in broken] == ["target"]
    assert "pipelines 0 and 1 share experts" in broken[0].by
    assert any("pipelines 0 and 1" in text for text in torchrun.refusals(data, unlike))
    with pytest.raises(Unsupported, match="pipelines 0 and 1 share experts"):
        job(data.on("any"), unlike, Settings(steps=1, cpu=True))
    # Each divides by itself, and may go its own way.
    own = [stage(0, 2, (1, "n0:0 n0:1")), stage(0, 2, (1, "n1:0 n1:1"))]
    apart = of(data, 2, *(pipeline(n, 1, r) for n, r in zip((1, 3), own, strict=True)))
    assert job(data, apart, Settings(steps=1, cpu=True)).expert_parallel == 2
