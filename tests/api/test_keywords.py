"""`limits` and `progress`, as every function takes them."""

from typing import Any

from hetopt.api.calling import Progress, limits_of, progress_of
from hetopt.modelling import Limits


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
