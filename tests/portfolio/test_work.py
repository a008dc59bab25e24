"""With a limit of work the same seed gives the same answer, on any machine."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

import hetopt
from hetopt import clock
from hetopt.errors import Unsupported
from hetopt.modelling import Limits
from hetopt.result import Result, Stop

TINY, UNLIKE = "tiny/two-nodes", "autohet/a100-h20-4x4-gpt3-6.7b"
ASKED: list[tuple[str, dict[str, Any], int]] = [
    (TINY, {}, 300),
    (UNLIKE, {}, 1500),
    (UNLIKE, {"exact": True}, 800),
    (UNLIKE, {"planner": "islands"}, 300),
    (UNLIKE, {"planner": "grid"}, 3000),
    (UNLIKE, {"planner": "metis"}, 100),
    (UNLIKE, {"planner": "hexiscale", "improve": True}, 500),
]


class Busy:
    """The clock's counter on a machine where every look takes longer than the last."""

    def __init__(self, counter: Any) -> None:
        self._counter, self._looks = counter, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._counter, name)

    def get(self) -> Any:
        self._looks += 1
        time.sleep(1e-6 * (self._looks % 200))
        return self._counter.get()


def known(result: Result) -> Any:
    """What a result says, but how long it took."""
    course = [(point.incumbent, point.bound) for point in result.course]
    return result.plan, result.bound, result.status, result.stop, course


@pytest.mark.parametrize(("name", "asked", "work"), ASKED)
def test_the_same_work_finds_and_proves_the_same_on_a_busy_machine(
    name: str, asked: dict[str, Any], work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(work=work, seed=3)
    first = hetopt.plan(name, known=False, limits=limits, **asked)
    monkeypatch.setattr(clock, "_COUNTER", Busy(clock._COUNTER))
    again = hetopt.plan(name, known=False, limits=limits, **asked)
    assert known(first) == known(again)
    assert first.plan is not None
    assert first.to_json()["method"]["work"] == work


def test_work_ends_and_what_is_over_before_it_is_proved() -> None:
    none = hetopt.plan(UNLIKE, exact=True, known=False, limits=Limits(work=0))
    some = hetopt.plan(UNLIKE, exact=True, known=False, limits=Limits(work=1500))
    assert (none.stop, some.stop) == (Stop.TIME, Stop.TIME)
    assert none.bound.value <= some.bound.value
    assert hetopt.plan(TINY, exact=True, limits=Limits(work=10**6)).stop is Stop.PROVED


def test_what_counts_no_work_is_refused_by_name() -> None:
    limits = Limits(work=10)
    with pytest.raises(Unsupported, match="not supported by back end scip"):
        hetopt.solve(TINY, problem="device_grouping", backend="scip", limits=limits)
    with pytest.raises(Unsupported, match="needs a single thread"):
        hetopt.plan(TINY, limits=Limits(work=10, threads=2))
    with pytest.raises(Unsupported, match="a limit of plan, solve and compare"):
        hetopt.fit("gpt2-7b", ["A100-40G"], limits=limits)

    def late(instance: Any, deadline: float | None) -> None:
        return None

    with pytest.raises(Unsupported, match="not supported by late"):
        hetopt.plan(TINY, late, limits=limits)


def test_limits_are_kept_by_one_clock() -> None:
    """A search that looked at another would end elsewhere on a busy machine."""
    for folder in ("bounds", "search", "exact", "planners", "portfolio", "solving"):
        for file in (Path(hetopt.__file__).parent / folder).rglob("*.py"):
            text = file.read_text()
            assert not re.search(r"^(import time|from time import)\b", text, re.M), file
