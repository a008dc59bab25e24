"""A plan with next to no memory left is told of, one that keeps some back is not."""

import pytest

import hetopt
from hetopt.api.margins import warnings
from hetopt.problems import training_plan
from hetopt.report import results


def told(gib: float, reserve_mib: int = 0) -> tuple[int, int, tuple[str, ...]]:
    """Least headroom of a plan on cards of so much memory, the memory, warnings."""
    result = hetopt.plan("tiny/two-nodes", "megatron")
    instance, cluster = result.data, result.data.planned_cluster
    gpus = {
        name: gpu.model_copy(update={"memory_gib": gib})
        for name, gpu in cluster.gpus.items()
    }
    cards = {"cluster": cluster.model_copy(update={"gpus": gpus})}
    instance = instance.with_costs(reserve_mib=reserve_mib).model_copy(update=cards)
    judged = training_plan.evaluate(instance, result.plan)
    found = warnings(instance, judged)
    sections = results.judged(instance, result.plan, judged)
    lines = (point for one in sections for point in one.points)
    shown = [line for line in lines if line.startswith("warning")]
    assert len(shown) == len(found)
    return judged.parts["least_headroom_mib"], int(gib * 1024), found


@pytest.fixture(autouse=True)
def whole_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model fills no card: the catalogue is to have a tiny one."""
    card = type("Card", (), {"total_mib": 1})
    monkeypatch.setattr("hetopt.api.margins.find_gpu", lambda name: card)


def test_a_warning_is_given_where_less_than_a_share_is_left() -> None:
    spare, room, _ = told(1.0)
    need = room - spare
    seen = set()
    for more in (0, 1, need // 50, need // 10, 10 * need):
        spare, room, found = told((need + more) / 1024)
        assert spare >= 0
        assert bool(found) == (spare < 0.03 * room)
        seen.add(bool(found))
    assert seen == {True, False}


def test_what_does_not_fit_breaks_a_rule_and_needs_no_warning() -> None:
    spare, room, _ = told(1.0)
    assert told((room - spare - 1) / 1024)[2] == ()


def test_none_is_given_where_some_memory_is_kept_back() -> None:
    spare, room, _ = told(1.0)
    need = room - spare
    assert told(need / 1024)[2]
    assert told((need + 1) / 1024, reserve_mib=1)[2] == ()


def test_none_is_given_where_importers_kept_some_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spare, room, _ = told(1.0)
    card = type("Card", (), {"total_mib": room})
    monkeypatch.setattr("hetopt.api.margins.find_gpu", lambda name: card)
    assert told((room - spare + 1) / 1024)[2] == ()
    monkeypatch.setattr("hetopt.api.margins.find_gpu", lambda name: None)
    assert told((room - spare + 1) / 1024)[2] == ()
