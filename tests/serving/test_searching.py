"""A plan while one watches: what is heard, what comes back, and what Ctrl-C keeps."""

import json
from io import StringIO
from typing import Any

import pytest

import hetopt
from hetopt.api.starts import Known
from hetopt.portfolio import PORTFOLIO
from hetopt.result import Result, Status, Stop
from hetopt.serving import searching
from hetopt.serving.worker import Teller, answered

TINY = hetopt.load("tiny/two-nodes")


class Heard:
    """Keeps what it hears; `ends` interrupts when that begins."""

    def __init__(self, ends: str | None = None) -> None:
        self.ends = ends
        self.states: list[tuple[int | None, int | None]] = []
        self.began_with: list[str] = []
        self.results: dict[str, Result] = {}

    def began(self, what: str) -> None:
        if what == self.ends:
            raise KeyboardInterrupt
        self.began_with.append(what)

    def knows(self, incumbent: int | None, bound: int | None) -> None:
        self.states.append((incumbent, bound))

    def tried(self, planner: str, found: Result) -> None:
        self.results[planner] = found


def test_incumbent_and_bound_close_in_and_never_move_away() -> None:
    heard = Heard()
    found = searching.searched(TINY, 20, heard)
    assert found is not None
    assert found.status is Status.OPTIMAL
    assert heard.states[0][0] is None
    plans = [plan for plan, _ in heard.states if plan is not None]
    bounds = [bound for _, bound in heard.states if bound is not None]
    assert plans == sorted(plans, reverse=True)
    assert bounds == sorted(bounds)
    assert heard.states[-1] == (found.objective, found.objective)
    for planner, one in heard.results.items():
        assert one.method.name == planner
        assert one.objective is None or one.objective >= plans[-1]


@pytest.mark.parametrize("ends", ["local search", "exact method"])
def test_an_interrupted_search_keeps_the_best_plan(ends: str) -> None:
    data = hetopt.load("autohet/a100-h20-4x4-gpt3-6.7b")
    heard = Heard(ends)
    found = searching.searched(data, 3, heard)
    assert found is not None
    assert found.stop is Stop.INTERRUPTED
    assert found.objective == heard.states[-1][0]
    assert found.bound is not None


def test_a_search_that_is_interrupted_at_once_knows_nothing() -> None:
    assert searching.searched(TINY, 3, Heard(PORTFOLIO.quick[0])) is None


def test_an_instance_without_a_plan_says_why() -> None:
    found = searching.searched(hetopt.load("tiny/infeasible"), 5, Heard())
    assert found is not None
    assert found.plan is None
    assert found.status is Status.INFEASIBLE
    assert found.reasons


def events(order: dict[str, Any]) -> list[dict[str, Any]]:
    channel = StringIO()
    teller = Teller(channel)
    teller.tell(**answered(order, teller))
    return [json.loads(line) for line in channel.getvalue().splitlines()]


def test_the_last_event_of_the_worker_is_a_plan_file_that_check_takes(
    tmp_path: Any,
) -> None:
    order = {"instance": TINY.model_dump(mode="json"), "time_limit": 20}
    told = events(order)
    assert [one["kind"] for one in told].count("result") == 1
    document = told[-1]["document"]
    states = [one for one in told if one["kind"] == "state"]
    last = states[-1]
    assert (last["incumbent"], last["bound"]) == (
        document["objective"],
        document["bound"],
    )
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    judged = hetopt.check(path)
    assert judged.valid
    assert judged.objective == document["objective"]


def test_what_a_program_lacks_is_the_last_event_and_nothing_is_searched() -> None:
    told = StringIO()
    tree = TINY.on("hexiscale").model_dump(mode="json")
    last = answered({"instance": tree, "time_limit": 5}, Teller(told))
    assert last["kind"] == "error"
    assert last["error"]["kind"] == "unsupported"
    assert "not supported by our HexiScale export" in last["error"]["message"]
    assert "tried" not in told.getvalue()


def test_the_search_starts_from_what_is_known() -> None:
    data = hetopt.load("autohet/a100-h20-4x4-gpt3-6.7b")
    data = data.model_copy(update={"name": "mine"})
    made = hetopt.plan(data, "hexiscale", limits=20)
    assert made.plan is not None
    heard = Heard()
    found = searching.searched(data, 0.5, heard, Known((("plan.json", made.plan),)))
    assert found is not None
    assert heard.results["plan.json"].plan == made.plan
    plans = [plan for plan, _ in heard.states if plan is not None]
    assert max(plans) == made.objective
    assert (found.objective or 0) <= (made.objective or 0)


def test_the_worker_starts_from_the_orders_plans_and_from_the_library() -> None:
    data = hetopt.load("autohet/a100-h20-4x4-gpt3-6.7b")
    order = {"instance": data.model_dump(mode="json"), "time_limit": 0.1}
    assert events(order)[-1]["document"]["status"] == "optimal"  # the library's proof
    mine = data.model_copy(update={"name": "mine"})
    made = hetopt.plan(mine, "hexiscale", limits=20)
    assert made.plan is not None
    told = events(
        {
            "instance": mine.model_dump(mode="json"),
            "time_limit": 0.1,
            "starts": [("a plan on this page", made.plan.model_dump(mode="json"))],
        }
    )
    assert told[-1]["document"]["objective"] <= made.objective
    assert next(one["planner"] for one in told if one["kind"] == "tried") == (
        "a plan on this page"
    )
