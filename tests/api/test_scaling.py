"""What another machine brings, beside all plans of tiny clusters, and on the screen."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from counted_clock import Clock
from places import INSTANCES
from typer.testing import CliRunner

import hetopt
from hetopt import cli, portfolio
from hetopt.api import scaling as points
from hetopt.api.runs import used_nodes
from hetopt.api.scaling import data_parallel, scale, with_rate
from hetopt.errors import Unsupported
from hetopt.modelling import Limits
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


@pytest.mark.parametrize("seed", range(6))
def test_points_lie_between_all_plans_and_their_bound(seed: int) -> None:
    instance = several(seed)
    found = scale(instance, 2, RATES, limits=20)
    by_name = instance.planned_cluster.node
    for point in found.of(2):
        assert point.plan is None or len(used_nodes(point.plan)) == 2
        names = set[str]() if point.plan is None else used_nodes(point.plan)
        if not names <= set(by_name) or len(names) != 2:
            continue
        nodes = [node for node in by_name.values() if node.name in names]
        rate = Fraction(point.gbits_per_s).limit_denominator(10**6)
        here = with_rate(instance, nodes, rate)
        assert point.plan is not None
        assert training_plan.evaluate(here, point.plan).objective == point.iteration_us
        best = best_training_plan(here, several_replicas=True)
        assert best is not None
        assert point.iteration_us is not None
        assert best[0] <= point.iteration_us
        assert point.bound is not None
        assert point.bound.value <= best[0]


def test_times_never_grow_with_the_rate_and_turn_where_it_is_said() -> None:
    found = scale(TWO_NODES, limits=20)
    (turn,) = found.turns
    alone = found.alone.iteration_us
    assert alone is not None
    for which in (1, 2):
        times = [x[which] for x in found.curves[2] if x[which] is not None]
        assert times == sorted(times, reverse=True)
    rates = {1: turn.gbits_per_s, 2: turn.data_parallel_gbits_per_s}
    for which, rate in rates.items():
        for sample in found.curves[2]:
            us = sample[which]
            if us is None or rate is None:
                continue
            if sample[0] > 1.02 * rate:
                assert us < alone
            if sample[0] < rate / 1.02:
                assert us >= alone


def test_a_slow_network_makes_two_machines_slower_than_one(tmp_path: Path) -> None:
    """What over ten threads report: ZeRO over Ethernet between two machines."""
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=2 type=A10\nb slots=2 type=A10\n")
    words = ("assemble", "llama-3.2-1b", str(hosts), "--global-batch", "16")
    words += ("--sequence-length", "1024", "-o", "inter_gbytes_per_s=1GbE")
    words += ("-o", "zero=3", "-o", "runs_on=architecture")
    out = tmp_path / "i.yaml"
    assert told(*words, "--out", str(out))[0] == 0
    picture = tmp_path / "s.svg"
    asked = ("scale", str(out), "--gbits", "1,100", "--time-limit", "4")
    code, shown, _ = told(*asked, "--json", "--out", str(picture))
    document = json.loads(shown)
    assert code == 0
    assert document["answer"].startswith("The second machine pays off from about ")
    one, slow, fast = document["points"]
    assert slow["data_parallel_us"] > one["iteration_us"] > fast["iteration_us"]
    assert slow["saves"] < fast["saves"] <= fast["saves_at_most"] <= 1
    assert picture.read_text().startswith("<?xml")


def test_no_question_says_less_than_a_plan_beside_the_instance(
    tmp_path: Path,
) -> None:
    """A slow planner's plan is found again, though there is no time to search."""
    instance, plan = tmp_path / "i.yaml", tmp_path / "plan.json"
    instance.write_text(Path(TWO_NODES).read_text())
    best = hetopt.plan(str(instance), limits=20)
    plan.write_text(json.dumps(best.to_json()))
    assert best.objective is not None
    assert best.plan is not None
    assert len(used_nodes(best.plan)) == 2
    code, shown, _ = told("scale", str(instance), "--time-limit", "0.01", "--json")
    document = json.loads(shown)
    own = [x for x in document["points"] if x["gbits_per_s"] == document["gbits_per_s"]]
    assert code == 0
    assert min(x["iteration_us"] for x in own) <= best.objective


def test_a_machine_that_no_plan_makes_pay_is_not_said_never_to() -> None:
    """Only the bound can say that; a search that ran out of time cannot."""
    found = scale(TWO_NODES, limits=20, gbits_per_s=(10.0,))
    slow = 10 * (found.alone.iteration_us or 0)
    points = tuple(
        replace(x, iteration_us=slow) if x.machines > 1 else x for x in found.points
    )
    turns = tuple(replace(turn, gbits_per_s=None) for turn in found.turns)
    open_ = scaling.answer(replace(found, points=points, turns=turns))
    most = max(found.saves_at_most(x) or 0 for x in found.of(2))
    assert open_.startswith("No plan was found in time with which the second machine")
    assert f"at most {most:.0%}, proved" in open_
    assert "10.0 × as long" in scaling._change(1 - slow / (slow / 10))
    proved = tuple(
        replace(x, bound=Bound(slow, "a proof")) if x.machines > 1 else x
        for x in points
    )
    told_ = scaling.answer(replace(found, points=proved, turns=turns))
    assert told_.startswith("The second machine cannot pay off at any network rate")


def test_one_machine_is_asked_about_copies_of_it() -> None:
    instance = hetopt.load(TWO_NODES)
    cluster = instance.planned_cluster
    alone = instance.model_copy(update={"cluster": cluster.only(cluster.nodes[:1])})
    found = scale(alone, 3, (10.0,), limits=10)
    assert len(found.names) == 3
    assert len(set(found.names)) == 1
    assert [point.machines for point in found.points] == [1, 2, 3]
    page: Any = __import__("hetopt.report.scaling", fromlist=["page"])
    assert "does another machine pay off" in page.page(found)


def test_data_parallelism_uses_every_gpu_and_shares_the_batch() -> None:
    instance = hetopt.load(TWO_NODES)
    plans = [*data_parallel(instance)]
    assert plans
    for plan in plans:
        judged = training_plan.evaluate(instance, plan)
        assert all(broken.rule == "memory" for broken in judged.violations)
        gpus = {gpu for replica in plan.replicas() for gpu in replica.gpus}
        assert len(gpus) == instance.planned_cluster.gpu_count


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(Unsupported, match="expected 2 to"):
        scale(TWO_NODES, 1)
    with pytest.raises(Unsupported, match="expected more than 0"):
        scale(TWO_NODES, 2, (0.0,))
    assert told("scale", TWO_NODES, "--gbits", "fast")[0] == 2
    assert told("scale", "tiny/offers")[0] == 2


def test_no_point_is_searched_once_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, whole = Clock(), portfolio.explore
    started: list[float] = []

    def explore(data: Instance, *more: Any) -> Any:
        started.append(clock.now)
        clock.now += 30  # a search that takes longer than it was given
        return whole(data, Limits(0.0), *more[1:])

    monkeypatch.setattr(points, "monotonic", clock)
    monkeypatch.setattr(portfolio, "explore", explore)
    found = scale("tiny/two-nodes", machines=3, limits=100)
    assert len(started) < len(found.points)
    assert max(started) < 100
    assert len(found.open) >= len(found.points) - len(started)
    assert (
        f"{len(found.open)} of {len(found.points)} points were not"
        in scaling.answer(found)
    )
