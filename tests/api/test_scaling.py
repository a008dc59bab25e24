"""What another machine brings, next to all plans of tiny clusters."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from places import INSTANCES
from typer.testing import CliRunner

import hetopt
from hetopt import cli
from hetopt.api.scaling import Point, Scaling, scale
from hetopt.api.starts import Start
from hetopt.errors import Unsupported
from hetopt.problems import training_plan
from hetopt.report import scaling
from hetopt.result import Bound
from hetopt.schema import Instance

TWO_NODES = str(INSTANCES / "tiny" / "two-nodes.yaml")
RATES = (1.0, 25.0)


def told(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, [*words])
    return result.exit_code, result.stdout, result.stderr


def several(seed: int) -> Instance:
    """The first instance from a seed on that has several machines and a plan."""
    while True:
        instance = random_tiny_instance(Random(seed), 4)
        if len(instance.planned_cluster.nodes) > 1 and best_training_plan(instance):
            return instance
        seed += 1000


@pytest.mark.parametrize("seed", range(3))
def test_points_lie_between_all_plans_and_their_bound(seed: int) -> None:
    found = scale(several(seed), None, RATES, limits=20)
    for point in found.points:
        best = best_training_plan(point.result.data, several_replicas=True)
        assert best is not None
        assert point.result.bound is not None
        assert point.result.bound.value <= best[0] <= (point.result.objective or 0)


def test_times_never_grow_with_the_rate_nor_with_machines() -> None:
    found = scale(TWO_NODES, limits=10)
    times = [point.result.objective for point in found.points]
    assert times == sorted(times, reverse=True)
    assert times[0] <= found.alone.result.objective
    for point in found.points:
        plan, data = point.result.plan, point.result.data
        assert training_plan.evaluate(data, plan).objective == point.result.objective
        saved, most = found.saves(point)
        assert 0 <= saved <= most <= 1


def test_a_slow_network_makes_the_second_machine_useless(tmp_path: Path) -> None:
    """What over ten threads report: ZeRO over Ethernet between two machines."""
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=2 type=A10\nb slots=2 type=A10\n")
    words = ("assemble", "llama-3.2-1b", str(hosts), "--global-batch", "16")
    words += ("--sequence-length", "1024", "-o", "inter_gbytes_per_s=1GbE")
    words += ("-o", "zero=3", "-o", "runs_on=architecture")
    out, page = tmp_path / "i.yaml", tmp_path / "s.html"
    assert told(*words, "--out", str(out))[0] == 0
    asked = ("scale", str(out), "--gbits", "1,100", "--time-limit", "4")
    code, shown, _ = told(*asked, "--json", "--out", str(page))
    document = json.loads(shown)
    assert code == 0
    assert document["answer"].startswith("The second machine pays off ")
    one, slow, fast = document["points"]
    assert fast["iteration_us"] < slow["iteration_us"] <= one["iteration_us"]
    assert slow["saves"] < fast["saves"] <= fast["saves_at_most"] <= 1
    assert "does another machine pay off" in page.read_text()


def test_no_question_says_less_than_a_plan_next_to_the_instance(
    tmp_path: Path,
) -> None:
    """A slow planner's plan is found again, though there is no time to search."""
    instance, plan = tmp_path / "i.yaml", tmp_path / "plan.json"
    instance.write_text(Path(TWO_NODES).read_text())
    best = hetopt.plan(str(instance), limits=20)
    plan.write_text(json.dumps(best.to_json()))
    assert best.objective is not None
    code, shown, _ = told("scale", str(instance), "--time-limit", "0.01", "--json")
    document = json.loads(shown)
    own = [x for x in document["points"] if x["gbits_per_s"] == document["gbits_per_s"]]
    assert code == 0
    assert min(x["iteration_us"] for x in own) <= best.objective


def test_only_the_bound_says_that_a_machine_never_pays() -> None:
    """A search that ran out of time cannot."""
    found = scale(TWO_NODES, limits=10, gbits_per_s=(10.0,))
    alone = Start(found.alone.result.plan, 0, "x").result(found.alone.result.data)
    same = tuple(Point(2, point.gbits_per_s, alone) for point in found.points)

    def answer(bound: int) -> str:
        proved = alone.with_bound(Bound(bound, "a proof"))
        points = tuple(replace(point, result=proved) for point in same)
        return scaling.answer(Scaling("x", found.names, 10.0, found.alone, points))

    assert alone.objective is not None
    unknown, never = answer(alone.objective // 2), answer(alone.objective)
    assert unknown.startswith("No plan was found in time with which the second")
    assert "at most 50%, proved" in unknown
    assert never.startswith("The second machine cannot pay off at any network rate")


def test_one_machine_is_asked_about_copies_of_it() -> None:
    instance = hetopt.load(TWO_NODES)
    cluster = instance.planned_cluster
    alone = instance.model_copy(update={"cluster": cluster.only(cluster.nodes[:1])})
    found = scale(alone, 3, (10.0,), limits=5)
    assert len(set(found.names)) == 3
    assert [point.machines for point in found.points] == [3]


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(Unsupported, match="expected 2 to"):
        scale(TWO_NODES, 1)
    with pytest.raises(Unsupported, match="expected more than 0"):
        scale(TWO_NODES, 2, (0.0,))
    assert told("scale", TWO_NODES, "--gbits", "fast")[0] == 2
    assert told("scale", "tiny/offers")[0] == 2
