"""Cost against time: what is set beside the front, and the files it is written to."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from flat import flat
from typer.testing import CliRunner

import hetopt
from hetopt import api, cli
from hetopt.api.provisioning import FRONT, HOMOGENEOUS, Tradeoffs, deadlines
from hetopt.problems import provisioning as judge
from hetopt.report import front, words, writers

PLANNERS = ["espresso", "sia_plus", "whale_plus"]


@pytest.fixture(scope="module")
def found() -> Tradeoffs:
    return api.tradeoffs("tiny/offers", PLANNERS)


def test_no_point_lies_below_the_front(found: Tradeoffs) -> None:
    front = found.of(FRONT)
    assert len(front) > 1
    for point in found.points:
        reached = [p.usd for p in front if p.total_s <= point.total_s]
        if found.front.data.deadline_s and point.total_s > found.front.data.deadline_s:
            continue
        assert reached
        assert min(reached) <= point.usd


def test_every_deadline_has_a_plan_in_time_or_a_reason(found: Tradeoffs) -> None:
    steps = deadlines([point.total_s for point in found.of(FRONT)])
    for planner in PLANNERS:
        asked = [p.asked_s for p in found.of(planner)]
        asked += [miss.asked_s for miss in found.failed if miss.method == planner]
        assert sorted(s for s in asked if s is not None) == steps
    for point in found.points:
        assert point.asked_s is None or point.total_s <= point.asked_s


def test_points_are_the_judges(found: Tradeoffs) -> None:
    for point in found.points:
        parts = judge.evaluate(found.front.data, point.plan).parts
        assert (point.total_s, point.usd) == (parts["total_s"], parts["usd"])
    assert HOMOGENEOUS in found.methods


def test_tables_have_a_row_for_each_point(found: Tradeoffs, tmp_path: Path) -> None:
    rows = list(front.rows(found))
    for suffix in ("csv", "md", "json"):
        path = tmp_path / f"front.{suffix}"
        writers.write(front.sheet(found), found.to_json(), path)
    with (tmp_path / "front.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == len(rows) + 1
    text = (tmp_path / "front.md").read_text()
    asked = [one for one in [*found.points, *found.failed] if one.asked_s is not None]
    # Heading and rule stand above the rows of each table.
    lines = len(found.front.points) + 2 + (len(asked) + 2 if asked else 0)
    assert sum(line.startswith("| ") for line in text.splitlines()) == lines
    document = json.loads((tmp_path / "front.json").read_text())
    assert len(document["points"]) == len(found.of(FRONT))


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_pictures_are_written(
    found: Tradeoffs, tmp_path: Path, suffix: str, begins: bytes
) -> None:
    path = tmp_path / f"front{suffix}"
    writers.write(front.sheet(found), {}, path)
    assert path.read_bytes().startswith(begins)


def command(*words: str) -> Any:
    return CliRunner().invoke(cli.app, ["provision", "tiny/offers", *words])


def test_the_command_shows_planners_beside_the_front() -> None:
    told = command("--frontier", "--planner", "espresso,sia_plus")
    assert told.exit_code == 0, told.output
    assert "above" in told.stdout
    assert "espresso" in told.stdout
    assert command("--frontier", "--planner", "expresso").exit_code == 2


def test_the_command_rents_by_a_planner() -> None:
    told = command("--planner", "espresso", "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert document["method"]["name"] == "espresso"
    parts = document["evaluation"]
    assert parts["deadline_slack_s"] >= 0
    assert parts["least_headroom_mib"] == min(parts["headroom_mib"]) >= 0
    per_iteration = parts["usd"] / hetopt.load("tiny/offers").workload.iterations
    assert parts["usd_per_iteration"] == pytest.approx(per_iteration)


def test_the_command_says_what_to_rent_and_what_is_left() -> None:
    told = command()
    for heading in ("to rent", "slack to the deadline", "headroom", "per iteration"):
        assert heading in told.stdout


def test_the_picture_names_every_point_by_what_it_rents(found: Tradeoffs) -> None:
    figure = front.picture(found)
    axes, beside = figure.axes
    listed = " ".join(" ".join(text.get_text() for text in beside.texts).split())
    for point in found.of(FRONT):
        for row in point.machines:
            assert f"{row['machines']} × {row['gpu']}" in listed
    assert len(axes.texts) == len(found.of(FRONT))


def test_machines_are_counted_as_they_are_rented() -> None:
    data = hetopt.load("tiny/offers")
    big, small = data.offers
    wide = big.model_copy(
        update={"gpu": "2xbig@lambda/us-east-1", "gpus_per_instance": 2}
    )
    told = hetopt.provision(data.model_copy(update={"offers": (wide, small)}))
    assert told.plan is not None
    assert told.evaluation is not None
    for row in told.evaluation.parts["machines"]:
        used = sum(stage.gpu == row["offer"] for stage in told.plan.stages)
        gpus = row["machines"] * row["gpus_of_each"]
        assert gpus - row["gpus_of_each"] < used * told.plan.data_parallel <= gpus
        assert gpus == told.evaluation.parts["rented"][row["offer"]]
    shown = words.machines(
        [{"machines": 2, "gpus_of_each": 8, "gpu": "B200", "place": "aws/us"}]
    )
    assert shown == "2 machines of 8 × B200 at aws/us"


def test_a_front_says_which_settings_its_plans_chose() -> None:
    plain = flat(hetopt.load("tiny/offers"), exclude_unset=True)
    costs = plain["workload"]["costs"]
    plain["requirements"] = {}
    chosen = {**plain, "workload": dict(plain["workload"])}
    chosen["workload"]["costs"] = {**costs, "activations": "standard", "zero": 1}
    chosen["workload"]["alternatives"] = {"recompute": ["none"], "zero": [0]}
    shown = {}
    for name, document in (("plain", plain), ("chosen", chosen)):
        found = api.tradeoffs(document)
        assert found.front.points
        sheet = front.sheet(found)
        shown[name] = writers.records(sheet)
        assert ("settings" in writers.page(sheet)) is (name == "chosen")
    assert "recompute none" in shown["chosen"]
    assert "recompute" not in shown["plain"]
