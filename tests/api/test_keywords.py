"""`limits` and `progress`, as every function takes them."""

from typing import Any

from hetopt.api.calling import Progress, progress_of


def test_a_function_alone_hears_the_reports() -> None:
    heard: list[Any] = []
    progress = progress_of(lambda *now: heard.append(now))
    progress.report(5, 4)
    progress.started("somebody")
    assert heard == [(5, 4)]
    assert isinstance(progress, Progress)
    assert progress_of(progress) is progress
