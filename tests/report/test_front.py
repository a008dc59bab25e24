"""Cost against time: the front, and the files that it is written to."""

import csv
import json
from pathlib import Path

import pytest
from flat import flat

import hetopt
from hetopt import api
from hetopt.exact.provisioning import Frontier
from hetopt.report import front, words, writers


@pytest.fixture(scope="module")
def found() -> Frontier:
    return api.frontier("tiny/offers")


def test_tables_have_a_row_for_each_point(found: Frontier, tmp_path: Path) -> None:
    for suffix in ("csv", "md", "json"):
        path = tmp_path / f"front.{suffix}"
        writers.write(front.sheet(found), found.to_json(), path)
    with (tmp_path / "front.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    parts = [point.evaluation.parts for point in found.points]
    assert [float(row["usd"]) for row in rows] == [one["usd"] for one in parts]
    text = (tmp_path / "front.md").read_text()
    # Heading and rule stand above the rows of the table.
    lines = len(found.points) + 2
    assert sum(line.startswith("| ") for line in text.splitlines()) == lines
    document = json.loads((tmp_path / "front.json").read_text())
    assert len(document["points"]) == len(found.points) > 1
    assert document["instance"] == "tiny/offers"


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
        found = api.frontier(document)
        assert found.points
        sheet = front.sheet(found)
        shown[name] = writers.records(sheet)
        assert ("settings" in writers.page(sheet)) is (name == "chosen")
    assert "recompute none" in shown["chosen"]
    assert "recompute" not in shown["plain"]
