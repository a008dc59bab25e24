"""Commands begin with a plan that they are given, and say nothing worse.

A plan is made once, without a limit, and proved optimal. Every other command then has
next to no time, in which it could find nothing like it by itself.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import document, typed
from small_instances import document as file_of

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
    nodes = "b-1=big*2 s-1=small*2 s-2=small*1"
    model = {"layers": 8, "hidden": 2048, "heads": 16}
    words = {"model": model, "inter": 50, "sequence_length": 2048, "global_batch": 16}
    instance = file_of(nodes, gpus, name="mixed", **words)
    (made / "mixed.json").write_text(json.dumps(instance))
    (made / "spot.csv").write_text(TRACE)
    best = told("plan", made / "mixed.json", "--time-limit", "inf", out=made)
    assert best["status"] == "optimal"
    return made


def told(*words: Any, out: Path | None = None) -> Any:
    """The document of a command; it is kept as plan.json in the folder `out`."""
    return document(*words, *(() if out is None else ("--out", out / "plan.json")))


@pytest.fixture(scope="module")
def optimum(folder: Path) -> int:
    return json.loads((folder / "plan.json").read_text())["objective"]


def test_replay_ends_as_fast_as_it_began(folder: Path, optimum: int) -> None:
    words = ("replay", folder / "plan.json", folder / "mixed.json")
    options = ("--trace", folder / "spot.csv", "--planning", "0.01", *LIMIT)
    for method in told(*words, *options, "--checkpoint", "60")["methods"]:
        legs = method["legs"]
        assert len(legs) > 1
        assert legs[0]["iteration_us"] == legs[-1]["iteration_us"] == optimum


def test_commands_know_the_plans_that_are_given(folder: Path, optimum: int) -> None:
    place, given = folder / "mixed.json", ("--start", folder / "plan.json")
    alone = told("plan", place, "--time-limit", "5")
    assert "started_from" not in alone
    found = told("plan", place, *given, *LIMIT)
    assert (found["objective"], found["started_from"]) == (optimum, str(given[1]))
    shown = typed("plan", place, *given, *LIMIT)
    assert f"started from {given[1]}" in " ".join(shown.stdout.split())
    words = ("compare", place, "--planners", "megatron", *given)
    assert told(*words)["rows"][0]["best_known"] == optimum
    rows = told(*words, "--exact", "--known", *LIMIT)["rows"]
    assert rows[-1]["result"]["objective"] == optimum
