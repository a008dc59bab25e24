"""`limits` and `progress`, and the keywords that they replace."""

from typing import Any

import pytest

import hetopt
from hetopt.api.calling import Listener, Progress, limits_of, progress_of
from hetopt.modelling import Limits

SMALL = "tiny/two-nodes"


def test_a_number_is_the_seconds_and_infinity_no_limit() -> None:
    assert limits_of(3) == Limits(time_s=3)
    assert limits_of(None) == limits_of(float("inf")) == Limits()
    assert limits_of(Limits(3, seed=4)) == Limits(3, seed=4)


def test_a_function_alone_hears_the_reports() -> None:
    heard: list[Any] = []
    progress = progress_of(lambda *now: heard.append(now))
    progress.report(5, 4)
    progress.started("somebody")
    assert heard == [(5, 4)]
    assert isinstance(progress, Progress)
    assert progress_of(progress) is progress


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"time_limit": 5}, {"limits": 5}),
        ({"seed": 3, "threads": 2}, {"limits": Limits(60, threads=2, seed=3)}),
        ({"gap": 0.5, "time_limit": None}, {"limits": Limits(gap=0.5)}),
        ({"report": None}, {"progress": None}),
    ],
)
def test_the_keywords_of_before_are_taken_with_a_warning(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    (name,) = new
    with pytest.warns(DeprecationWarning, match=f"plan: say {name} in place of"):
        before = hetopt.plan(SMALL, "megatron", **old)
    now = hetopt.plan(SMALL, "megatron", **new)
    assert (before.plan, before.method) == (now.plan, now.method)


def test_each_of_two_keywords_of_progress_is_heard() -> None:
    names: list[str] = []
    reports: list[Any] = []
    old: dict[str, Any] = {
        "started": names.append,
        "report": lambda *now: reports.append(now),
    }
    with pytest.warns(DeprecationWarning, match="say progress in place of report, st"):
        hetopt.compare(SMALL, ["megatron"], exact=True, **old)
    assert names == [f"{SMALL}: megatron", f"{SMALL}: exact"]
    assert reports


def test_old_and_new_together_are_refused() -> None:
    old: dict[str, Any] = {"seed": 3}
    with (
        pytest.warns(DeprecationWarning, match="say limits in place of seed"),
        pytest.raises(TypeError, match="found seed together with limits"),
    ):
        hetopt.plan(SMALL, limits=Limits(5), **old)


def test_a_keyword_that_a_function_never_had_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        hetopt.schedule("frenzy/example-2", **{"deadline": 3})


def test_a_listener_is_progress() -> None:
    assert progress_of(None) == Listener()
