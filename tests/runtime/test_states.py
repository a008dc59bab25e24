"""States of a run: it goes on exactly, or under another plan; and other precisions."""

from pathlib import Path
from typing import Any

import pytest
from executed import Ranks
from made_plans import ALONE, MIXED, UNEVEN, made, with_settings
from runnable import RULES

from hetopt.errors import InstanceError, Unsupported
from hetopt.runtime.jobs import Job
from hetopt.runtime.saved import LATEST, Saved

NEAR = 1e-10
# Learning rates that do not depend on the number of steps.
CONSTANT = RULES.model_copy(update={"decay": "none"})


def ran(pool: Ranks, one: Job) -> tuple[list[Any], list[Any]]:
    """The steps of the first rank, and the weights of all."""
    from executed_runs import weights_after

    answers = pool.call(weights_after, one)
    return answers[0][0], [weights for _, weights in answers]


def furthest(some: list[Any], others: list[Any]) -> float:
    """The largest difference of equal parts of weights."""
    return max(
        abs(part[name][1] - other[name][1]).max()
        for part, other in zip(some, others, strict=True)
        for name in part
        if part[name][1].size
    )


def test_a_run_that_was_stopped_goes_on_to_the_last_bit(
    four: Ranks, tmp_path: Path
) -> None:
    one = with_settings(made(MIXED, zero=1, recompute="none"), optimiser=CONSTANT)
    folder = str(tmp_path)
    _, whole = ran(four, with_settings(one, checkpoint=folder, every=1))
    saved = Saved.of(folder)
    assert saved.step == 3
    fields = {"step": 2, "updates": 2, "folder": "step-00000002"}
    older = saved.model_copy(update=fields)
    (tmp_path / LATEST).write_text(older.model_dump_json())
    steps, parts = ran(four, with_settings(one, checkpoint=folder))
    assert [step.step for step in steps] == [3]
    assert furthest(parts, whole) == 0


def test_it_goes_on_under_another_plan(four: Ranks, tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = with_settings(
        made(MIXED, True, zero=1), optimiser=CONSTANT, checkpoint=folder, steps=2
    )
    second = with_settings(made(UNEVEN, True), optimiser=CONSTANT)
    _, whole = ran(four, second)
    ran(four, first)
    steps, parts = ran(four, with_settings(second, checkpoint=folder))
    assert len(steps) == 1
    assert furthest(parts, whole) < NEAR


def test_states_of_another_run_are_refused(four: Ranks, tmp_path: Path) -> None:
    folder = str(tmp_path)
    one = with_settings(made(ALONE), checkpoint=folder, steps=1)
    ran(four, one)
    saved = Saved.of(folder)
    assert saved is not None
    wider = one.decoder.model_copy(update={"intermediate": 24})
    with pytest.raises(Unsupported, match="another intermediate"):
        saved.fits(folder, wider, 0, 2)
    with pytest.raises(Unsupported, match="seed 0, found seed 1"):
        saved.fits(folder, one.decoder, 1, 2)
    with pytest.raises(InstanceError, match="step 1 is saved"):
        saved.fits(folder, one.decoder, 0, 1)


def states_at(folder: Path, place: str) -> None:
    """A `latest.json` whose states are said to be at `place`."""
    state = Saved(
        step=3,
        folder="step-00000003",
        updates=3,
        loss_scale=1.0,
        seed=0,
        decoder=made(ALONE).decoder,
    )
    told = state.model_dump_json().replace(state.folder, place)
    (folder / LATEST).write_text(told, encoding="utf-8")


@pytest.mark.parametrize(
    "place", ["../other/step-00000003", "/other/step-00000003", "other", "step-3/.."]
)
def test_states_outside_their_folder_are_refused(place: str, tmp_path: Path) -> None:
    states_at(tmp_path, place)
    with pytest.raises(InstanceError, match=r"latest\.json: folder: .*step-NUMBER"):
        Saved.of(str(tmp_path))


def test_a_link_to_states_outside_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    states_at(run, "step-00000003")
    assert Saved.of(str(run)) is not None
    (tmp_path / "other").mkdir()
    (run / "step-00000003").symlink_to(tmp_path / "other")
    with pytest.raises(InstanceError, match="leads out of"):
        Saved.of(str(run))


def test_other_precisions_come_near(four: Ranks) -> None:
    from executed_runs import losses_in

    one = made(MIXED, True, zero=1, precision="bf16_fp32_gradients")
    exact = [step.loss for step in ran(four, one)[0]]
    kinds = ["bfloat16", "bfloat16", "float16", "float32"]
    steps = four.call(losses_in, one, kinds)[0]
    assert not any(step.skipped for step in steps)
    assert [step.loss for step in steps] == pytest.approx(exact, rel=0.02)
    assert four.call(losses_in, one, ["float32"] * 4)[0][-1].loss == pytest.approx(
        exact[-1], rel=1e-4
    )


def test_a_step_that_overflows_changes_nothing_but_the_scale(four: Ranks) -> None:
    from executed_runs import overflowing

    for skipped, same, before, after in four.call(overflowing, made(UNEVEN)):
        assert skipped
        assert same
        assert after == pytest.approx(before / 2)
