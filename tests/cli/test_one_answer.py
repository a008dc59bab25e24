"""One cluster, one answer: no command contradicts another about the same instance.

A plan is made once, without a limit, and proved optimal. Every other command then has
next to no time, in which it could find nothing like it by itself.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hetopt
from hetopt import cli

LIMIT = ("--time-limit", "0.01")
TRACE = "time_s,gpus\n0,5\n600,2\n1200,5\n3000,5\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small mixed cluster, and the best plan of it."""
    made = tmp_path_factory.mktemp("cluster")
    gpus = {
        "big": {"peak_tflops": 300, "memory_gib": 80, "usd_per_hour": 3, "watts": 400},
        "small": {"peak_tflops": 60, "memory_gib": 24, "usd_per_hour": 2, "watts": 350},
    }
    nodes = [("b-1", "big", 2), ("s-1", "small", 2), ("s-2", "small", 1)]
    model = {"name": "m", "layers": 8, "hidden": 2048, "heads": 16, "vocabulary": 1000}
    instance = {
        "name": "mixed",
        "model": model,
        "workload": {"sequence_length": 2048, "global_batch": 16},
        "cluster": {
            "gpus": gpus,
            "nodes": [
                {"name": n, "gpu": g, "count": c, "intra_gbytes_per_s": 50}
                for n, g, c in nodes
            ],
            "inter": {"gbytes_per_s": 50},
        },
    }
    (made / "mixed.json").write_text(json.dumps(instance))
    (made / "spot.csv").write_text(TRACE)
    best = told("plan", made / "mixed.json", "--time-limit", "inf", out=made)
    assert best["status"] == "optimal"
    return made


def told(*words: Any, out: Path | None = None) -> Any:
    """The document of a command; it is kept as plan.json in the folder `out`."""
    asked = [*map(str, words), "--json"]
    if out is not None:
        asked += ["--out", str(out / "plan.json")]
    found = CliRunner().invoke(cli.app, asked)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def optimum(folder: Path) -> int:
    document = json.loads((folder / "plan.json").read_text())
    objective: int = document["objective"]
    return objective


def test_plan_says_the_same_again(folder: Path, optimum: int) -> None:
    again = told("plan", folder / "mixed.json", *LIMIT)
    assert again["objective"] == optimum
    assert again["started_from"] == str(folder / "plan.json")
    shown = CliRunner().invoke(cli.app, ["plan", str(folder / "mixed.json"), *LIMIT])
    said = " ".join(shown.stdout.split())
    assert f"started from {folder / 'plan.json'}" in said


def test_compare_knows_it(folder: Path, optimum: int) -> None:
    words = ("compare", folder / "mixed.json", "--planners", "megatron")
    rows = told(*words, "--exact", "--known", *LIMIT)["rows"]
    assert rows[-1]["result"]["objective"] == optimum
    assert {row["best_known"] for row in rows} == {optimum}
    assert {row["best_known"] for row in told(*words)["rows"]} == {optimum}


def test_all_nodes_are_as_fast_as_plan_says(folder: Path, optimum: int) -> None:
    words = ("--objective", "usd")
    nodes = told("plan", folder / "mixed.json", *words, *LIMIT)["nodes"]
    assert nodes["sets"][0]["without"] == []
    assert nodes["sets"][0]["iteration_us"] == optimum
    times = [one["iteration_us"] for one in nodes["sets"]]
    assert min(us for us in times if us is not None) == optimum


def test_explain_knows_it(folder: Path, optimum: int) -> None:
    poor = hetopt.plan(folder / "mixed.json", "megatron")
    assert (poor.objective or 0) > optimum
    other = folder / "poor.json"
    other.write_text(json.dumps(poor.to_file()))
    try:
        found = told("explain", other, "--time-limit", "0")
        best = told("explain", folder / "plan.json", "--time-limit", "0")
    finally:
        other.unlink()
    assert found["iteration_us"] == poor.objective
    assert found["faster"]["iteration_us"] == optimum
    assert (best["iteration_us"], best["faster"]) == (optimum, None)


def test_replay_ends_as_fast_as_it_began(folder: Path, optimum: int) -> None:
    words = ("replay", folder / "plan.json", folder / "mixed.json")
    options = ("--trace", folder / "spot.csv", "--planning", "0.01", *LIMIT)
    for method in told(*words, *options, "--checkpoint", "60")["methods"]:
        legs = method["legs"]
        assert len(legs) > 1
        assert legs[0]["iteration_us"] == legs[-1]["iteration_us"] == optimum


def test_fresh_commands_know_nothing_and_a_plan_can_be_given(
    folder: Path, optimum: int, tmp_path: Path
) -> None:
    alone = told("plan", folder / "mixed.json", "--fresh", "--time-limit", "5")
    assert "started_from" not in alone
    elsewhere = tmp_path / "mixed.json"
    elsewhere.write_text((folder / "mixed.json").read_text())
    given = ("--start", folder / "plan.json")
    found = told("plan", elsewhere, *given, *LIMIT)
    assert (found["objective"], found["started_from"]) == (optimum, str(given[1]))
    words = ("compare", elsewhere, "--planners", "megatron", *given)
    assert told(*words)["rows"][0]["best_known"] == optimum
    refused = CliRunner().invoke(
        cli.app, ["plan", "tiny/two-nodes", "--start", str(given[1])]
    )
    assert refused.exit_code == 2
    assert "expected one to start from" in refused.output
